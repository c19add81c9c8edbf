"""xz streams unpacked block by block hold what liblzma finds in them, or are left to it."""

from __future__ import annotations

import lzma
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.codecs.xz import BlockUnpacker, XzCompressor

ROWS, COLUMNS = 96, 256
_LZMA2 = {"id": lzma.FILTER_LZMA2, "preset": 0}


def sweep(seed: int, first: int, stop: int, noise: int) -> npt.NDArray[np.uint32]:
    """Rows of zeros around some that change little, or are noise."""
    rng = np.random.default_rng(seed)
    values = np.zeros((ROWS, COLUMNS), np.uint32)
    values[first:stop] = 9_000 + rng.integers(0, 4, (stop - first, COLUMNS)).cumsum(axis=1)
    noisy = values[first : min(first + noise, stop)]
    noisy[:] = rng.integers(0, 2**32, noisy.shape)
    return values


def unpacked(unpacker: BlockUnpacker, stream: bytes, size: int) -> bytes | None:
    out = np.full(size, 0xAA, np.uint8)
    return out.tobytes() if unpacker.unpack(stream, out) else None


@given(
    seeds=st.lists(st.integers(0, 99), min_size=1, max_size=3),
    bounds=st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)),
    noise=st.integers(0, ROWS),
    delta=st.booleans(),
)
def test_what_drivers_write_is_unpacked(
    seeds: list[int], bounds: tuple[int, int], noise: int, delta: bool
) -> None:
    """Several sweeps: blocks of zeros are known from the second one on."""
    unpacker, compressor = BlockUnpacker(), XzCompressor(4, delta)
    for seed in seeds:
        values = sweep(seed, min(bounds), max(bounds), noise)
        stream = compressor.compress(values)
        assert lzma.decompress(stream) == values.tobytes()
        assert unpacked(unpacker, stream, values.nbytes) == values.tobytes()


def test_blocks_of_zeros_are_told_by_all_their_bytes() -> None:
    """One of another length, and one that is zeros but for its last value."""
    unpacker, compressor = BlockUnpacker(), XzCompressor(4, delta=False)
    for first in (60, 61, 60, 30):
        values = sweep(first, first, ROWS, 0)
        stream = compressor.compress(values)
        assert unpacked(unpacker, stream, values.nbytes) == values.tobytes()
    nearly = np.zeros(60 * COLUMNS, np.uint32)
    nearly[-1] = 1
    for values in (np.zeros_like(nearly), nearly, nearly):
        stream = lzma.compress(values.tobytes(), check=lzma.CHECK_CRC32, filters=[_LZMA2])
        assert unpacked(unpacker, stream, values.nbytes) == values.tobytes()


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({"check": lzma.CHECK_CRC32, "filters": [{"id": lzma.FILTER_DELTA, "dist": 4}, _LZMA2]}, 1),
        ({"check": lzma.CHECK_CRC32, "preset": 9}, 1),
        ({"check": lzma.CHECK_CRC64}, 0),
        ({"check": lzma.CHECK_NONE}, 0),
        ({"check": lzma.CHECK_CRC32, "filters": [{"id": lzma.FILTER_X86}, _LZMA2]}, 0),
        ({"format": lzma.FORMAT_ALONE}, 0),
    ],
)
def test_streams_of_others(given: dict[str, Any], known: bool) -> None:
    data = sweep(0, 10, 50, 5).tobytes()
    stream = lzma.compress(data, **given)
    assert unpacked(BlockUnpacker(), stream, len(data)) == (data if known else None)
    assert unpacked(BlockUnpacker(), stream, len(data) - 1) is None
    assert unpacked(BlockUnpacker(), stream, len(data) + 1) is None
    assert unpacked(BlockUnpacker(), stream + stream, 2 * len(data)) is None


def test_no_bytes_at_all() -> None:
    assert unpacked(BlockUnpacker(), lzma.compress(b"", check=lzma.CHECK_CRC32), 0) == b""
    assert unpacked(BlockUnpacker(), b"", 0) is None


@given(seed=st.integers(0, 9), at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_damaged_stream_is_left_to_liblzma(seed: int, at: int, flip: int) -> None:
    values = sweep(seed, 40, 80, 20)
    unpacker, compressor = BlockUnpacker(), XzCompressor(4, delta=True)
    stream = compressor.compress(values)
    unpacker.unpack(stream, np.empty(values.nbytes, np.uint8))
    damaged = bytearray(stream)
    damaged[at % len(stream)] ^= flip
    assert unpacked(unpacker, bytes(damaged), values.nbytes) is None


def test_an_index_that_lies_about_zeros_is_left_to_liblzma() -> None:
    unpacker, size = BlockUnpacker(), 61_440
    stream = lzma.compress(bytes(size), check=lzma.CHECK_CRC32, filters=[_LZMA2])
    assert unpacked(unpacker, stream, size) == bytes(size)
    at = stream.rindex(b"\x80\xe0\x03")  # 61440, seven bits a byte
    start = len(stream) - 12 - (int.from_bytes(stream[-8:-4], "little") + 1) * 4
    index = stream[start:at] + b"\x81" + stream[at + 1 : -16]
    lie = stream[:start] + index + zlib.crc32(index).to_bytes(4, "little") + stream[-12:]
    assert unpacked(unpacker, lie, size + 1) is None
    with pytest.raises(lzma.LZMAError):
        lzma.decompress(lie)


def test_what_is_stored_is_checked() -> None:
    """Noise that is not compressed has nothing but its CRC."""
    values = sweep(0, 16, 80, 64)
    stream = XzCompressor(4, delta=False).compress(values)
    at = stream.index(values[40].tobytes())
    damaged = stream[: at + 7] + bytes([stream[at + 7] ^ 1]) + stream[at + 8 :]
    assert unpacked(BlockUnpacker(), stream, values.nbytes) == values.tobytes()
    assert unpacked(BlockUnpacker(), damaged, values.nbytes) is None


@given(seed=st.integers(0, 9), cut=st.integers(0, 10**6))
def test_a_cut_stream_is_left_to_liblzma(seed: int, cut: int) -> None:
    values = sweep(seed, 40, 80, 20)
    stream = XzCompressor(4, delta=False).compress(values)
    assert unpacked(BlockUnpacker(), stream[: cut % len(stream)], values.nbytes) is None


def test_packed_zeros_are_kept_and_their_number_is_bounded() -> None:
    """Sweeps of one shape have few sizes of zeros; each is packed once."""
    compressor, most = XzCompressor(1, delta=False), 0
    for size in range(1, 601):
        values = np.zeros((2 * 16, size), np.uint8)
        compressor.compress(values)
        kept = dict(compressor._zeros)
        compressor.compress(values)
        assert all(compressor._zeros[k] is kept[k] for k in kept)
        most = max(most, len(kept))
    assert 200 < most <= 256
