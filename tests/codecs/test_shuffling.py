"""The channel format ``zstdf``: the contract suite, its frames, and its index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.shuffling import pack_image, unpack_image
from recorder.codecs.storage import measure
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, ProtocolError
from recorder.session.stream import read_channels
from tests.codecs.storage_contract import ChannelContract, Message

SHAPE = (3, 5)
TYPES = ("u1", "<u2", "<i2", "<u4", "<i4", "<u8", "i1", "<i8")


def unpack_by_the_document(frame: bytes, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """The values of a frame, without any code of ours."""
    content = zstandard.ZstdDecompressor().decompress(frame)
    size = np.dtype(dtype).itemsize
    count = len(content) // size
    records = bytes(content[k * count + n] for n in range(count) for k in range(size))
    values = np.frombuffer(records, dtype.replace("i", "u")).reshape(shape or (1,)).copy()
    for at in range(1, values.shape[-1]):
        with np.errstate(over="ignore"):
            values[..., at] += values[..., at - 1]
    return values.view(dtype).reshape(shape)


class TestZstdf(ChannelContract):
    spec = ChannelSpec("rng", "zstdf", "u2", SHAPE)

    def message(self, count: int, rng: np.random.Generator) -> Message:
        values = rng.integers(0, 65536, (count, *SHAPE)).astype("<u2")
        encoded = [pack_image(value) for value in values]
        sizes = np.array([len(e) for e in encoded], np.uint32)
        return Message(b"".join(encoded), sizes, values, encoded)

    def oracle(self, folder: Path) -> npt.NDArray[Any]:
        data = (folder / "rng").read_bytes()
        rows = np.fromfile(folder / "rng_i", "<u8").reshape(-1, 2).tolist()
        assert sum(size for _, size in rows) == len(data)
        return np.stack(
            [unpack_by_the_document(data[at : at + size], SHAPE, "<u2") for at, size in rows]
        )

    def whole_samples(self, file: str, cut: int, messages: list[Message]) -> int | None:
        if file == "rng_i":
            return cut // 16
        ends = np.cumsum([len(e) for m in messages for e in m.encoded])
        return int((ends <= cut).sum())


@given(
    values=st.sampled_from(TYPES).flatmap(
        lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, max_side=9))
    )
)
def test_any_image_of_integers_is_given_back(values: npt.NDArray[Any]) -> None:
    frame = pack_image(values)
    out = np.empty_like(values)
    unpack_image(frame, out, "here")
    assert (out == values).all()
    assert (unpack_by_the_document(frame, values.shape, values.dtype.str) == values).all()


def test_an_image_that_is_a_view_is_given_back() -> None:
    values = np.arange(60, dtype="<u2").reshape(5, 12)[:, ::2].T
    out = np.empty(values.shape, "<u2")
    unpack_image(pack_image(values), out, "here")
    assert (out == values).all()


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (b"", "is no packed image"),
        (b"no frame at all", "is no packed image"),
        (pack_image(np.zeros(7, "<u2")), "14 bytes are packed where 30 are declared"),
        (pack_image(np.zeros(SHAPE, "<u2"))[:-1], "here: "),
        (pack_image(np.zeros(SHAPE, "<u2"))[:-1] + b"x", "here: "),
        (pack_image(np.zeros(SHAPE, "<u2")) + b"x", "here: "),
    ],
)
def test_a_damaged_frame_is_named(frame: bytes, fault: str) -> None:
    with pytest.raises(FormatError, match=f"here: .*{fault}" if fault != "here: " else fault):
        CHANNEL_FORMATS["zstdf"].decoder()(frame, np.empty(SHAPE, "<u2"), "here")


@given(data=st.binary(max_size=80))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    for head in (b"", zstandard.FRAME_HEADER, pack_image(np.zeros(SHAPE, "<u2"))[:9]):
        with pytest.raises(FormatError, match="here"):
            unpack_image(head + data, np.empty(SHAPE, "<u2"), "here")


def test_only_integers_can_be_declared() -> None:
    with pytest.raises(ProtocolError, match="zstdf holds integers"):
        ChannelSpec("rng", "zstdf", "f4", SHAPE)


def test_roverd_sees_the_index_and_readers_the_channel(tmp_path: Path) -> None:
    spec = StreamSpec("lidar", (TestZstdf.spec,))
    files = spec.meta_files()
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert "rng" not in files["meta.json"] and files["meta.json"]["rng_i"]["format"] == "raw"
    assert read_channels(tmp_path)["rng"]["format"] == "zstdf"


def test_a_tail_that_does_not_unpack_is_not_whole(tmp_path: Path) -> None:
    suite = TestZstdf()
    messages = suite.messages()
    suite.write(tmp_path, messages)
    data = bytearray((tmp_path / "rng").read_bytes())
    data[-1] ^= 1
    (tmp_path / "rng").write_bytes(bytes(data))
    count = sum(m.count for m in messages)
    assert measure(tmp_path, suite.spec, 0).samples == count - 1
    assert measure(tmp_path, suite.spec, count).samples == count


@pytest.mark.parametrize(
    ("row", "values"), [(0, (1, 3)), (4, (0, 7)), (4, (999, 1)), (10, (2**63, 2**63)), (0, (0, 0))]
)
def test_a_wrong_index_is_named(tmp_path: Path, row: int, values: tuple[int, int]) -> None:
    suite = TestZstdf()
    suite.write(tmp_path, suite.messages())
    rows = np.fromfile(tmp_path / "rng_i", "<u8").reshape(-1, 2)
    rows[row] = values
    rows.tofile(tmp_path / "rng_i")
    with pytest.raises(FormatError, match=f"rng_i: row {row} is "):
        suite.open(tmp_path)
