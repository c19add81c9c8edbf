"""A sequence's stores and JSON file: what is in them, extending them, and what is left of none."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from recorder.archives.ncore import IdealPinhole, Interval, SequenceWriter
from recorder.archives.ncore.format.manifest import describe_store, read_manifest, store_md5
from recorder.archives.ncore.format.sequence import StoreKind
from recorder.common.errors import ArchiveError, FormatError, UsageError
from tests.archives.ncore import build
from tests.archives.ncore.build import START_NS, STOP_NS, Given
from tests.campaigns import Selector
from tests.formats.zarr2.kit import decode, keys_of

INTERVAL = Interval.from_ns(START_NS, STOP_NS)


def new(folder: Path, store: StoreKind = "itar", name: str = "drive") -> SequenceWriter:
    return SequenceWriter(folder, name, interval_ns=(START_NS, STOP_NS), store=store)


def with_pose(sequence: SequenceWriter) -> SequenceWriter:
    sequence.poses().static_pose("rig", "world", np.eye(4))
    return sequence


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_the_layout(tmp_path: Path, store: StoreKind) -> None:
    given = build.write_sequence(tmp_path, store)
    path = tmp_path / ("drive.ncore4.zarr.itar" if store == "itar" else "drive.ncore4.zarr")
    keys = keys_of(path)
    root = json.loads(keys[".zattrs"])
    assert root == {
        "sequence_id": "drive",
        "sequence_timestamp_interval_us": {"start": INTERVAL.start_us, "stop": INTERVAL.stop_us},
        "generic_meta_data": build.METADATA,
        "version": "v4",
        "component_group_name": "",
    }
    assert json.loads(keys["lidars/lidar/.zattrs"]) == {
        "component_name": "lidars",
        "component_instance_name": "lidar",
        "component_version": "v1",
        "generic_meta_data": {"model": "OS-X"},
    }
    frames = json.loads(keys["lidars/lidar/frames/.zattrs"])["frames_timestamps_us"]
    assert frames == [[s["t_start_ns"] // 1000, s["t_end_ns"] // 1000] for s in given.sweeps]
    frame = f"lidars/lidar/frames/{frames[1][1]}"
    assert f"{frame}/.zgroup" in keys
    assert f"{frame}/generic_data/.zgroup" in keys
    assert f"{frame}/ray_bundle_returns/distance_m/1.0" in keys  # a chunk per return
    distance = decode(keys, f"{frame}/ray_bundle_returns/distance_m")
    assert np.array_equal(distance, given.sweeps[1]["distance_m"], equal_nan=True)
    mask = decode(keys, f"{frame}/ray_bundle_returns_valid_mask_packed")
    valid = np.unpackbits(mask, count=2 * build.RAYS).reshape(2, -1)
    assert np.array_equal(valid, ~np.isnan(given.sweeps[1]["distance_m"]))
    _, end, jpeg = given.cameras["front"][2]
    assert keys[f"cameras/front/frames/{end // 1000}/image/0"] == jpeg
    pose = json.loads(keys["poses/default/dynamic_poses/.zattrs"])["('rig', 'world')"]
    assert np.array_equal(pose["poses"], given.trajectory[1])
    assert (pose["timestamps_us"][0], pose["timestamps_us"][-1], pose["dtype"]) == (
        INTERVAL.start_us,
        INTERVAL.stop_us - 1,
        "float64",
    )
    masks = {c: json.loads(keys[f"masks/default/cameras/{c}/.zattrs"]) for c in build.MODELS}
    assert {c: m["mask_names"] for c, m in masks.items()} == {
        c: ["ego"] if c == "front" else [] for c in build.MODELS
    }
    clouds = json.loads(keys["point_clouds/map/pcs/.zattrs"])
    assert json.loads(keys["point_clouds/map/.zattrs"]).items() >= clouds.items()
    label = min(k for k in keys if k.startswith("camera_labels/seg") and k.endswith("data/0"))
    assert keys[label] == given.classes[0][1]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        build.write_sequence(tmp_path / name, "itar")
    one, other = (tmp_path / name / "drive.ncore4.zarr.itar" for name in "ab")
    assert keys_of(one).keys() == keys_of(other).keys()
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_the_json_file(tmp_path: Path, store: StoreKind) -> None:
    build.write_sequence(tmp_path, store)
    document = json.loads((tmp_path / "drive.json").read_text())
    (entry,) = document["component_stores"]
    path = tmp_path / entry["path"]
    if store == "itar":
        assert entry["md5"] == hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    assert entry["md5"] == store_md5(path)
    assert entry["components"]["com.example.velocity"] == {
        "fused": {"version": "v2", "generic_meta_data": {}}
    }
    assert entry["components"]["poses"]["default"]["generic_meta_data"] == {"source": "identity"}
    assert describe_store(path)[0].document() == document


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_extending(tmp_path: Path, store: StoreKind) -> None:
    build.write_sequence(tmp_path, store)
    before = {path: keys_of(path) for path in tmp_path.iterdir() if path.suffix != ".json"}
    with SequenceWriter.extend(tmp_path / "drive.json", store=store) as later:
        with pytest.raises(ArchiveError, match="group '' exists already"):
            later.cuboids("reviewed")
        with pytest.raises(ArchiveError, match=r"cuboids/default: .*has this instance already"):
            later.cuboids(group="labels")
        later.cuboids("reviewed", group="labels").add(build.CUBOIDS)
    for path, keys in before.items():
        assert keys_of(path) == keys
    manifest = read_manifest(tmp_path / "drive.json")
    assert [entry.components.keys() for entry in manifest.stores][1] == {"cuboids"}
    assert manifest.stores[1].path.startswith("drive.ncore4-labels.zarr")
    root = json.loads(keys_of(tmp_path / manifest.stores[1].path)[".zattrs"])
    assert root == manifest.root_attributes("labels")


def test_extending_stores_that_have_no_json_file(tmp_path: Path) -> None:
    build.write_sequence(tmp_path, "itar")
    expected = (tmp_path / "drive.json").read_text()
    (tmp_path / "drive.json").unlink()
    later = SequenceWriter.extend([tmp_path / "drive.ncore4.zarr.itar"])
    later.finish()
    assert (tmp_path / "drive.json").read_text() == expected


def test_stores_of_other_sequences_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        with new(tmp_path, name=name) as sequence:
            with_pose(sequence)
    with pytest.raises(ArchiveError, match=r"b\.json belongs to a different sequence"):
        SequenceWriter.extend([tmp_path / "a.json", tmp_path / "b.json"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "v3"}', '{"version": "v4"}'])
def test_json_files_of_others_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FormatError, match=r"x\.json: "):
        SequenceWriter.extend(tmp_path / "x.json")


@pytest.mark.parametrize("store", ["itar", "folder"])
def test_nothing_is_left_of_a_sequence_that_fails(tmp_path: Path, store: StoreKind) -> None:
    with pytest.raises(RuntimeError), new(tmp_path, store) as sequence:
        with_pose(sequence)
        sequence.cuboids(group="labels").add(build.CUBOIDS)
        sequence.cuboids().group.group("x")
        sequence.custom("com.example.a", "b").group.array("x", np.zeros(3))
        assert len(list(tmp_path.iterdir())) == 2
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_interrupted_is_in_nobodys_way(tmp_path: Path) -> None:
    stale = with_pose(new(tmp_path))
    stale.custom("com.example.a", "b").group.array("x", np.zeros(3))
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    with new(tmp_path) as sequence:
        with_pose(sequence)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"drive.json", "drive.ncore4.zarr.itar"}
    stale.discard()


def test_a_sequence_that_is_there_is_not_touched(tmp_path: Path) -> None:
    build.write_sequence(tmp_path, "itar")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with (
        pytest.raises(ArchiveError, match=r"drive\.ncore4\.zarr\.itar exists already"),
        new(tmp_path) as sequence,
    ):
        with_pose(sequence)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_the_loader_could_not_open_is_refused(tmp_path: Path) -> None:
    frame = (START_NS, START_NS + 1000, b"\xff\xd8")
    model = IdealPinhole((4, 4), focal_length_px=(4, 4), principal_point_px=(2, 2))
    with pytest.raises(ArchiveError, match="poses/default: it has no pose"), new(tmp_path):
        pass
    with (
        pytest.raises(ArchiveError, match="cameras/front: it has no intrinsics"),
        new(tmp_path) as sequence,
    ):
        with_pose(sequence).camera("front").frame(*frame)
    with (
        pytest.raises(ArchiveError, match="cameras/front: no pose connects it to world"),
        new(tmp_path) as sequence,
    ):
        with_pose(sequence).camera("front").frame(*frame)
        sequence.intrinsics().camera("front", model)
    with (
        pytest.raises(ArchiveError, match="no pose connects a, b to world"),
        new(tmp_path) as sequence,
    ):
        with_pose(sequence).poses().static_pose("a", "b", np.eye(4))
    with pytest.raises(ArchiveError, match="form a ring"), new(tmp_path) as sequence:
        with_pose(sequence).poses().static_pose("a", "rig", np.eye(4))
        sequence.poses().static_pose("a", "world", np.eye(4))
    assert list(tmp_path.iterdir()) == []


def test_sensors_without_frames_are_left_out(tmp_path: Path) -> None:
    with new(tmp_path) as sequence:
        with_pose(sequence)
        sequence.camera("front").set_generic_data({"x": np.zeros(3)}, {"a": 1})
        sequence.lidar("top")
        sequence.radar("bumper")
    assert sequence.packed is not None
    assert sequence.packed.omitted == ("cameras/front", "lidars/top", "radars/bumper")
    keys = keys_of(sequence.packed.stores[0])
    assert not any(key.startswith(("cameras", "lidars", "radars")) for key in keys)


CHARACTERS = [chr(code) for code in range(1, 0x100)]


def test_every_character_of_a_name_of_ones_own(tmp_path: Path, select: Selector) -> None:
    """At the begin, between and at the end, in each part of a reverse domain name."""
    with new(tmp_path) as sequence:
        with_pose(sequence)
        for number, character in enumerate(select(CHARACTERS, 80)):
            good = character.isascii() and (character.isalnum() or character in "_-")
            for form in ("{}x.a.b", "x{}x.a.b", "x{}.a.b", "x.{}.b", "x.a.{}", "x.a.b{}"):
                name = form.format(character)
                if good or (character == "." and name[0] + name[-1] == "xb" and ".." not in name):
                    sequence.custom(name, f"i{number}_{len(form)}_{form.index('{')}")
                    continue
                with pytest.raises(ArchiveError, match="is not a reverse domain name"):
                    sequence.custom(name, "i")
        for name in ("a", "a.b", ".a.b.c", "a..b", "a.b.c.", "a.b.c\n", ""):
            with pytest.raises(ArchiveError, match="is not a reverse domain name"):
                sequence.custom(name, "i")
        assert sequence.custom("a.b.c.d.e", "i").full_name == "a.b.c.d.e/i"


def test_every_character_of_a_groups_name(tmp_path: Path, select: Selector) -> None:
    with new(tmp_path) as sequence:
        with_pose(sequence)
        for number, character in enumerate(select(CHARACTERS, 80)):
            good = character.isascii() and (character.isalnum() or character in "._@-")
            for place, group in enumerate((f"{character}x", f"x{character}x", f"x{character}")):
                if good:
                    sequence.custom("a.b.c", f"i{number}_{place}", group=group)
                    continue
                with pytest.raises(ArchiveError, match="cannot name a component group"):
                    sequence.custom("a.b.c", "i", group=group)


def test_names_that_cannot_be(tmp_path: Path) -> None:
    with new(tmp_path) as sequence:
        with_pose(sequence)
        for bad in ("", "a/b", "a b", ".zgroup", ".."):
            with pytest.raises(ArchiveError, match="cannot name"):
                sequence.camera(bad)
        with pytest.raises(ArchiveError, match="cannot name a component group"):
            sequence.camera("front", group="a/b")
        sequence.camera("front")
        with pytest.raises(ArchiveError, match=r"cameras/front: .* already"):
            sequence.camera("front")
        with pytest.raises(ArchiveError, match="already in another component group"):
            sequence.poses(group="elsewhere")
        for bad in ("velocity", "a.b", "com..x", "com.example.a/b"):
            with pytest.raises(ArchiveError, match="not a reverse domain name"):
                sequence.custom(bad, "x")
    with pytest.raises(ArchiveError, match="the sequence is finished"):
        sequence.camera("rear")
    with pytest.raises(ArchiveError, match="cannot name a sequence"):
        new(tmp_path, name="a/b")
    with pytest.raises(FormatError, match="JSON cannot hold"):
        SequenceWriter(tmp_path, "x", interval_ns=(0, 1), metadata={"a": object()})


def test_intervals() -> None:
    assert Interval.from_ns(1_999, 3_001) == Interval(1, 4)
    assert Interval.from_ns(1_000, 3_000) == Interval(1, 3)
    assert Interval.from_ns(1_999, 2_001).last_ns == 2_000
    assert Interval.from_ns(1_000, 1_001).last_ns == 1_000
    for start, stop in ((5_000, 5_000), (5_000, 4_000), (-2_000, 4_000)):
        with pytest.raises(ArchiveError, match="is empty"):
            Interval.from_ns(start, stop)


def test_poses_found_later_can_be_given_in_parts(tmp_path: Path) -> None:
    given = Given()
    with new(tmp_path / "whole") as sequence:
        build.write_poses(sequence, [], given)
    t_ns, poses = given.trajectory
    with new(tmp_path / "parts") as sequence:
        trajectory = sequence.poses().trajectory("rig", "world")
        for start in range(0, len(t_ns), 3):
            trajectory.append(t_ns[start : start + 3], poses[start : start + 3])
    whole, parts = (tmp_path / n / "drive.ncore4.zarr.itar" for n in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


def test_without_numcodecs_it_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numcodecs", None)
    with pytest.raises(UsageError, match="needs the extra archives"):
        new(tmp_path)
