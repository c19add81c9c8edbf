"""Components in groups of their own, and groups that are packed again beside the others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize
from recorder.archives.ncore import SequenceWriter
from recorder.archives.ncore.format.manifest import read_manifest, store_md5
from recorder.archives.ncore.packer import PACKER
from recorder.archives.validation import validate_archive
from recorder.common.errors import ArchiveError, ConfigError, StorageError
from recorder.integrity.archives import verify_archive
from recorder.integrity.proof import Trust
from recorder.session.outputs import read_records
from tests.archives.ncore import build
from tests.archives.ncore.packer_rig import CALIBRATION, lidar, still_imu
from tests.archives.ncore.test_calibrations import FACTORY
from tests.archives.ncore.test_packed_again import Death, Killed
from tests.formats.zarr2.kit import keys_of
from tests.session import clouds
from tests.session.build import START_NS, Builder, camera_spec
from tests.session.camera_labels import make_values, write_folder

S = 1_000_000_000
GROUPS = {"sensors": ["cameras", "lidars", "radars"], "labels": ["cuboids", "camera_labels"]}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.5)
    builder.add(lidar(), 0.5)
    builder.add(still_imu(), 0.5)
    path = builder.close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    return path


def pack(session: Path, **options: Any) -> PackedArchive:
    (result,) = finalize(session, [ArchiveRequest("ncore", options)])
    return result


def stores(session: Path) -> dict[str, set[str]]:
    """Components by store; each store is whole, and nothing else is there."""
    place = session / "_archives/ncore"
    manifest = read_manifest(place / "drive.json")
    assert {path.name for path in place.iterdir()} == {
        "drive.json", *(entry.path for entry in manifest.stores)
    }  # fmt: skip
    for entry in manifest.stores:
        assert entry.md5 == store_md5(place / entry.path)
    return {
        entry.path.removeprefix("drive.ncore4").removesuffix(".itar").removesuffix(".zarr"): set(
            entry.components
        )
        for entry in manifest.stores
    }


def instances(session: Path, component: str) -> set[str]:
    manifest = read_manifest(session / "_archives/ncore/drive.json")
    return {name for entry in manifest.stores for name in entry.components.get(component, ())}


def state(path: Path) -> list[tuple[str, int, int, int, bytes]]:
    """Name, inode, times and bytes of a store's files."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = []
    for file in files:
        about = file.stat()
        data = file.read_bytes() if file.is_file() else b""
        found.append((file.name, about.st_ino, about.st_mtime_ns, about.st_ctime_ns, data))
    return found


def add_cuboids(session: Path, name: str = "hand", track: str = "a") -> None:
    (session / "_cuboids").mkdir(exist_ok=True)
    head = {"format": "recorder-cuboids", "version": 1, "source": "manual"}
    box = {"t_ns": START_NS + S // 4, "track": track, "class": "car", "frame": "lidar",
           "center_m": [5, 0, 1], "size_m": [4, 2, 1], "quaternion_xyzw": [0, 0, 0, 1]}  # fmt: skip
    (session / f"_cuboids/{name}.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(box)}\n")


def add_mask(session: Path) -> None:
    label = ({"t_ns": START_NS, "frame": 2}, make_values("u1"))
    write_folder(session, "mask.dynamic", [label])


def test_standard_groups_are_stores(session: Path) -> None:
    add_cuboids(session)
    pack(session, groups="standard")
    assert stores(session) == {
        "-sensors": {"cameras", "lidars"},
        "-poses": {"poses", "intrinsics"},
        "-labels": {"masks", "cuboids"},
    }


def test_components_of_no_group_are_in_the_main_store(session: Path) -> None:
    pack(session, groups=GROUPS)
    assert stores(session) == {
        "": {"poses", "intrinsics", "masks"},
        "-sensors": {"cameras", "lidars"},
        "-labels": {"cuboids"},
    }


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_labels_and_poses_are_replaced_beside_the_sensors(session: Path, store: str) -> None:
    add_cuboids(session, track="old")
    pack(session, groups="standard", store=store)
    place = session / "_archives/ncore"
    suffix = ".zarr.itar" if store == "itar" else ".zarr"
    sensors = place / f"drive.ncore4-sensors{suffix}"
    before = state(sensors)
    add_cuboids(session, track="new")
    add_mask(session)
    better = CALIBRATION.replace("[1, 0, 1.5]", "[1.25, 0, 1.5]")
    (session / "calibration.yaml").write_text(better)
    (session / "_calibrations").mkdir()
    (session / "_calibrations/factory.yaml").write_text(FACTORY)
    result = pack(session, store=store, only=["labels", "poses"])
    assert state(sensors) == before
    assert stores(session)["-sensors"] == {"cameras", "lidars"}
    assert stores(session)["-labels"] == {"masks", "cuboids", "camera_labels"}
    assert instances(session, "poses") == {"default", "factory"}
    assert {path.name for path in result.files} == {
        "drive.json", f"drive.ncore4-poses{suffix}", f"drive.ncore4-labels{suffix}"
    }  # fmt: skip
    assert result.kept == (sensors.name,)
    assert result.summary["frames"] == {"imu": 50, "cuboids": 1, "camera labels": 1}
    labels = keys_of(place / f"drive.ncore4-labels{suffix}")
    cuboids = json.loads(labels["cuboids/default/cuboids/.zattrs"])["cuboid_track_observations"]
    assert [cuboid["track_id"] for cuboid in cuboids] == ["new"]
    poses = json.loads(keys_of(place / f"drive.ncore4-poses{suffix}")[
        "poses/default/static_poses/.zattrs"])  # fmt: skip
    assert np.array(poses["('camera', 'rig')"]["pose"])[0, 3] == 1.25


