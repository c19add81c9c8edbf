"""roverd's own channel classes against ours, both ways, for every format.

Runs where ``roverd`` (RadarML/red-rover, folder ``format/``) can be imported.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from recorder.codecs.storage import create_writer, open_channel
from recorder.codecs.streams import ChannelSpec
from recorder.common.files import PosixDisk
from tests.codecs.blob_kit import write_blobs

channels = pytest.importorskip(
    "roverd.channels", reason="needs roverd (red-rover's format package), which is not installed"
)

pytestmark = pytest.mark.conformance
RNG = np.random.default_rng(23)


def values_of(spec: ChannelSpec, count: int) -> npt.NDArray[Any]:
    return RNG.integers(0, 120, (count, *spec.shape)).astype(spec.np_dtype)


def theirs(folder: Path, spec: ChannelSpec) -> Any:
    return channels.from_config(path=str(folder / spec.name), **spec.meta())


def record(folder: Path, spec: ChannelSpec, values: npt.NDArray[Any]) -> list[bytes]:
    """Write all values in messages of 1, 2, 3, ... samples; the encoded samples or messages."""
    writer = create_writer(folder, spec, PosixDisk(), 20.0)
    encoded, start, count = [], 0, 1
    while start < len(values):
        part = values[start : start + count]
        match spec.format:
            case "raw":
                frames = [part.tobytes()]
            case "lzma":
                frames = [lzma.compress(part.tobytes(), preset=1)]
            case "lzmaf":
                frames = [lzma.compress(v.tobytes(), preset=0) for v in part]
            case _:
                frames = [cv2.imencode(".jpg", v[..., ::-1])[1].tobytes() for v in part]
        sizes = np.array([len(f) for f in frames], np.uint32) if spec.variable else None
        writer.append(b"".join(frames), len(part), sizes)
        encoded += frames
        start, count = start + len(part), count + 1
    writer.finish()
    for file in writer.files:
        file.close()
    return encoded


SPECS = [
    ChannelSpec("iq", "raw", "i2", (4, 2, 3, 8)),
    ChannelSpec("acc", "raw", "f4", (3,)),
    ChannelSpec("valid", "raw", "u1", ()),
    ChannelSpec("mask", "lzma", "u1", (6, 5)),
    ChannelSpec("flags", "lzma", "u2", ()),
    ChannelSpec("rng", "lzmaf", "u2", (8, 16)),
    ChannelSpec("t_col", "lzmaf", "u8", (16,)),
    ChannelSpec("image.srggb10", "raw", "u2", (6, 8)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.format}-{s.name}")
def test_roverd_reads_ours(tmp_path: Path, spec: ChannelSpec) -> None:
    values = values_of(spec, 11)
    record(tmp_path, spec, values)
    channel = theirs(tmp_path, spec)
    np.testing.assert_array_equal(channel.read(), values)
    np.testing.assert_array_equal(np.concatenate(list(channel.stream(batch=1))), values)
    if spec.shape:  # its stream() of single scalars fails a check of its own
        np.testing.assert_array_equal(np.stack(list(channel.stream())), values)
    for start, count in ((0, 1), (3, 4), (10, 1)):
        np.testing.assert_array_equal(channel.read(start, count), values[start : start + count])


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.format}-{s.name}")
def test_we_read_roverds(tmp_path: Path, spec: ChannelSpec) -> None:
    values = values_of(spec, 11)
    theirs(tmp_path, spec).write(values)
    with open_channel(tmp_path, spec.name, spec.meta()) as channel:
        assert len(channel) == 11
        np.testing.assert_array_equal(channel.read(0, 11), values)
        for index in (10, 0, 5, -3):
            np.testing.assert_array_equal(channel[index], values[index])


VIDEO = ChannelSpec("video.avi", "mjpg", "u1", (48, 64, 3))


def pictures(count: int) -> npt.NDArray[Any]:
    """Smooth pictures of one RGB colour each, all different."""
    colours = np.stack([np.arange(count) * 20, 220 - np.arange(count) * 15, np.full(count, 40)], 1)
    return np.broadcast_to(colours[:, None, None], (count, 48, 64, 3)).astype(np.uint8)


def test_roverd_reads_our_video(tmp_path: Path) -> None:
    values = pictures(9)
    record(tmp_path, VIDEO, values)
    channel = theirs(tmp_path, VIDEO)
    with open_channel(tmp_path, "video.avi", VIDEO.meta()) as ours:
        decoded = ours.read(0, 9).astype(int)
    shown = np.stack(list(channel.stream())).astype(int)  # its read(k) gives frame k - 1
    assert shown.shape == (9, 48, 64, 3)
    assert np.abs(shown - decoded).max() <= 4  # the same colour order, another JPEG decoder
    assert np.abs(shown - values).max() <= 8
    assert np.abs(channel.read(5, 2).astype(int) - decoded[4:6]).max() <= 4


def test_we_read_roverds_video(tmp_path: Path) -> None:
    values = pictures(9)
    channel = theirs(tmp_path, VIDEO)
    channel.write(values)
    shown = np.stack(list(channel.stream())).astype(int)
    with open_channel(tmp_path, "video.avi", VIDEO.meta()) as ours:
        assert len(ours) == 9
        assert np.abs(ours.read(0, 9).astype(int) - shown).max() <= 4
        assert np.abs(ours[7].astype(int) - values[7]).max() <= 8


@pytest.mark.parametrize("compress", [False, True])
def test_npz_both_ways(tmp_path: Path, compress: bool) -> None:
    values = RNG.normal(size=(5, 3, 4)).astype(np.float32)
    meta = write_blobs(tmp_path, "ours", "npz", list(values), compress=compress)
    channel = channels.from_config(path=str(tmp_path / "ours"), **meta)
    np.testing.assert_array_equal(channel.read(), values)
    np.testing.assert_array_equal(np.stack(list(channel.stream())), values)
    channels.from_config(path=str(tmp_path / "theirs"), **meta, args={"compress": compress}).write(
        values
    )
    with open_channel(tmp_path, "theirs", meta) as ours:
        np.testing.assert_array_equal(ours.read(0, 5), values)


def test_jpg_both_ways(tmp_path: Path) -> None:
    values = pictures(5)
    jpegs = [cv2.imencode(".jpg", v[..., ::-1])[1].tobytes() for v in values]
    meta = write_blobs(tmp_path, "ours", "jpg", jpegs)
    channel = channels.from_config(path=str(tmp_path / "ours"), **meta)
    with open_channel(tmp_path, "ours", meta) as ours:
        np.testing.assert_array_equal(channel.read(), ours.read(0, 5))
    other = channels.from_config(path=str(tmp_path / "theirs"), **meta)
    other.write(values)
    with open_channel(tmp_path, "theirs", meta) as ours:
        np.testing.assert_array_equal(ours.read(0, 5), other.read())
        assert np.abs(ours.read(0, 5).astype(int) - values).max() <= 8
