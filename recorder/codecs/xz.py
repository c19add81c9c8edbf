"""xz streams of arrays (the .xz file format, 1.2), compressed and unpacked at little cost.

Any filter chain is legal, since readers take it from the stream (3.1), and so is a stream of
several blocks (2.2). The compressor uses this twice. Rows of zeros at an array's beginning and end,
which sweeps have, are compressed once and kept. Rows that xz would not bring below 0.42 of their
size are stored uncompressed: noise takes most of the time of xz and gains little.

The unpacker recognizes blocks of zeros, whose bytes are the same in every sweep. It unpacks other
blocks raw and checks them with zlib's CRC-32, which takes a third of the time of liblzma's::

    compressor, unpacker = XzCompressor(item_bytes=2, delta=True), BlockUnpacker()
    stream = compressor.compress(values)
    if not unpacker.unpack(stream, out):
        ...                              # use liblzma: it names the fault, or knows more kinds
"""

from __future__ import annotations

import functools
import lzma
import zlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError

HEADER_BYTES = FOOTER_BYTES = 12
HEADER_MAGIC, FOOTER_MAGIC = b"\xfd7zXZ\0", b"YZ"
_CHECK = lzma.CHECK_CRC32
_CRC_BYTES = 4
_FLAGS = bytes([0, _CHECK])
_HEADER = HEADER_MAGIC + _FLAGS + zlib.crc32(_FLAGS).to_bytes(_CRC_BYTES, "little")
_LZMA2, _DELTA = 0x21, 0x03
_LARGEST_DICTIONARY = 39
_CHUNK_BYTES = 1 << 16
_KEPT_BLOCKS = 256

GROUP_ROWS = 16
"""Rows that are compressed or stored together."""
WORTH = 0.42
"""Share of its size below which a group of rows is compressed; else it is stored."""
JUDGE_EVERY = 32
"""Number of arrays after which the groups of rows are judged again."""
_LEAST_GROUP_BYTES = 4096
_MANY_ZEROS = 64
"""Ratio of unpacked size to block size from which a block may be one of zeros."""


def xz_filters(item_bytes: int, delta: bool) -> list[dict[str, int]]:
    """Return the filter chain for arrays of one dtype.

    Tuned on sweeps of an OS-1-128: the match finder with the smallest tables and the shortest match
    length, a dictionary that fits the processor's cache, and literal contexts by the byte's place
    in a value. That takes 0.74 of the time and 0.97 of the size of preset 0.

    Args:
        item_bytes: size of a value.
        delta: apply a delta filter over neighbouring values first, where they change little.
    """
    wide = item_bytes > 1
    chain = [
        {
            "id": lzma.FILTER_LZMA2,
            "preset": 0,
            "mode": lzma.MODE_FAST,
            "mf": lzma.MF_HC3,
            "nice_len": 3,
            "depth": 1,
            "dict_size": 16 * 1024,
            "lc": 1 if wide else 3,
            "lp": 1 if wide else 0,
            "pb": 1 if wide else 0,
        }
    ]
    if delta:
        chain.insert(0, {"id": lzma.FILTER_DELTA, "dist": item_bytes})
    return chain