def test_what_is_packed_in_groups_equals_what_is_packed_again(session: Path) -> None:
    add_cuboids(session)
    add_mask(session)
    pack(session, groups="standard")
    place = session / "_archives/ncore"
    before = {path.name: path.read_bytes() for path in place.glob("*labels*")}
    pack(session, only=["labels"])
    assert {path.name: path.read_bytes() for path in place.glob("*labels*")} == before


def test_a_given_calibration_replaces_the_poses(session: Path, tmp_path: Path) -> None:
    pack(session, groups="standard")
    better = tmp_path / "better.yaml"
    better.write_text(CALIBRATION.replace("[1, 0, 1.5]", "[3, 0, 1.5]"))
    request = ArchiveRequest("ncore", {"only": ["poses"]})
    (result,) = finalize(session, [request], calibration=better)
    keys = keys_of(result.files[0])
    poses = json.loads(keys["poses/default/static_poses/.zattrs"])
    assert np.array(poses["('camera', 'rig')"]["pose"])[0, 3] == 3
    packing = json.loads(keys["poses/default/.zattrs"])["generic_meta_data"]["packing"]
    assert packing["calibration_sha256"] == hashlib.sha256(better.read_bytes()).hexdigest()
    assert packing["options"]["groups"].keys() == {"sensors", "poses", "labels"}
    assert "only" not in packing["options"]


def test_a_component_names_its_group(session: Path) -> None:
    pack(session, groups="standard")
    add_cuboids(session)
    result = pack(session, only=["cuboids"])
    assert result.summary["frames"] == {"cuboids": 1}
    assert result.files[0].name == "drive.ncore4-labels.zarr.itar"


def test_the_main_store_is_replaced_if_it_has_no_sensors(session: Path) -> None:
    pack(session, groups=GROUPS)
    (session / "calibration.yaml").write_text(CALIBRATION.replace("[1, 0, 1.5]", "[2, 0, 1.5]"))
    result = pack(session, only=["poses"])
    assert [path.name for path in result.files] == ["drive.ncore4.zarr.itar", "drive.json"]
    assert len(stores(session)) == 3


def test_new_labels_join_a_sequence_of_one_store(session: Path) -> None:
    add_cuboids(session, "a")
    pack(session)
    main = session / "_archives/ncore/drive.ncore4.zarr.itar"
    before = state(main)
    add_cuboids(session, "b")
    add_mask(session)
    result = pack(session, groups=GROUPS, only=["labels"])
    assert state(main) == before
    assert stores(session)["-labels"] == {"cuboids", "camera_labels"}
    assert instances(session, "cuboids") == {"default", "a", "b"}
    result = pack(session, only=["labels"])  # replaced, and not joined twice
    assert state(main) == before
    assert instances(session, "cuboids") == {"default", "a", "b"}
    assert not [note for note in result.notes if "left out" in note]


def test_what_the_main_store_has_stays_and_is_noted(session: Path) -> None:
    add_mask(session)
    pack(session)
    groups = {"labels": ["masks", "camera_labels"], "poses": ["poses", "intrinsics"]}
    (session / "_masks/camera").mkdir(parents=True)
    (session / "_masks/camera/ego.png").write_bytes(b"")
    result = pack(session, groups=groups, only=["labels", "poses"])
    for words in ("_masks/camera: left out: masks/default is in a store",
                  "_labels/camera/mask.dynamic: left out: camera_labels/mask.dynamic@camera is in",
                  "calibration.yaml: left out: poses/default is in a store"):  # fmt: skip
        assert sum(words in note for note in result.notes) == 1, result.notes
    assert stores(session).keys() == {""}


def test_boxes_of_pictures_are_noted_as_kept(session: Path) -> None:
    pack(session, groups="standard")
    (session / "_labels").mkdir()
    head = {"format": "recorder-boxes", "version": 1, "source": "net"}
    (session / "_labels/camera.jsonl").write_text(json.dumps(head) + "\n")
    result = pack(session, only=["labels"])
    assert "camera: boxes are in the frames, which are not packed again" in result.notes


