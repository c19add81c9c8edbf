"""The contract suite over every recorded format, and what is special to each."""

from __future__ import annotations

import itertools
import lzma
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.codecs import CHANNEL_FORMATS, RECORDED_FORMATS, Framing
from recorder.codecs.storage import (
    CHANNEL_STORAGE,
    create_writer,
    measure,
    open_channel,
    resume_writer,
)
from recorder.codecs.storage.avi import AviLayout
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, ProtocolError, StorageError
from recorder.common.files import PosixDisk
from tests.codecs.storage_contract import ChannelContract, Message
from tests.codecs.test_h264_storage import TestH264 as H264Suite
from tests.codecs.test_points import TestPoints as PointsSuite
from tests.codecs.test_shuffling import TestZstdf as ZstdfSuite
from tests.codecs.test_variable import TestBytes as BytesSuite

HEADER_BYTES = AviLayout.of(40, 24, 20.0).header_bytes


def chunks(data: bytes, parts: int) -> list[bytes]:
    step = len(data) // parts
    return [data[i * step : (i + 1) * step] for i in range(parts)]


class _Arrays(ChannelContract):
    def array(self, count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        values = rng.integers(0, 200, (count, *self.spec.shape))
        return values.astype(self.spec.np_dtype)


class TestRaw(_Arrays):
    spec = ChannelSpec("acc", "raw", "f4", (3,))

    def message(self, count: int, rng: np.random.Generator) -> Message:
        values = self.array(count, rng)
        frame = values.tobytes()
        return Message(frame, None, values, chunks(frame, count))

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        return np.fromfile(folder / "acc", "<f4").reshape(-1, 3)

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        return cut // 12


class TestRawScalar(TestRaw):
    spec = ChannelSpec("flag", "raw", "u2", ())

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        return np.fromfile(folder / "flag", "<u2")

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        return cut // 2


class TestRawPictures(TestRaw):
    """Values of a sensor, which no codec touches."""

    spec = ChannelSpec("image.srggb10", "raw", "u2", (4, 6))

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        return np.fromfile(folder / "image.srggb10", "<u2").reshape(-1, 4, 6)

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        return cut // 48


class TestLzma(_Arrays):
    spec = ChannelSpec("mask", "lzma", "u2", (2, 5))
    more_from_cuts = True  # samples of the torn stream that unpack

    def message(self, count: int, rng: np.random.Generator) -> Message:
        values = self.array(count, rng)
        frame = lzma.compress(values.tobytes(), preset=0)
        return Message(frame, None, values, chunks(values.tobytes(), count))

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        with lzma.open(folder / "mask") as file:
            return np.frombuffer(file.read(), "<u2").reshape(-1, 2, 5)

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        ends = np.cumsum([len(m.frame) for m in messages])
        return sum(m.count for m, end in zip(messages, ends, strict=True) if end <= cut)


FILTERS = [
    {"id": lzma.FILTER_DELTA, "dist": 2},
    {"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 65536, "nice_len": 4},
]


class TestLzmaf(_Arrays):
    spec = ChannelSpec("rng", "lzmaf", "u2", (4, 6), delta=True)

    def message(self, count: int, rng: np.random.Generator) -> Message:
        values = self.array(count, rng)
        encoded = [lzma.compress(v.tobytes(), filters=FILTERS) for v in values]
        sizes = np.array([len(e) for e in encoded], np.uint32)
        return Message(b"".join(encoded), sizes, values, encoded)

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        data = (folder / "rng").read_bytes()
        ends = np.fromfile(folder / "rng_i", "<u8").tolist()
        assert ends[0] == 0
        assert ends[-1] == len(data)
        frames = [lzma.decompress(data[a:b]) for a, b in itertools.pairwise(ends)]
        return np.frombuffer(b"".join(frames), "<u2").reshape(-1, 4, 6)

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        if file == "rng_i":
            return max(0, cut // 8 - 1)
        ends = np.cumsum([len(e) for m in messages for e in m.encoded])
        return int((ends <= cut).sum())


def rgb(jpeg: npt.NDArray[Any]) -> npt.NDArray[Any]:
    image: npt.NDArray[Any] | None = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
    assert image is not None
    return image[..., ::-1]


class TestMjpg(ChannelContract):
    spec = ChannelSpec("video.avi", "mjpg", "u1", (24, 40, 3))
    counts = (1, 2, 1)

    def message(self, count: int, rng: np.random.Generator) -> Message:
        encoded, values = [], []
        for _ in range(count):
            image = cv2.resize(rng.integers(0, 256, (3, 5, 3)).astype(np.uint8), (40, 24))
            jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 40])[1].tobytes()
            encoded.append(jpeg)
            values.append(rgb(np.frombuffer(jpeg, np.uint8)))
        sizes = np.array([len(e) for e in encoded], np.uint32)
        return Message(b"".join(encoded), sizes, np.stack(values), encoded)

    def assert_decoded(self, decoded: npt.NDArray[Any], values: npt.NDArray[Any]) -> None:
        """JPEG loses a little; pictures are encoded from BGR and decoded to RGB."""
        assert np.abs(decoded[..., ::-1].astype(int) - values).mean() < 6

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        """FFmpeg finds the frames, imdecode gives their pixels."""
        video = cv2.VideoCapture(
            str(folder / "video.avi"), cv2.CAP_FFMPEG, [cv2.CAP_PROP_FORMAT, -1]
        )
        frames = []
        while (packet := video.read())[0]:
            frames.append(rgb(packet[1].reshape(-1)))
        return np.stack(frames)

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        if cut < HEADER_BYTES:
            return None
        whole, at = 0, HEADER_BYTES
        for size in (len(e) for m in messages for e in m.encoded):
            whole += at + 8 + size <= cut
            at += 8 + size + size % 2
        return whole

    def cuts(self, file: str, size: int) -> list[int]:
        return [
            *range(300),
            *range(300, HEADER_BYTES - 50, 997),
            *range(HEADER_BYTES - 50, size),
        ]


# --- the registries


def test_every_format_has_a_codec_and_a_storage() -> None:
    assert CHANNEL_FORMATS.keys() == CHANNEL_STORAGE.keys()
    assert all(found.name == name for name, found in CHANNEL_FORMATS.items())


def test_every_recorded_format_is_in_this_suite() -> None:
    ours = [TestRaw, TestLzma, TestLzmaf, TestMjpg]
    suites = [*ours, H264Suite, BytesSuite, PointsSuite, ZstdfSuite]
    assert {suite.spec.format for suite in suites} == set(RECORDED_FORMATS)
    assert {found.recorded_as for found in CHANNEL_FORMATS.values()} == set(RECORDED_FORMATS)


@pytest.mark.parametrize("name", sorted(CHANNEL_FORMATS.keys() - {"h264", "bytes", "points"}))
def test_what_a_format_encodes_it_decodes(name: str) -> None:
    """Also of formats that are not recorded, whose frames are files."""
    codec, rng = CHANNEL_FORMATS[name], np.random.default_rng(2)
    values = cv2.resize(rng.integers(0, 256, (3, 5, 3)).astype(np.uint8), (40, 24))[None]
    assert codec.fits(values.dtype, values.shape[1:])
    out = np.empty_like(values)
    together = codec.framing in (Framing.PLAIN, Framing.JOINT)
    (frame,) = codec.encode(values)
    codec.decoder()(frame, out if together else out[0], "here")
    if codec.picture:
        assert np.abs(out[..., ::-1].astype(int) - values).mean() < 6
        assert codec.shape_fault(bytes(frame), (24, 40, 3)) is None
        assert "a frame of (40, 24)" in str(codec.shape_fault(bytes(frame), (24, 41, 3)))
        assert codec.hidden_fault(bytes(frame)) is None
        assert codec.hidden_fault(bytes(frame[:-2])) == "the JPEG is cut short"
    else:
        np.testing.assert_array_equal(out, values)
    with pytest.raises(FormatError, match="here"):
        codec.decoder()(b"none of its frames", out, "here")


@pytest.mark.parametrize("name", ["zip", "", "RAW", "mjpeg"])
def test_an_unknown_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProtocolError, match=f"channel 'acc': format '{name}' is not recorded"):
        ChannelSpec("acc", name, "u1")
    known = ", ".join(CHANNEL_FORMATS)
    with pytest.raises(FormatError, match=f"channel 'acc': format '{name}' is none of {known}"):
        open_channel(tmp_path, "acc", {"format": name, "type": "u1", "shape": []})