class XzCompressor:
    """Compressor of one channel's arrays, each to one whole xz stream.

    >>> compressor = XzCompressor(item_bytes=2, delta=True)
    >>> stream = compressor.compress(np.zeros((128, 1024), "<u2"))
    >>> len(lzma.decompress(stream))
    262144

    The same arrays in the same order give the same streams.

    Args:
        item_bytes, delta: as for `xz_filters`.
        worth: largest compressed share of their size at which rows are compressed; 1: always.
    """

    def __init__(self, item_bytes: int, delta: bool, worth: float = WORTH) -> None:
        self._limit = worth
        self._filters = xz_filters(item_bytes, delta)
        self._zeros: dict[int, _Block] = {}
        self._worth: list[bool] = []  # by group of rows, as last judged
        self._count = 0

    def compress(self, values: npt.NDArray[Any]) -> bytes:
        """Compress the array's bytes in C order to one xz stream."""
        values = np.ascontiguousarray(values)
        row_bytes = values.nbytes // len(values) if values.ndim > 1 and values.size else 0
        if GROUP_ROWS * row_bytes < _LEAST_GROUP_BYTES:
            return _join([self._compress_block(values.data)])
        first, stop = _find_used_rows(values)
        blocks = [self._make_zero_block(first * row_bytes)] if first else []
        if first < stop:
            blocks += self._split_groups(values, first, stop)
        if stop < len(values):
            blocks.append(self._make_zero_block((len(values) - stop) * row_bytes))
        return _join(blocks)

    def _split_groups(self, values: npt.NDArray[Any], first: int, stop: int) -> list[_Block]:
        """Return the rows from `first` to `stop` as blocks, each compressed or stored."""
        if len(self._worth) != -(-len(values) // GROUP_ROWS) or self._count % JUDGE_EVERY == 0:
            self._count = 1
            return self._judge(values, first, stop)
        self._count += 1
        blocks = []
        groups = range(first // GROUP_ROWS, -(-stop // GROUP_ROWS))
        for worth, run in groupby(groups, self._worth.__getitem__):
            numbers = list(run)
            begin, end = numbers[0] * GROUP_ROWS, (numbers[-1] + 1) * GROUP_ROWS
            rows = values[max(begin, first) : min(end, stop)].data.cast("B")
            blocks.append(self._compress_block(rows) if worth else _store_block(rows))
        return blocks

    def _judge(self, values: npt.NDArray[Any], first: int, stop: int) -> list[_Block]:
        """Compress every group by itself, and note for the next arrays which ones are worth it."""
        self._worth = []
        blocks = []
        for begin in range(0, len(values), GROUP_ROWS):
            rows = values[max(begin, first) : min(begin + GROUP_ROWS, stop)]
            if not len(rows):
                self._worth.append(True)
                continue
            data = rows.data.cast("B")
            block = self._compress_block(data)
            self._worth.append(self._limit >= 1 or len(block.data) <= self._limit * len(data))
            blocks.append(block if self._worth[-1] else _store_block(data))
        return blocks

    def _compress_block(self, data: bytes | memoryview) -> _Block:
        stream = lzma.compress(data, format=lzma.FORMAT_XZ, check=_CHECK, filters=self._filters)
        return _extract_block(stream)

    def _make_zero_block(self, size: int) -> _Block:
        block = self._zeros.get(size)
        if block is None:
            if len(self._zeros) >= _KEPT_BLOCKS:
                self._zeros.clear()
            block = self._zeros[size] = self._compress_block(bytes(size))
        return block


def _find_used_rows(values: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the first row that is not all zeros, and the row after the last such row."""
    if values[0].any() and values[-1].any():
        return 0, len(values)
    used = np.flatnonzero(values.reshape(len(values), -1).view(np.uint8).max(axis=1))
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (len(values), len(values))


class _Block(NamedTuple):
    """Block of an xz stream, with its record for the stream's index (sections 3, 4.3)."""

    data: bytes
    record: bytes


def _extract_block(stream: bytes) -> _Block:
    """Return the block of an xz stream that has just one."""
    index_bytes = (int.from_bytes(stream[-8:-4], "little") + 1) * 4
    index = stream[-FOOTER_BYTES - index_bytes : -FOOTER_BYTES]
    # Index: indicator 00, number of records, then each record's two numbers (4.1 to 4.3).
    at = 2
    for _ in range(2 * index[1]):
        _, at = read_varint(index, at)
    return _Block(stream[HEADER_BYTES : -FOOTER_BYTES - index_bytes], index[2:at])


def stored_stream(values: npt.NDArray[Any]) -> bytes:
    """Store the array's bytes in C order in one xz stream, uncompressed.

    The stream depends on the bytes alone, not on liblzma's version; its length is `stored_bytes`.
    """
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
    parts, record = _store_parts(data)
    return b"".join([_HEADER, *parts, _make_end([record])])


def stored_bytes(size: int) -> int:
    """Return the length of `stored_stream` for `size` bytes, at least one."""
    unpadded = _count_unpadded(size)
    end = _make_end([_encode_varint(unpadded) + _encode_varint(size)])
    return HEADER_BYTES + (unpadded + 3 & ~3) + len(end)


def _store_block(data: memoryview) -> _Block:
    parts, record = _store_parts(data)
    return _Block(b"".join(parts), record)


def _count_unpadded(size: int) -> int:
    return 12 + size + 3 * -(-size // _CHUNK_BYTES) + 1 + _CRC_BYTES


def _store_parts(data: memoryview) -> tuple[list[bytes | memoryview], bytes]:
    """Return an uncompressed block, in LZMA2 chunks without compression (section 5.3.1)."""
    header = b"\x02\x00\x21\x01\x00\x00\x00\x00"  # 12 bytes with its CRC, LZMA2, 4 KiB dictionary
    parts: list[bytes | memoryview] = [header + _compute_crc(header)]
    for at in range(0, len(data), _CHUNK_BYTES):
        part = data[at : at + _CHUNK_BYTES]
        control = b"\2" if at else b"\1"  # 1 resets the dictionary, as the first chunk must
        parts += (control + (len(part) - 1).to_bytes(2, "big"), part)
    unpadded = _count_unpadded(len(data))
    parts.append(b"\0" + bytes(-unpadded % 4) + _compute_crc(data))
    return parts, _encode_varint(unpadded) + _encode_varint(len(data))


def _join(blocks: list[_Block]) -> bytes:
    """Join blocks to one stream (section 2.1)."""
    records = [block.record for block in blocks if block.record]  # none for no bytes at all
    return b"".join([_HEADER, *(block.data for block in blocks), _make_end(records)])


def _make_end(records: list[bytes]) -> bytes:
    """Return a stream's index and footer (sections 2.1.2, 4)."""
    index = b"\0" + _encode_varint(len(records)) + b"".join(records)
    index = index.ljust(-(-len(index) // 4) * 4, b"\0")
    index += _compute_crc(index)
    # Backward size, and the stream flags as in the header.
    tail = (len(index) // 4 - 1).to_bytes(4, "little") + _FLAGS
    return index + _compute_crc(tail) + tail + FOOTER_MAGIC


def decompress(stream: bytes, size: int, where: str) -> bytes:
    """Decompress a stream of exactly `size` bytes by liblzma.

    Raises:
        FormatError: the stream is damaged or of another size; the message starts with `where`.
    """
    decoder = lzma.LZMADecompressor()
    try:
        # Bounded: a damaged stream must not unpack to more than a sample.
        values = decoder.decompress(stream, size + 1)
    except lzma.LZMAError as error:
        raise FormatError(f"{where}: {error}") from None
    if not decoder.eof or decoder.unused_data or len(values) != size:
        raise FormatError(f"{where} is not one xz stream of {size} bytes")
    return values


class BlockUnpacker:
    """Unpacker of whole streams whose check is CRC-32, of LZMA2 with or without a delta.

    Several threads may share one.
    """

    def __init__(self) -> None:
        self._zeros: dict[bytes, int] = {}

    def unpack(self, stream: bytes, out: npt.NDArray[np.uint8]) -> bool:
        """Unpack a stream into `out`.

        Returns:
            Whether the stream was unpacked and every check is right; if not, the content of `out`
            is undefined.
        """
        try:
            end = 0
            for at, stop, size in _find_blocks(stream):
                if end + size > len(out):
                    return False
                self._unpack(stream[at:stop], out[end : end + size])
                end += size
        except (_OtherError, lzma.LZMAError, IndexError):
            return False
        return end == len(out)

    def _unpack(self, block: bytes, out: npt.NDArray[np.uint8]) -> None:
        light = len(block) * _MANY_ZEROS < len(out)
        if light and self._zeros.get(block) == len(out):
            out[:] = 0
            return
        header_bytes = (block[0] + 1) * 4
        filters = _filters(block[:header_bytes])
        decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters)
        values = decoder.decompress(block[header_bytes:-_CRC_BYTES], len(out) + 1)
        # What follows are zeros up to a multiple of four.
        whole = decoder.eof and len(decoder.unused_data) < 4 and not any(decoder.unused_data)
        if len(values) != len(out) or not whole or _compute_crc(values) != block[-_CRC_BYTES:]:
            raise _OtherError
        out[:] = np.frombuffer(values, np.uint8)
        if light and not out.any():
            if len(self._zeros) >= _KEPT_BLOCKS:
                self._zeros.clear()
            self._zeros[block] = len(out)


class _OtherError(Exception):
    """Stream that is damaged, or of a kind that is left to liblzma."""


def _find_blocks(stream: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield start and end of each block, and the size of its content in bytes.

    Raises:
        _OtherError, IndexError: the stream is damaged, or of another kind.
    """
    footer = stream[-FOOTER_BYTES:]
    if stream[:HEADER_BYTES] != _HEADER or footer[8:] != _FLAGS + FOOTER_MAGIC:
        raise _OtherError
    index_bytes = (int.from_bytes(footer[4:8], "little") + 1) * 4
    start = len(stream) - FOOTER_BYTES - index_bytes
    index = stream[start:-FOOTER_BYTES]
    if start < HEADER_BYTES or not (_compute_crc(footer[4:10]) == footer[:4] and index[0] == 0):
        raise _OtherError
    if _compute_crc(index[:-_CRC_BYTES]) != index[-_CRC_BYTES:]:
        raise _OtherError
    place = HEADER_BYTES
    count, at = read_varint(index, 1)
    for _ in range(count):
        unpadded, at = read_varint(index, at)
        size, at = read_varint(index, at)
        stop = place + (unpadded + 3 & ~3)
        if not unpadded or stop > start:
            raise _OtherError
        yield place, stop, size
        place = stop
    if place != start or index[at:-_CRC_BYTES].strip(b"\0"):
        raise _OtherError


@functools.lru_cache(maxsize=64)
def _filters(header: bytes) -> list[dict[str, Any]]:
    """Read the filters from a block's header (3.1)."""
    if _compute_crc(header[:-_CRC_BYTES]) != header[-_CRC_BYTES:] or header[1] & 0x3C:
        raise _OtherError
    at, filters = 2, []
    for present in (header[1] & 0x40, header[1] & 0x80):  # sizes, which the index has too
        if present:
            _, at = read_varint(header, at)
    for _ in range((header[1] & 3) + 1):
        kind, at = read_varint(header, at)
        size, at = read_varint(header, at)
        value = header[at]
        at += size
        if size == 1 and kind == _LZMA2 and value <= _LARGEST_DICTIONARY:
            filters.append(
                {"id": lzma.FILTER_LZMA2, "dict_size": (2 | value & 1) << value // 2 + 11}
            )
        elif size == 1 and kind == _DELTA:
            filters.append({"id": lzma.FILTER_DELTA, "dist": value + 1})
        else:
            raise _OtherError
    return filters


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length (1.2); return it and the offset after it."""
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, at


def _encode_varint(number: int) -> bytes:
    """Encode a number in seven bits a byte, the lowest first (section 1.2)."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*packed, number])


def _compute_crc(data: bytes | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "little")