def test_groups_replace_one_store_and_one_store_groups(session: Path) -> None:
    pack(session)
    pack(session, groups="standard", store="folder")
    assert stores(session).keys() == {"-sensors", "-poses", "-labels"}
    pack(session, groups=GROUPS)
    assert stores(session).keys() == {"", "-sensors", "-labels"}
    pack(session, store="folder")
    assert stores(session).keys() == {""}


@pytest.mark.parametrize("text", [None, "", "{}", "garbage"])
def test_the_loss_of_the_json_file_is_made_good(session: Path, text: str | None) -> None:
    def lose() -> None:
        path = session / "_archives/ncore/drive.json"
        path.unlink() if text is None else path.write_text(text)

    pack(session, groups="standard")
    lose()
    add_cuboids(session)
    pack(session, only=["labels"])
    assert stores(session).keys() == {"-sensors", "-poses", "-labels"}
    lose()
    pack(session, groups="standard")
    lose()
    pack(session)
    assert stores(session).keys() == {""}


def test_the_record_has_every_store(session: Path) -> None:
    pack(session, groups="standard")
    add_cuboids(session)
    pack(session, only=["labels"])
    record = read_records(session)["ncore"]
    assert sorted(record["files"]) == sorted(
        path.name for path in (session / "_archives/ncore").iterdir()
    )
    sizes = [path.stat().st_size for path in (session / "_archives/ncore").iterdir()]
    assert record["bytes"] == sum(sizes)
    proof = verify_archive(session / "_archives/ncore.json", Trust([]), lambda _: None)
    assert proof.faults == []
    sensors = session / "_archives/ncore/drive.ncore4-sensors.zarr.itar"
    sensors.write_bytes(sensors.read_bytes() + b"x")
    proof = verify_archive(session / "_archives/ncore.json", Trust([]), lambda _: None)
    assert len(proof.faults) == 1