@pytest.mark.parametrize("name", sorted(CHANNEL_FORMATS.keys() - set(RECORDED_FORMATS)))
def test_a_format_that_is_only_read_cannot_be_declared(name: str) -> None:
    with pytest.raises(ProtocolError, match=f"format '{name}' is not recorded"):
        ChannelSpec("acc", name, "u1", (4, 4, 3))


# --- special to one format


@given(
    sizes=st.lists(st.lists(st.integers(0, 70), min_size=1, max_size=3), max_size=6),
    reads=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_lzma_samples_may_span_streams(
    tmp_path: Path, sizes: list[list[int]], reads: list[int]
) -> None:
    """Streams of any length, also of several blocks' worth of nothing, as roverd may make them."""
    values = np.arange(sum(map(sum, sizes)), dtype=np.uint8)
    position, path = 0, tmp_path / "mask"
    with path.open("wb") as file:
        for stream in sizes:
            packer = lzma.LZMACompressor()
            for size in stream:
                file.write(packer.compress(values[position : position + size].tobytes()))
                position += size
            file.write(packer.flush())
    n = len(values) // 6
    meta = {"format": "lzma", "type": "u1", "shape": [2, 3], "desc": ""}
    with open_channel(tmp_path, "mask", meta, partial=True) as channel:
        assert len(channel) == n
        assert channel.tail_bytes == len(values) % 6
        expected = values[: 6 * n].reshape(-1, 2, 3)
        for read in reads:
            if n:
                np.testing.assert_array_equal(channel[read % n], expected[read % n])
        np.testing.assert_array_equal(channel.read(0, n), expected)


def test_lzma_of_one_large_stream(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 3, (50, 64, 1024)).astype("<u2")  # 6.5 MB
    with lzma.open(tmp_path / "mask", "wb", preset=0) as file:
        file.write(values.tobytes())
    meta = {"format": "lzma", "type": "u2", "shape": [64, 1024], "desc": ""}
    with open_channel(tmp_path, "mask", meta) as channel:
        for index in (49, 0, 30, 31, 2):
            np.testing.assert_array_equal(channel[index], values[index])


def test_lzma_damaged_inside_names_the_sample(tmp_path: Path) -> None:
    suite = TestLzma()
    messages = suite.messages()
    suite.write(tmp_path, messages)
    data = bytearray((tmp_path / "mask").read_bytes())
    data[len(messages[0].frame) + 30] ^= 0xFF  # in the second stream's block: samples 1 to 3
    (tmp_path / "mask").write_bytes(data)
    with suite.open(tmp_path) as channel:
        np.testing.assert_array_equal(channel[0], suite.values(messages)[0])
        with pytest.raises(FormatError, match=r"mask: sample [123]"):
            channel.read(1, 4)
        np.testing.assert_array_equal(channel[4], suite.values(messages)[4])


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (lzma.compress(bytes(47)), "sample 1"),
        (lzma.compress(bytes(49)), "sample 1"),
        (lzma.compress(bytes(1 << 24)), "sample 1"),
        (lzma.compress(bytes(48))[:-4], "sample 1"),
        (lzma.compress(bytes(48)) + b"\0", "sample 1"),
        (b"nonsense", "sample 1"),
    ],
)
def test_lzmaf_bad_sample_is_named(tmp_path: Path, frame: bytes, fault: str) -> None:
    suite = TestLzmaf()
    good = lzma.compress(bytes(48))
    sizes = np.array([len(good), len(frame)], np.uint32)
    writer = suite.create(tmp_path)
    writer.append(good + frame, 2, sizes)
    suite.close(writer)
    with suite.open(tmp_path) as channel:
        assert not channel[0].any()
        with pytest.raises(FormatError, match="rng: " + fault):
            channel[1]


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([1, 90], "rng_i: does not begin with 0"),
        ([0, 90, 90], "rng_i: entry 2 is 90"),
        ([0, 90, 50], "rng_i: entry 2 is 50"),
        ([0, 1 << 63], "its index ends at"),
        ([], "rng_i: 0 bytes are not u8 offsets"),
    ],
)
def test_lzmaf_bad_index_is_named(tmp_path: Path, entries: list[int], fault: str) -> None:
    (tmp_path / "rng").write_bytes(bytes(90))
    np.array(entries, "<u8").tofile(tmp_path / "rng_i")
    with pytest.raises(FormatError, match=fault):
        TestLzmaf().open(tmp_path)


