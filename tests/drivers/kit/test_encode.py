"""Encoded payloads decode to what went in, and a changed stream is told apart."""

from __future__ import annotations

import lzma
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from drivers.kit.driver import Sample
from drivers.kit.encode import Encoder
from recorder.bus.wire import Kind, Message, check_data
from recorder.codecs.jpeg import jpeg_size
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.codecs.xz import JUDGE_EVERY, XzCompressor
from recorder.common.errors import StreamChangedError

DTYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]
Array = npt.NDArray[Any]


def encode(spec: StreamSpec, data: dict[str, Any], count: int) -> tuple[list[bytes], list[Array]]:
    """Encode, and hold the result against the wire's own rules."""
    encoder = Encoder(spec)
    times = np.arange(count, dtype=np.int64)
    frames, sizes = encoder.encode(Sample(spec.name, times, data))
    encoder.close()
    message = Message(
        Kind.DATA, spec.name, count=count, t_mono_ns=times, sizes=sizes, frames=frames
    )
    check_data(message, spec)
    return [bytes(frame) for frame in frames], list(sizes)


def parts(frame: bytes, sizes: Array) -> list[bytes]:
    ends = np.cumsum(sizes).tolist()
    return [frame[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize(
    ("channels", "rate_hz", "pools"),
    [(2, None, 1), (1, None, 0), (2, 0.001, 0)],
    ids=["no time to spare", "one channel", "a period of minutes"],
)
def test_channels_share_two_threads_where_one_is_too_slow(
    channels: int, rate_hz: float | None, pools: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def make_pool(threads: int, name: str) -> ThreadPoolExecutor:
        made.append(threads)
        return ThreadPoolExecutor(threads, name)

    monkeypatch.setattr("drivers.kit.encode.ThreadPoolExecutor", make_pool)
    names = [f"c{k}" for k in range(channels)]
    spec = StreamSpec("s", tuple(ChannelSpec(n, "lzmaf", "u1", (8,)) for n in names), rate_hz)
    encoder = Encoder(spec)
    sample = Sample("s", np.array([0]), {n: np.arange(8, dtype="u1")[None] for n in names})
    first, second = encoder.encode(sample), encoder.encode(sample)
    encoder.close()
    assert made == [2] * pools
    assert [bytes(frame) for frame in first[0]] == [bytes(frame) for frame in second[0]]


@given(st.data())
def test_raw_and_xz_round_trip(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=3)))
    count = data.draw(st.integers(1, 4))
    values = data.draw(hnp.arrays("<" + dtype, (count, *shape)))
    delta = data.draw(st.booleans())
    channels = tuple(
        ChannelSpec(name, name, dtype, shape, delta=delta) for name in ("raw", "lzma", "lzmaf")
    )
    spec = StreamSpec("s", channels)
    frames, sizes = encode(spec, dict.fromkeys(("raw", "lzma", "lzmaf"), values), count)
    assert frames[0] == values.tobytes()
    assert lzma.decompress(frames[1], lzma.FORMAT_XZ) == values.tobytes()
    each = [lzma.decompress(part, lzma.FORMAT_XZ) for part in parts(frames[2], sizes[0])]
    assert each == [np.ascontiguousarray(value).tobytes() for value in values]


def test_arrays_that_are_not_contiguous() -> None:
    spec = StreamSpec("s", (ChannelSpec("a", "raw", "u2", (3, 4)), ChannelSpec("b", "lzmaf", "u2")))
    whole = np.arange(96, dtype="<u2").reshape(2, 4, 12)
    a = whole[:, ::-1, ::3][:, :3]
    b = np.arange(4, dtype="<u2")[::2]
    frames, sizes = encode(spec, {"a": a, "b": b}, 2)
    assert frames[0] == a.tobytes()
    assert [lzma.decompress(p) for p in parts(frames[1], sizes[0])] == [b"\0\0", b"\2\0"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_raw_array_is_sent_without_a_copy(dtype: str) -> None:
    values = np.arange(2 * 5000).reshape(2, 5000).astype("<" + dtype)
    spec = StreamSpec("s", (ChannelSpec("a", "raw", dtype, (5000,)),))
    frames, _ = Encoder(spec).encode(Sample("s", np.arange(2), {"a": values}))
    assert bytes(frames[0]) == values.tobytes() and len(frames[0]) == values.nbytes
    assert np.shares_memory(np.frombuffer(frames[0], np.uint8), values)


@given(st.data())
def test_rows_are_packed_or_stored_and_come_back(data: st.DataObject) -> None:
    """Arrays of many rows: noise, ramps and zeros in bands that move from frame to frame."""
    dtype = data.draw(st.sampled_from(("u1", "u2", "u4")))
    rows = data.draw(st.integers(1, 40))
    columns = data.draw(st.sampled_from((1, 64, 300, 2500)))
    compressor = XzCompressor(np.dtype(dtype).itemsize, data.draw(st.booleans()))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    for _ in range(data.draw(st.integers(1, JUDGE_EVERY + 2))):
        values = rng.integers(0, np.iinfo(dtype).max, (rows, columns), dtype)
        begin, end = sorted(rng.integers(0, rows + 1, 2))
        values[begin:end] = rng.integers(0, 2) * np.arange(columns, dtype=dtype)
        values[: rng.integers(0, rows + 1)] = 0
        stream = compressor.compress(values)
        assert lzma.decompress(stream, lzma.FORMAT_XZ) == values.tobytes()


def test_noise_is_stored_and_what_packs_is_packed() -> None:
    compressor = XzCompressor(2, delta=False)
    rng = np.random.default_rng(1)
    values = np.repeat(np.arange(128, dtype="<u2"), 1024).reshape(128, 1024)
    values[32:64] = rng.integers(0, 65536, (32, 1024))
    for k in range(3):
        size = len(compressor.compress(np.roll(values, k, axis=1)))
        assert 65_536 < size < 65_536 + 4096, "the noise whole, hardly anything for the rest"


def test_a_streams_setting_says_what_is_worth_packing() -> None:
    letters = np.random.default_rng(1).integers(0, 16, (1, 64, 1024), np.uint8)  # half the bits
    sizes = []
    for worth in (0.42, 1.0):
        channels = (ChannelSpec("a", "lzmaf", "u1", (64, 1024)),)
        frames, _ = encode(
            StreamSpec("s", channels, settings={"xz_worth": worth}), {"a": letters}, 1
        )
        assert lzma.decompress(frames[0]) == letters.tobytes()
        sizes.append(len(frames[0]))
    assert sizes[0] > letters.nbytes > 1.5 * sizes[1]


def test_rows_are_judged_again() -> None:
    compressor = XzCompressor(1, delta=False)
    noise = np.random.default_rng(1).integers(0, 256, (16, 4096), np.uint8)
    flat = np.full_like(noise, 7)
    compressor.compress(noise)
    sizes = [len(compressor.compress(flat)) for _ in range(JUDGE_EVERY)]
    assert min(sizes[:-1]) > flat.nbytes and sizes[-1] < 200
    assert len(compressor.compress(flat)) < 200


def test_a_delta_over_neighbours_pays_for_ranges() -> None:
    rng = np.random.default_rng(1)
    walls = np.repeat(rng.integers(2000, 60_000, (16, 16)), 64, axis=1)
    ranges = (walls + np.arange(1024) * 3 + rng.integers(0, 3, (16, 1024))).astype("<u2")
    sizes = []
    for delta in (False, True):
        channel = ChannelSpec("rng", "lzmaf", "u2", (16, 1024), delta=delta)
        frames, _ = encode(StreamSpec("s", (channel,)), {"rng": ranges[None]}, 1)
        assert lzma.decompress(frames[0]) == ranges.tobytes()
        sizes.append(len(frames[0]))
    assert sizes[1] < 0.8 * sizes[0]


def image(height: int, width: int) -> npt.NDArray[np.uint8]:
    ramp = np.add.outer(np.arange(height), np.arange(width)) % 256
    return np.stack([ramp, ramp[::-1], 255 - ramp], axis=-1).astype(np.uint8)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 13), (48, 64), (100, 30)])
