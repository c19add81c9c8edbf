"""Labels with a value per pixel: what is read, and what is refused, by name."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from recorder.common.errors import FormatError
from recorder.perception.camera_labels import CameraLabelFolder, camera_label_folders
from tests.campaigns import seeded
from tests.session.camera_labels import (
    KINDS,
    make_header,
    make_values,
    write_folder,
    write_index,
)

PNG = cv2.imencode(".png", make_values("u1"))[1].tobytes()
JPEG = cv2.imencode(".jpg", make_values("u1", (3,)))[1].tobytes()


def read_one(session: Path) -> Any:
    (folder,) = camera_label_folders(session)
    (label,) = folder.labels()
    return folder.read(label)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    about = KINDS[name]
    values = make_values(about["dtype"], tuple(about.get("shape", ())))
    write_folder(tmp_path, name, [({"t_ns": 5, "frame": 3, "metadata": {"a": 1}}, values)])
    (folder,) = camera_label_folders(tmp_path)
    assert (folder.camera, folder.name, folder.unit) == ("camera", name, about["unit"])
    assert f"{folder.category}.{folder.qualifier}" == name.partition("@")[0]
    assert folder.set_name == name.partition("@")[2]
    (label,) = folder.labels()
    assert (label.t_ns, label.frame, label.metadata) == (5, 3, {"a": 1})
    assert np.array_equal(folder.read(label), values)


def test_ready_images_are_their_bytes(tmp_path: Path) -> None:
    write_folder(tmp_path, "mask.dynamic", [({"t_ns": 5}, PNG)])
    assert read_one(tmp_path) == PNG


@pytest.mark.parametrize(("dtype", "channels"), [("u1", 4), ("u2", 3), ("u2", 4)])
def test_ready_images_may_have_what_is_not_compressed(
    tmp_path: Path, dtype: str, channels: int
) -> None:
    """Readers cut 16-bit colours: whoever brings such images knows, the packer makes none."""
    values = make_values(dtype, (channels,))
    data = cv2.imencode(".png", values)[1].tobytes()
    about: dict[str, Any] = {"unit": None, "dtype": dtype, "shape": [channels], "encoding": "png"}
    write_folder(tmp_path, "other.ready", [({"t_ns": 5}, data)], **about)
    assert read_one(tmp_path) == data
    write_folder(tmp_path / "2", "other.ready", [({"t_ns": 5}, values)], **about)
    with pytest.raises(FormatError, match=r"000000.npy: uint\d+ of shape .* cannot be compressed"):
        read_one(tmp_path / "2")


def test_ready_jpegs_are_their_bytes(tmp_path: Path) -> None:
    write_folder(tmp_path, "material.albedo", [({"t_ns": 5}, JPEG)], encoding="jpeg")
    assert read_one(tmp_path) == JPEG


def test_labels_of_objects_and_hidden_folders_are_no_such_folders(tmp_path: Path) -> None:
    write_folder(tmp_path, "depth.z", [], camera=".old")
    (tmp_path / "_labels/camera").mkdir()
    (tmp_path / "_labels/camera/000.png").write_bytes(PNG)
    (tmp_path / "_labels/camera.jsonl").write_text("{}\n")
    assert camera_label_folders(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "recorder-boxes"}, r"index.jsonl:1: is not a header of recorder-camera-labels"),
        ({"colour": 1}, r"index.jsonl:1: colour: unknown key"),
        ({"category": "DEPTH"}, r":1: category: needs 'depth', as the folder's name, not 'DEPTH'"),
        ({"qualifier": "ray"}, r":1: qualifier: needs 'z', as the folder's name, not 'ray'"),
        ({"unit": "feet"}, r":1: unit: needs one of meters, pixels, unitless, not 'feet'"),
        ({"source": "midas"}, r":1: source: needs one of EXTERNAL, .*'midas'; .* is 'maker'"),
        ({"encoding": "webp"}, r":1: encoding: needs one of raw, png, jpeg, not 'webp'"),
        ({"encoding": "png"}, r":1: encoding: png holds no float32 of shape \[\]"),
        ({"encoding": "png", "dtype": "u2", "shape": [5]}, r"png holds no uint16 of shape \[5\]"),
        ({"encoding": "png", "dtype": "u1", "shape": [1]}, r"png holds no uint8 of shape \[1\]"),
        ({"encoding": "jpeg", "dtype": "u2"}, r":1: encoding: jpeg holds no uint16 of shape \[\]"),
        ({"encoding": "jpeg", "dtype": "u1", "shape": [4]}, r"jpeg holds no uint8 of shape \[4\]"),
        ({"encoding": "png", "dtype": "u1"}, r":1: quantization: only with encoding raw, not png"),
        ({"dtype": "f5"}, r":1: dtype: needs a type of numbers such as u1, not 'f5'"),
        ({"dtype": ">f4"}, r":1: dtype: needs a type of numbers"),
        ({"dtype": "O"}, r":1: dtype: needs a type of numbers"),
        ({"dtype": None}, r":1: dtype: needs a type of numbers such as u1, not None"),
        ({"shape": [0]}, r":1: shape: needs the lengths of a value, not \[0\]"),
        ({"shape": 3}, r":1: shape: needs the lengths"),
        ({"shape": [True]}, r":1: shape: needs the lengths"),
        ({"quantization": {"dtype": "f4"}}, r":1: quantization.dtype: needs a type of numbers"),
        ({"quantization": {"dtype": "u2", "scale": 0}}, r":1: quantization.scale: needs a number"),
        ({"quantization": {"dtype": "u2", "offset": "1"}}, r"quantization.offset: needs a number"),
        ({"quantization": {"dtype": "u2", "step": 1}}, r":1: quantization: step: unknown key"),
        ({"quantization": 3}, r":1: quantization: needs a mapping, not 3"),
        ({"classes": {"road": "7"}}, r":1: classes: needs names by number.*'road'"),
        ({"classes": {"7": 1}}, r":1: classes: needs names by number"),
    ],
)  # fmt: skip
def test_a_wrong_header_names_its_key(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    write_folder(tmp_path, "depth.z", [], **changes)
    with pytest.raises(FormatError, match=words):
        camera_label_folders(tmp_path)


def test_a_header_needs_a_unit(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "depth.z", [])
    header = make_header("depth.z")
    del header["unit"]
    write_index(folder, [header])
    with pytest.raises(FormatError, match=r":1: unit: missing; one of meters, .* or null"):
        camera_label_folders(tmp_path)


@pytest.mark.parametrize("name", ["depth", "depth.", "depths.z", "depth.z@", "@set"])
def test_a_folder_of_another_name_is_refused(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, name, [])
    with pytest.raises(FormatError, match=r"is not named CATEGORY.QUALIFIER or .* depth, flow, "):
        camera_label_folders(tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"t_ns": 1.5}, r"index.jsonl:2: t_ns: needs a whole number"),
        ({"t_ns": 5, "score": 1}, r"index.jsonl:2: score: unknown key"),
        ({"t_ns": 5, "file": None}, r":2: file: needs a text"),
        ({"t_ns": 5, "file": "../a.npy"}, r":2: file: '../a.npy' is not a file name in this fold"),
        ({"t_ns": 5, "frame": -1}, r":2: frame: needs a picture's index, not -1"),
        ({"t_ns": 5, "frame": True}, r":2: frame: needs a picture's index, not True"),
        ({"t_ns": 5, "metadata": []}, r":2: metadata: needs a mapping"),
        ({"t_ns": 5, "file": "1.npy"}, r":2: file: no such file: .*1.npy"),
        ({"t_ns": 5, "file": "1.png"}, r":2: file: '1.png' does not end in .npy"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: dict[str, Any], words: str) -> None:
    write_folder(tmp_path, "depth.ray@lidar", [(line, make_values("f4"))])
    with pytest.raises(FormatError, match=words):
        read_one(tmp_path)


def test_lines_are_in_order_of_time(tmp_path: Path) -> None:
    lines: list[Any] = [({"t_ns": t}, make_values("f4")) for t in (6, 5)]
    write_folder(tmp_path, "depth.ray@lidar", lines)
    (folder,) = camera_label_folders(tmp_path)
    with pytest.raises(FormatError, match=r":3: t_ns: the lines are not in order of time"):
        list(folder.labels())


def with_bytes(tmp_path: Path, name: str, data: bytes, ending: str, **changes: Any) -> None:
    folder = write_folder(tmp_path, name, [], **changes)
    (folder / f"0.{ending}").write_bytes(data)
    write_index(folder, [make_header(name, **changes), {"t_ns": 5, "file": f"0.{ending}"}])


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


GOOD = npy(make_values("f4"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no whole array file"),
        (b"garbage" * 30, "is no whole array file"),
        (GOOD[:-1], "is no whole array file"),
        (GOOD[:40], "is no whole array file"),
        (npy(np.array([[{}, {}]], object)), "is no whole array file"),
        (npz(), "is a set of arrays"),
        (npy(make_values("f8")), "is float64, not float32 as the header says"),
        (npy(make_values("f4").astype(">f4")), "is >f4, not float32"),
        (npy(make_values("f4", (3,))), r"has shape \[24, 32, 3\], not \[height, width\]"),
        (npy(np.zeros(7, "f4")), r"has shape \[7\], not \[height, width\]"),
    ],
)
def test_arrays_that_are_none(tmp_path: Path, data: bytes, words: str) -> None:
    with_bytes(tmp_path, "depth.ray@lidar", data, "npy")
    with pytest.raises(FormatError, match=rf"0.npy: {words}"):
        read_one(tmp_path)


@pytest.mark.parametrize(
    ("data", "ending", "words"),
    [
        (b"", "png", "is not a PNG"),
        (JPEG, "png", "is not a PNG"),
        (PNG[:-1], "png", "is cut"),
        (PNG[:20], "png", "is cut"),
        (PNG[:60] + bytes([PNG[60] ^ 1]) + PNG[61:], "png", "is damaged: the CRC of a chunk"),
        (cv2.imencode(".png", make_values("u2"))[1].tobytes(), "png", "has 1 channels of 16"),
        (cv2.imencode(".png", make_values("u1", (3,)))[1].tobytes(), "png", "has 3 channels of 8"),
        (PNG, "jpeg", "is no whole JPEG"),
        (JPEG[:-5], "jpeg", "is no whole JPEG"),
        (JPEG, "jpeg", "has 3 channels of 8 bits, not 1 of 8"),
    ],
)
def test_images_that_are_none(tmp_path: Path, data: bytes, ending: str, words: str) -> None:
    with_bytes(tmp_path, "mask.dynamic", data, ending, encoding=ending)
    with pytest.raises(FormatError, match=rf"0.{ending}: {words}"):
        read_one(tmp_path)


def test_fortran_order_is_the_same_array(tmp_path: Path) -> None:
    values = make_values("f4")
    with_bytes(tmp_path, "depth.ray@lidar", npy(np.asfortranarray(values)), "npy")
    read = read_one(tmp_path)
    assert np.array_equal(read, values)
    assert read.flags.c_contiguous


def test_headers_are_read_alone(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "other.wetness", [])
    assert CameraLabelFolder.read_header(folder / "index.jsonl").source == "EXTERNAL"


@seeded(2, weight=20, least=4)
def test_damage_is_one_clear_error(tmp_path: Path, seed: int) -> None:
    """Whatever bytes are in a file: it is read, or refused by name."""
    session = tmp_path / str(seed)
    for name, about in KINDS.items():
        values = make_values(about["dtype"], tuple(about.get("shape", ())))
        write_folder(session, name, [({"t_ns": 5, "frame": 1}, values)])
    write_folder(session, "mask.ready", [({"t_ns": 5}, PNG)],
                 unit=None, dtype="u1", encoding="png")  # fmt: skip
    files = sorted(path for path in session.rglob("*") if path.is_file())
    rng = random.Random(seed)
    refused = 0
    for _ in range(150):
        path = rng.choice(files)
        whole = path.read_bytes()
        path.write_bytes(damage(whole, rng))
        try:
            for folder in camera_label_folders(session):
                for label in folder.labels():
                    folder.read(label)
        except FormatError as error:
            assert str(session) in str(error)
            refused += 1
        path.write_bytes(whole)
    assert refused > 75


def damage(whole: bytes, rng: random.Random) -> bytes:
    """Change, insert or delete bytes near the start, or cut the rest."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(len(data), 300) or 1)
        kind = rng.randrange(4)
        if kind == 0:
            data[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 2:
            del data[at : at + rng.randint(1, 6)]
        else:
            del data[rng.randrange(len(data) + 1) :]
    return bytes(data)