@pytest.mark.parametrize(("entries", "length"), [([0, 40], 8), ([7, 40], 0), ([], 0)])
def test_lzmaf_samples_without_a_whole_index_are_cut(
    tmp_path: Path, entries: list[int], length: int
) -> None:
    (tmp_path / "rng").write_bytes(bytes(90))  # no xz streams
    np.array(entries, "<u8").tofile(tmp_path / "rng_i")
    extent = measure(tmp_path, TestLzmaf.spec, 0)
    assert extent.samples == 0
    assert extent.cut(0) == (0, {"rng": 0, "rng_i": length})


def test_lzmaf_resume_wants_lengths_of_one_sample(tmp_path: Path) -> None:
    suite = TestLzmaf()
    writer = suite.create(tmp_path)
    suite.extend(writer, suite.messages())
    lengths = suite.close(writer)
    for wrong in (
        {"rng": lengths["rng"] - 1, "rng_i": lengths["rng_i"]},
        {"rng": lengths["rng"], "rng_i": lengths["rng_i"] - 8},
        {"rng": lengths["rng"], "rng_i": lengths["rng_i"] - 3},
        {"rng": 5, "rng_i": 0},
        {"rng": 0, "rng_i": 3},
    ):
        with pytest.raises(StorageError, match="rng"):
            suite.resume(tmp_path, wrong)