def test_images_come_back_nearly_and_tell_their_size(height: int, width: int) -> None:
    import cv2

    spec = StreamSpec("camera", (ChannelSpec("v", "mjpg", "u1", (height, width, 3)),))
    images = np.stack([image(height, width), image(height, width)[::-1]])
    frames, sizes = encode(spec, {"v": images}, 2)
    for part, original in zip(parts(frames[0], sizes[0]), images, strict=True):
        assert jpeg_size(part) == (height, width)
        decoded: Any = cv2.imdecode(np.frombuffer(part, np.uint8), cv2.IMREAD_COLOR)
        assert np.abs(decoded.astype(int) - original).mean() < 6
    again, _ = encode(spec, {"v": parts(frames[0], sizes[0])}, 2)
    assert again == frames  # encoded frames pass as they are


def test_quality_is_the_streams_setting() -> None:
    sizes = []
    for quality in (20, 95):
        channels = (ChannelSpec("v", "mjpg", "u1", (64, 64, 3)),)
        spec = StreamSpec("camera", channels, settings={"jpeg_quality": quality})
        noise = np.random.default_rng(1).integers(0, 255, (1, 64, 64, 3)).astype(np.uint8)
        sizes.append(len(encode(spec, {"v": noise}, 1)[0][0]))
    assert sizes[0] < sizes[1] / 2