def add_foreign(session: Path, group: str) -> Path:
    with SequenceWriter.extend(session / "_archives/ncore/drive.json") as later:
        writer = later.camera_labels(build.CLASSES, "mine@camera", group=group)
        writer.label(START_NS + S // 4, build.jpeg(1))
    return session / f"_archives/ncore/drive.ncore4-{group}.zarr.itar"


def test_stores_of_others_are_neither_replaced_nor_lost(session: Path) -> None:
    pack(session)
    foreign = add_foreign(session, "labels")
    before = state(foreign)
    words = r"drive.ncore4-labels.zarr.itar: was not made by packing .*name the group otherwise"
    with pytest.raises(ArchiveError, match=words):
        pack(session, groups=GROUPS)
    with pytest.raises(ArchiveError, match=words):
        pack(session, groups=GROUPS, only=["labels"])
    pack(session, groups={"mine": ["cuboids"], "sensors": ["cameras", "lidars"]})
    pack(session, only=["mine"])
    assert state(foreign) == before
    assert stores(session).keys() == {"", "-labels", "-sensors", "-mine"}


def packed_elsewhere(session: Path) -> None:
    pack(session, groups="standard")
    path = session / "_archives/ncore/drive.json"
    text = path.read_text().replace('"hostname"', '"host"')
    path.write_text(text)


def without_sensors(session: Path) -> None:
    pack(session, groups="standard")
    (session / "_archives/ncore/drive.ncore4-sensors.zarr.itar").unlink()


@pytest.mark.parametrize(
    ("prepare", "options", "words"),
    [
        (lambda _: None, {"only": ["labels"]},
         r"drive.json: is missing: pack all of the session first"),
        (pack, {"only": ["labels"]}, r"all components are in one store: .*groups=standard"),
        (lambda path: pack(path, groups="standard"), {"only": ["lables"]},
         r"only: 'lables' is no group \(sensors, poses, labels\) and no .*mean 'labels'\?"),
        (lambda path: pack(path, groups="standard"), {"only": ["sensors"]},
         r"only: sensors: cameras, lidars, radars would be packed again, too"),
        (lambda path: pack(path, groups={"labels": ["cuboids"]}), {"only": ["poses"]},
         r"only: poses: cameras, lidars, radars would be packed again, too"),
        (lambda path: pack(path, groups="standard"),
         {"only": ["labels"], "groups": {"labels": ["cuboids"]}},
         r"-labels.zarr.itar: has masks, too, which would be lost"),
        (packed_elsewhere, {"only": ["labels"]},
         r"drive.json: was packed from other data: other metadata \(host, hostname\)"),
        (without_sensors, {"only": ["labels"]}, r"-sensors.zarr.itar: is missing: pack without"),
    ],
)  # fmt: skip
def test_what_cannot_be_packed_in_part_says_why(
    session: Path, prepare: Any, options: dict[str, Any], words: str
) -> None:
    prepare(session)
    place = session / "_archives/ncore"
    before = {p.name: p.read_bytes() for p in place.iterdir()} if place.exists() else {}
    with pytest.raises(ArchiveError, match=words):
        pack(session, **options)
    assert {p.name: p.read_bytes() for p in place.iterdir()} == before


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": ["camera"]}, r"ncore.groups.a: 'camera' is no component .*mean 'cameras'"),
        ({"a": []}, r"ncore.groups.a: needs a list of components: cameras, lidars"),
        ({"a": "cameras"}, r"ncore.groups.a: needs a list of components"),
        ({"a": ["cameras"], "b": ["cameras"]}, r"ncore.groups.b: cameras is in the group a alread"),
        ({"a/b": ["cameras"]}, r"ncore.groups.a/b: cannot be the name of a group"),
        ({"": ["cameras"]}, r"ncore.groups.: cannot be the name of a group"),
        ("standart", r"ncore.groups: 'standart' is not a mapping or standard"),
        (3, r"ncore.groups: "),
    ],
)
def test_wrong_groups_are_named(groups: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PACKER.check({"groups": groups})


def test_an_instance_in_two_stores_does_not_validate(session: Path) -> None:
    add_mask(session)
    pack(session, groups="standard")
    place = session / "_archives/ncore"
    labels = place / "drive.ncore4-labels.zarr.itar"
    copy = place / "drive.ncore4-more.zarr.itar"
    copy.write_bytes(labels.read_bytes())
    document = json.loads((place / "drive.json").read_text())
    (entry,) = [e for e in document["component_stores"] if e["path"] == labels.name]
    document["component_stores"].append({**entry, "path": copy.name})
    (place / "drive.json").write_text(json.dumps(document))
    (problem,) = validate_archive(place / "drive.json").problems
    assert "drive.ncore4-more.zarr.itar: has " in problem and f", as {labels} has" in problem


@pytest.mark.parametrize("renames", range(5))
def test_killed_between_two_renames(session: Path, renames: int) -> None:
    """The sensors stay, the JSON file names what is there, and the next run does the rest."""
    add_cuboids(session)
    pack(session, groups="standard")
    place = session / "_archives/ncore"
    sensors = place / "drive.ncore4-sensors.zarr.itar"
    before = state(sensors)
    (session / "calibration.yaml").write_text(CALIBRATION.replace("[1, 0, 1.5]", "[2, 0, 1.5]"))
    add_cuboids(session, track="new")
    with pytest.MonkeyPatch.context() as patched:
        death = Death(place, renames, patched)
        try:
            pack(session, only=["labels", "poses"])
        except (Killed, OSError, StorageError):
            assert death.dead
        assert death.dead == (renames < 4)
    if (place / "drive.json").exists():
        for entry in read_manifest(place / "drive.json").stores:
            assert entry.md5 == store_md5(place / entry.path)
    pack(session, only=["labels", "poses"])
    assert stores(session).keys() == {"-sensors", "-poses", "-labels"}
    assert state(sensors) == before
    assert validate_archive(place / "drive.json").problems == []


def test_lidars_without_times_of_points_are_sensors(tmp_path: Path) -> None:
    """Their point clouds stay where they are, and labels may be relative to them."""
    builder = Builder(tmp_path / "drive")
    sweeps = [clouds.make_sweep(clouds.WITHOUT_TIMES, seed) for seed in range(6)]
    clouds.add_clouds(builder, sweeps, clouds.cloud_spec(clouds.WITHOUT_TIMES))
    path = builder.close()
    pack(path, groups="standard")
    components = stores(path)
    assert components["-sensors"] == {"point_clouds"}
    assert (components["-labels"], components["-poses"]) == (
        {"masks", "cuboids"}, {"poses", "intrinsics"}
    )  # fmt: skip
    place = path / "_archives/ncore/drive.ncore4-sensors.zarr.itar"
    before = state(place)
    add_cuboids(path)
    (path / "_point_clouds/map").mkdir(parents=True)
    head = {"format": "recorder-point-clouds", "version": 1, "frame": "lidar"}
    line = {"t_ns": START_NS + S // 4, "file": "0.npz"}
    text = f"{json.dumps(head)}\n{json.dumps(line)}\n"
    (path / "_point_clouds/map/index.jsonl").write_text(text)
    np.savez(path / "_point_clouds/map/0.npz", xyz=np.zeros((3, 3)))
    result = pack(path, only=["labels"])
    assert result.summary["frames"] == {"cuboids": 1, "point clouds": 1}
    assert state(place) == before
    assert instances(path, "point_clouds") == {"lidar", "map"}