@pytest.mark.parametrize("fmt", RECORDED_FORMATS)
def test_resume_at_nothing(tmp_path: Path, fmt: str) -> None:
    """A commit may come before a file's first bytes reached the kernel."""
    if fmt == "points":
        spec = PointsSuite.spec
    else:
        spec = ChannelSpec("c", fmt, "u1", (8,) if fmt == "bytes" else (8, 8, 3))
    files = create_writer(tmp_path, spec, PosixDisk(), None).files
    for file in files:
        file.close()
    expected = {f.path.name: f.path.read_bytes() for f in files}
    lengths = dict.fromkeys(expected, 0)
    for file in resume_writer(tmp_path, spec, PosixDisk(), None, lengths).files:
        file.close()
    assert {name: (tmp_path / name).read_bytes() for name in expected} == expected


@pytest.mark.parametrize(
    ("meta", "fault"),
    [
        ([], "not a mapping"),
        ({"type": "u1", "shape": []}, "has no 'format'"),
        ({"format": "zip", "type": "u1", "shape": []}, "'zip' is none of raw"),
        ({"format": "raw", "type": "u1"}, "has no 'shape'"),
        ({"format": "raw", "type": "u1", "shape": [0]}, "shape"),
        ({"format": "raw", "type": "u1", "shape": 4}, "shape"),
        ({"format": "raw", "type": "u1", "shape": [True]}, "shape"),
        ({"format": "raw", "type": "u9", "shape": []}, "type 'u9'"),
        ({"format": "raw", "type": "O", "shape": []}, "type 'O'"),
        ({"format": "raw", "type": 1, "shape": []}, "type 1"),
        ({"format": "mjpg", "type": "u1", "shape": [4, 4]}, "mjpg holds u1"),
        ({"format": "jpg", "type": "u2", "shape": [4, 4, 3]}, "jpg holds u1"),
    ],
)
def test_bad_meta_entry(tmp_path: Path, meta: Any, fault: str) -> None:
    (tmp_path / "acc").write_bytes(b"")
    with pytest.raises(FormatError, match=f"acc.*{re.escape(fault)}"):
        open_channel(tmp_path, "acc", meta)


@pytest.mark.parametrize("name", ["", ".", "..", "../acc", "a/b"])
def test_channel_name_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(FormatError, match="cannot name a channel"):
        open_channel(tmp_path, name, {"format": "raw", "type": "u1", "shape": []})
