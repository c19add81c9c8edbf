"""Labels with a value per pixel as NCore's camera labels: every kind, set, source and error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.archives.context import PackingContext
from recorder.common.errors import ArchiveError
from tests.archives.ncore.packer_rig import Archive, pack
from tests.formats.zarr2.kit import decode, keys_of
from tests.session.build import START_NS, Builder, camera_spec
from tests.session.camera_labels import KINDS, make_values, write_folder

MS = 1_000_000
MASK = "mask.dynamic@camera"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.5)
    return builder.close()


def values_of(name: str, seed: int) -> Any:
    about = KINDS[name]
    return make_values(about["dtype"], tuple(about.get("shape", ())), seed)


def write_all(session: Path) -> None:
    """Every kind, with labels of the pictures 1 and 4."""
    for name in KINDS:
        labels = [({"t_ns": START_NS + k, "frame": k}, values_of(name, k)) for k in (1, 4)]
        write_folder(session, name, labels)


def instances(archive: Archive) -> dict[str, Any]:
    (store,) = archive.meta["component_stores"]
    found: dict[str, Any] = store["components"].get("camera_labels", {})
    return found


def read(archive: Archive, instance: str, t_us: int) -> Any:
    return archive.array(f"camera_labels/{instance}/labels/{t_us}/data")


def test_every_kind_becomes_an_instance(session: Path) -> None:
    write_all(session)
    archive = pack(session)
    names = [
        f"{kind}@camera" + (f"@{label_set}" if label_set else "")
        for kind, _, label_set in (name.partition("@") for name in KINDS)
    ]
    assert sorted(instances(archive)) == sorted(names)
    ends = archive.times_us("cameras/camera")[:, 1].tolist()
    for name, instance in zip(KINDS, names, strict=True):
        about = KINDS[name]
        path = f"camera_labels/{instance}"
        assert archive.array(f"{path}/timestamps_us").tolist() == [ends[1], ends[4]]
        descriptor = archive.attributes(f"{path}/labels")["descriptor"]
        kind = descriptor["label_type"]
        assert f"{kind['category'].lower()}.{kind['qualifier']}" == name.partition("@")[0]
        assert kind["unit"] == (about["unit"] and about["unit"].upper())
        assert descriptor["label_schema"]["dtype"] == str(np.dtype(about["dtype"]))
        header = instances(archive)[instance]["generic_meta_data"]["header"]
        assert (header["maker"], header["category"]) == ("test 1.0", name.partition(".")[0])
        for k in (1, 4):
            stored, values = read(archive, instance, ends[k]), values_of(name, k)
            if about.get("encoding") == "png":
                image = cv2.imdecode(stored, cv2.IMREAD_UNCHANGED)
                assert image is not None
                assert np.array_equal(image[..., ::-1] if image.ndim > 2 else image, values)
            elif rule := about.get("quantization"):
                found = stored * rule["scale"] + rule.get("offset", 0.0)
                assert stored.dtype == rule["dtype"]
                assert np.abs(found - values).max() <= rule["scale"] / 2 + 1e-6
            else:
                assert np.array_equal(stored, values)
            attributes = archive.attributes(f"{path}/labels/{ends[k]}")
            assert attributes["generic_meta_data"] == {"sample": k}
    assert archive.result.summary["frames"]["camera labels"] == 2 * len(KINDS)
    classes = instances(archive)["segmentation.semantic@camera@human_verified"]
    assert classes["generic_meta_data"]["header"]["classes"] == {"7": "road"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [("EXTERNAL", "EXTERNAL"), ("AUTOLABEL", "AUTOLABEL"), ("GT_SYNTHETIC", "GT_SYNTHETIC"),
     ("GT_ANNOTATION", "GT_ANNOTATION"), ("simulated", "GT_SYNTHETIC"),
     ("manual", "GT_ANNOTATION")],
)  # fmt: skip
def test_all_labels_have_the_same_sources(session: Path, source: str, expected: str) -> None:
    write_folder(session, "other.x", [({"t_ns": 0, "frame": 0}, make_values("u1"))],
                 source=source, unit=None, dtype="u1")  # fmt: skip
    (session / "_cuboids").mkdir()
    head = {"format": "recorder-cuboids", "version": 1, "source": source}
    box = {"t_ns": START_NS + 250 * MS, "track": "a", "class": "car", "frame": "rig",
           "center_m": [5, 0, 1], "size_m": [4, 2, 1], "quaternion_xyzw": [0, 0, 0, 1]}  # fmt: skip
    text = f"{json.dumps(head)}\n{json.dumps(box)}\n"
    (session / "_cuboids/a.jsonl").write_text(text)
    head = {"format": "recorder-boxes", "version": 1, "source": source}
    box = {"t_ns": START_NS + 250 * MS, "track": "a", "class": "car", "box_px": [1, 2, 3, 4]}
    (session / "_labels/camera.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(box)}\n")
    archive = pack(session)
    descriptor = archive.attributes("camera_labels/other.x@camera/labels")["descriptor"]
    assert descriptor["label_source"] == expected
    (cuboid,) = archive.attributes("cuboids/default/cuboids")["cuboid_track_observations"]
    assert (cuboid["source"], cuboid["source_version"]) == (expected, source)
    boxes = archive.attributes("cameras/camera")["generic_meta_data"]["boxes"]
    assert (boxes["source"], boxes["label_source"]) == (source, expected)


def test_labels_without_a_frame_belong_to_the_nearest_picture(session: Path) -> None:
    ends = pack(session).times_us("cameras/camera")[:, 1].tolist()
    line = {"t_ns": ends[2] * 1000 + 3 * MS, "metadata": {"by": "x"}}
    write_folder(session, "mask.dynamic", [(line, make_values("u1"))])
    archive = pack(session)
    assert archive.array("camera_labels/mask.dynamic@camera/timestamps_us").tolist() == [ends[2]]
    attributes = archive.attributes(f"camera_labels/mask.dynamic@camera/labels/{ends[2]}")
    assert attributes["generic_meta_data"] == {"sample": 2, "by": "x"}


def test_what_has_no_picture_or_no_place_is_noted(session: Path) -> None:
    labels: list[Any] = [
        ({"t_ns": START_NS + at, "frame": frame}, make_values("u1"))
        for at, frame in enumerate((0, 2, 2, 1, 99))
    ]
    write_folder(session, "mask.dynamic", labels)
    write_folder(session, "mask.dynamic", labels[:1], camera="rear")
    archive = pack(session)
    assert len(archive.array("camera_labels/mask.dynamic@camera/timestamps_us")) == 2
    assert archive.noted("_labels/camera/mask.dynamic: 3 labels belong to no packed picture") == 1
    assert archive.noted("_labels/rear/mask.dynamic: labels of a camera that is not packed") == 1


def test_a_part_has_the_labels_of_its_pictures(session: Path) -> None:
    from recorder.archives.finalize import ArchiveRequest, finalize
    from recorder.session.part import Moment, Part

    write_folder(session, "mask.dynamic", [
        ({"t_ns": START_NS + k, "frame": k}, make_values("u1", seed=k)) for k in range(15)
    ])  # fmt: skip
    part = Part(Moment.parse("0.2"), None, None)
    (result,) = finalize(session, [ArchiveRequest("ncore")], part=part)
    count = result.summary["frames"]
    assert 0 < count["camera"] == count["camera labels"] < 15
    keys = keys_of(result.files[0])
    first = 15 - count["camera"]
    for number, t_us in enumerate(decode(keys, f"camera_labels/{MASK}/timestamps_us")):
        label = f"camera_labels/{MASK}/labels/{t_us}"
        about = json.loads(keys[f"{label}/.zattrs"])["generic_meta_data"]
        assert about["sample"] == first + number
        image = cv2.imdecode(decode(keys, f"{label}/data"), cv2.IMREAD_UNCHANGED)
        assert image is not None
        assert np.array_equal(image, make_values("u1", seed=first + number))
        frame = json.loads(keys[f"cameras/camera/frames/{t_us}/generic_data/.zattrs"])
        assert frame["sample"] == about["sample"]


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("depth.z", make_values("f4") + 300,
         r"_labels/camera/depth.z/000000.npy: .*value \d.* at \[0, 0\] does not fit uint16"),
        ("depth.z", np.full((24, 32), np.nan, "f4"), r"depth.z/000000.npy: .*value nan at \[0, 0"),
        ("mask.dynamic", b"GIF89a", r"_labels/camera/mask.dynamic/000000.png: .*is not a PNG"),
        ("mask.dynamic", make_values("u2"), r"mask.dynamic/000000.npy: .*is uint16, not uint8"),
        ("flow.optical_forward", np.zeros((0, 4, 2), "f2"), r"000000.npy: .*"),
    ],
)  # fmt: skip
def test_a_wrong_label_names_its_file(session: Path, name: str, values: Any, words: str) -> None:
    write_folder(session, name, [({"t_ns": START_NS, "frame": 1}, values)])
    with pytest.raises(ArchiveError, match=words):
        pack(session)
    assert not list((session / "_archives/ncore").iterdir())


def test_labels_that_show_redacted_pictures_are_left_out(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(session)
    made = PackingContext.__post_init__

    def redact(context: PackingContext) -> None:
        made(context)
        context.redaction = {"camera": {"pictures": 15}}

    monkeypatch.setattr(PackingContext, "__post_init__", redact)
    archive = pack(session)
    kinds = {name.partition(".")[0] for name in instances(archive)}
    assert kinds == {"depth", "flow", "segmentation", "mask", "geometry", "feature"}
    assert archive.noted("left out: its pictures are redacted") == 2


def test_files_replace_the_classes_of_a_virtual_sensor(session: Path) -> None:
    folder = session / "_camera"
    folder.mkdir()
    np.zeros((15, 24, 32), np.uint8).tofile(folder / "segment")
    entry = {"format": "raw", "type": "u1", "shape": [24, 32], "desc": ""}
    (folder / "meta.json").write_text(json.dumps({"segment": entry}))
    label = ({"t_ns": START_NS, "frame": 3}, make_values("u1"))
    write_folder(session, "segmentation.semantic", [label],
                 unit=None, dtype="u1", encoding="png")  # fmt: skip
    archive = pack(session)
    times = archive.array("camera_labels/segmentation.semantic@camera/timestamps_us")
    assert len(times) == 1
    words = "_camera: segment _labels/camera/segmentation.semantic is packed: left out"
    assert archive.noted(words) == 1