RAW = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)), ChannelSpec("n", "lzmaf", "u2")))
GOOD = {"acc": np.zeros((2, 3), "<f4"), "n": np.zeros(2, "<u2")}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"acc": np.zeros((2, 4), "<f4")}, ["imu/acc", "[4]", "[3]"]),
        ({"acc": np.zeros((2, 3, 1), "<f4")}, ["imu/acc", "[3, 1]"]),
        ({"acc": np.zeros((3, 3), "<f4")}, ["imu/acc", "3 x", "2 x"]),
        ({"acc": np.zeros((2, 3), "<f8")}, ["imu/acc", "f8", "f4"]),
        ({"acc": np.zeros((2, 3), ">f4")}, ["imu/acc"]),
        ({"n": np.zeros(2, "<i2")}, ["imu/n", "i2", "u2"]),
        ({"acc": [b"x" * 12, b"y" * 12]}, ["imu/acc", "encoded", "raw"]),
        ({"n": [b"one"]}, ["imu/n", "1 encoded frames for 2 samples"]),
        ({"more": np.zeros(2)}, ["imu", "more"]),
    ],
)
def test_a_changed_stream_is_named(change: dict[str, Any], names: list[str]) -> None:
    encode(RAW, GOOD, 2)
    with pytest.raises(StreamChangedError) as caught:
        Encoder(RAW).encode(Sample("imu", np.arange(2), GOOD | change))
    assert all(name in str(caught.value) for name in names), str(caught.value)


def test_a_missing_channel_is_named() -> None:
    with pytest.raises(StreamChangedError, match=r"\['n'\].*\['acc', 'n'\]"):
        Encoder(RAW).encode(Sample("imu", np.arange(2), {"n": GOOD["n"]}))


def test_an_encoded_image_of_another_size_is_a_change() -> None:
    import cv2

    spec = StreamSpec("camera", (ChannelSpec("v", "mjpg", "u1", (48, 64, 3)),))
    for wrong in (image(64, 48), image(48, 65)):
        data = cv2.imencode(".jpg", wrong)[1].tobytes()
        with pytest.raises(StreamChangedError, match=r"camera/v: a frame of"):
            Encoder(spec).encode(Sample("camera", np.arange(1), {"v": [data]}))
    with pytest.raises(StreamChangedError, match="camera/v"):
        Encoder(spec).encode(Sample("camera", np.arange(1), {"v": [b"no jpeg"]}))


def jpeg(progressive: bool = False) -> bytes:
    import cv2

    flags = [cv2.IMWRITE_JPEG_PROGRESSIVE, int(progressive)]
    data: bytes = cv2.imencode(".jpg", image(30, 50), flags)[1].tobytes()
    return data


@pytest.mark.parametrize("progressive", [False, True])
def test_the_size_of_a_real_jpeg_cut_anywhere(progressive: bool) -> None:
    data = jpeg(progressive)
    found = [jpeg_size(data[:n]) for n in range(len(data) + 1)]
    first = found.index((30, 50))
    assert set(found[:first]) == {None} and set(found[first:]) == {(30, 50)}
    assert first < 700  # as soon as the frame header is there


def test_fill_bytes_comments_and_tables_before_the_frame_header() -> None:
    data = jpeg()
    comment = b"\xff\xfe\x00\x06\xff\xc0ab"  # looks like a frame header inside
    assert jpeg_size(data[:2] + comment + b"\xff\xff\xff" + data[2:]) == (30, 50)


@given(st.binary(max_size=300))
@example(b"\xff\xd8\xff\xc0")
@example(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 100)
@example(b"\xff\xd8" + b"\xff" * 300)
@example(b"\xff\xd8\xff\xc0\x00\x00\x00\x00\x00\x00")
def test_hostile_bytes_have_a_size_or_none(data: bytes) -> None:
    for candidate in (data, b"\xff\xd8\xff" + data):
        size = jpeg_size(candidate)
        assert size is None or all(0 <= n < 65536 for n in size)
