"""``npz`` and ``jpg`` channels: read, and refused where they are not whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from recorder.codecs.storage import open_channel
from recorder.common.errors import FormatError
from tests.codecs.blob_kit import write_blobs

RNG = np.random.default_rng(11)
IMAGES = [cv2.resize(RNG.integers(0, 256, (3, 4, 3), np.uint8), (32, 20)) for _ in range(4)]
JPEGS: list[bytes] = [cv2.imencode(".jpg", image)[1].tobytes() for image in IMAGES]


def rgb(jpeg: bytes) -> npt.NDArray[Any]:
    image: npt.NDArray[Any] | None = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image[..., ::-1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
@pytest.mark.parametrize("compress", [False, True])
def test_npz_round_trip(tmp_path: Path, shape: tuple[int, ...], compress: bool) -> None:
    values = RNG.normal(size=(7, *shape)).astype(np.float32)
    meta = write_blobs(tmp_path, "occ", "npz", list(values), description="d", compress=compress)
    assert meta == {"format": "npz", "type": "f4", "shape": list(shape), "desc": "d"}
    names = sorted(p.name for p in (tmp_path / "occ").iterdir())
    assert names == [f"00000{i}.npz" for i in range(7)]
    assert [p.name for p in tmp_path.iterdir()] == ["occ"]
    for index in range(7):
        with np.load(tmp_path / "occ" / names[index]) as file:
            np.testing.assert_array_equal(file["data"], values[index])
    with open_channel(tmp_path, "occ", meta) as channel:
        assert len(channel) == 7
        np.testing.assert_array_equal(channel.read(0, 7), values)
        np.testing.assert_array_equal(channel[-2], values[-2])
        np.testing.assert_array_equal(np.stack(list(channel)), values)
        assert channel.encoded(3) == (tmp_path / "occ" / names[3]).read_bytes()


def test_jpegs_are_stored_as_they_are(tmp_path: Path) -> None:
    meta = write_blobs(tmp_path, "image", "jpg", JPEGS)
    assert meta == {"format": "jpg", "type": "u1", "shape": [20, 32, 3], "desc": ""}
    with open_channel(tmp_path, "image", meta) as channel:
        assert [channel.encoded(i) for i in range(4)] == JPEGS
        np.testing.assert_array_equal(channel.read(0, 4), np.stack([rgb(j) for j in JPEGS]))


def test_jpg_from_arrays_is_rgb(tmp_path: Path) -> None:
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 255
    meta = write_blobs(tmp_path, "image", "jpg", [red])
    with open_channel(tmp_path, "image", meta) as channel:
        assert channel[0][..., 0].min() > 240
        assert channel[0][..., 1:].max() < 15


def test_a_stored_orientation_does_not_turn_the_picture(tmp_path: Path) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # rotate 90
    turned = JPEGS[0][:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + JPEGS[0][2:]
    assert rgb(turned).shape == (32, 20, 3)
    meta = write_blobs(tmp_path, "image", "jpg", [turned])
    assert meta["shape"] == [20, 32, 3]
    with open_channel(tmp_path, "image", meta) as channel:
        np.testing.assert_array_equal(channel[0], rgb(JPEGS[0]))


def test_gaps_and_strangers(tmp_path: Path) -> None:
    meta = write_blobs(tmp_path, "image", "jpg", JPEGS)
    (tmp_path / "image" / "000002.jpg").unlink()
    with pytest.raises(FormatError, match=r"image: '000003.jpg' is not one of .* first 2"):
        open_channel(tmp_path, "image", meta)
    with open_channel(tmp_path, "image", meta, partial=True) as channel:
        assert len(channel) == 2
        with pytest.raises(IndexError):
            channel[2]


def test_missing_folder(tmp_path: Path) -> None:
    for format_ in ("npz", "jpg"):
        with pytest.raises(FormatError, match="image: no such folder"):
            open_channel(tmp_path, "image", {"format": format_, "type": "u1", "shape": [2, 2, 3]})


def test_cut_at_every_byte(tmp_path: Path) -> None:
    meta = write_blobs(tmp_path, "occ", "npz", [np.arange(4)])
    path = tmp_path / "occ" / "000000.npz"
    whole = path.read_bytes()
    with open_channel(tmp_path, "occ", meta) as channel:
        for cut in range(len(whole)):
            path.write_bytes(whole[:cut])
            with pytest.raises(FormatError, match=r"occ/000000\.npz"):
                channel[0]


def test_content_unlike_its_meta(tmp_path: Path) -> None:
    write_blobs(tmp_path, "occ", "npz", [np.zeros((2, 2), np.int16)])
    write_blobs(tmp_path, "image", "jpg", JPEGS)
    for name, meta in (
        ("occ", {"format": "npz", "type": "i2", "shape": [4]}),
        ("occ", {"format": "npz", "type": "u2", "shape": [2, 2]}),
        ("image", {"format": "jpg", "type": "u1", "shape": [32, 20, 3]}),
    ):
        with (
            open_channel(tmp_path, name, meta) as channel,
            pytest.raises(FormatError, match=f"{name}/000000"),
        ):
            channel[0]
    np.savez(tmp_path / "occ" / "000000.npz", other=np.zeros(3))
    with (
        open_channel(tmp_path, "occ", {"format": "npz", "type": "f8", "shape": [3]}) as channel,
        pytest.raises(FormatError, match="'data'"),
    ):
        channel[0]


def test_npz_does_not_unpickle(tmp_path: Path) -> None:
    (tmp_path / "occ").mkdir()
    np.savez(tmp_path / "occ" / "000000.npz", data=np.array([{"a": 1}], object))
    meta = {"format": "npz", "type": "f8", "shape": [1]}
    with open_channel(tmp_path, "occ", meta) as channel, pytest.raises(FormatError, match="npz"):
        channel[0]
