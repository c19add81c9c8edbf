"""xz streams of arrays, made to cost little.

Any filter chain is legal, since readers take it from the stream (the .xz file format, 3.1), and so
is a stream of several blocks (2.2).  Two things come of that: rows of nothing but zeros at an
array's beginning and end, as sweeps have them, are compressed once and kept; and rows that xz
would not bring below 0.42 of their size are stored as they are, since noise takes most of its time
and gives little.
"""

from __future__ import annotations

import lzma
import zlib
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_FOOTER_BYTES = 12
_FOOTER_MAGIC = b"YZ"
_CHECK = lzma.CHECK_CRC32
_CRC_BYTES = 4
_FLAGS = bytes([0, _CHECK])
_HEADER = b"\xfd7zXZ\0" + _FLAGS + zlib.crc32(_FLAGS).to_bytes(4, "little")
_CHUNK_BYTES = 1 << 16
_KEPT_BLOCKS = 256

GROUP_ROWS = 16
"""Rows that are packed or stored together."""
WORTH = 0.42
"""Share of its size that xz has to bring a group of rows to, or they are stored as they are."""
JUDGE_EVERY = 32
"""Arrays from one that is packed group by group, to see which are worth it, to the next."""
_LEAST_GROUP_BYTES = 4096


def xz_filters(item_bytes: int, delta: bool) -> list[dict[str, int]]:
    """The filter chain for arrays of one dtype.

    Tuned on sweeps of an OS-1-128: the match finder with the smallest tables and the shortest
    match length, a dictionary that fits the processor's cache, and literals told apart by their
    place in a value.  Beside preset 0 that is 0.74 of the time and 0.97 of the size.

    Args:
        item_bytes: size of a value.
        delta: put a delta over neighbouring values first, where they change little.
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
    """Compresses the arrays of one channel, one after the other, each to one whole xz stream.

    >>> compressor = XzCompressor(item_bytes=2, delta=True)
    >>> stream = compressor.compress(np.zeros((128, 1024), "<u2"))
    >>> len(lzma.decompress(stream))
    262144

    The same arrays in the same order give the same streams.

    Args:
        item_bytes, delta: as for `xz_filters`.
        worth: size of packed rows, of what it was, up to which they are packed; 1 packs all.
    """

    def __init__(self, item_bytes: int, delta: bool, worth: float = WORTH) -> None:
        self._limit = worth
        self._filters = xz_filters(item_bytes, delta)
        self._zeros: dict[int, _Block] = {}
        self._worth: list[bool] = []  # by group of rows, as last judged
        self._count = 0

    def compress(self, values: npt.NDArray[Any]) -> bytes:
        """One xz stream of the array's bytes in C order."""
        values = np.ascontiguousarray(values)
        row_bytes = values.nbytes // len(values) if values.ndim > 1 and values.size else 0
        if GROUP_ROWS * row_bytes < _LEAST_GROUP_BYTES:
            return _join([self._packed(values.data)])
        first, stop = _used_rows(values)
        blocks = [self._zero_block(first * row_bytes)] if first else []
        if first < stop:
            blocks += self._groups(values, first, stop)
        if stop < len(values):
            blocks.append(self._zero_block((len(values) - stop) * row_bytes))
        return _join(blocks)

    def _groups(self, values: npt.NDArray[Any], first: int, stop: int) -> list[_Block]:
        """The rows from `first` to `stop` as blocks, each packed or stored."""
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
            blocks.append(self._packed(rows) if worth else _stored(rows))
        return blocks

    def _judge(self, values: npt.NDArray[Any], first: int, stop: int) -> list[_Block]:
        """Pack every group by itself to see which are worth it until the next time."""
        self._worth = []
        blocks = []
        for begin in range(0, len(values), GROUP_ROWS):
            rows = values[max(begin, first) : min(begin + GROUP_ROWS, stop)]
            if not len(rows):
                self._worth.append(True)
                continue
            data = rows.data.cast("B")
            block = self._packed(data)
            self._worth.append(self._limit >= 1 or len(block.data) <= self._limit * len(data))
            blocks.append(block if self._worth[-1] else _stored(data))
        return blocks

    def _packed(self, data: bytes | memoryview) -> _Block:
        stream = lzma.compress(data, format=lzma.FORMAT_XZ, check=_CHECK, filters=self._filters)
        return _only_block(stream)

    def _zero_block(self, size: int) -> _Block:
        block = self._zeros.get(size)
        if block is None:
            if len(self._zeros) >= _KEPT_BLOCKS:
                self._zeros.clear()
            block = self._zeros[size] = self._packed(bytes(size))
        return block


def _used_rows(values: npt.NDArray[Any]) -> tuple[int, int]:
    """First row that is not all zeros, and the one after the last."""
    if values[0].any() and values[-1].any():
        return 0, len(values)
    used = np.flatnonzero(values.reshape(len(values), -1).view(np.uint8).max(axis=1))
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (len(values), len(values))


class _Block(NamedTuple):
    """One block of an xz stream, with its record for the stream's index (sections 3, 4.3)."""

    data: bytes
    record: bytes


def _only_block(stream: bytes) -> _Block:
    """The block of an xz stream that has just one."""
    index_bytes = (int.from_bytes(stream[-8:-4], "little") + 1) * 4
    index = stream[-_FOOTER_BYTES - index_bytes : -_FOOTER_BYTES]
    # Index: indicator 00, number of records, then each record's two numbers (4.1 to 4.3).
    at = 2
    for _ in range(2 * index[1]):
        while index[at] & 0x80:
            at += 1
        at += 1
    return _Block(stream[len(_HEADER) : -_FOOTER_BYTES - index_bytes], index[2:at])


def _stored(data: memoryview) -> _Block:
    """Bytes as they are, in chunks of LZMA2 without compression (section 5.3.1)."""
    chunks: list[bytes | memoryview] = []
    for at in range(0, len(data), _CHUNK_BYTES):
        part = data[at : at + _CHUNK_BYTES]
        control = b"\2" if at else b"\1"  # 1 resets the dictionary, as the first chunk must
        chunks += (control + (len(part) - 1).to_bytes(2, "big"), part)
    chunks.append(b"\0")
    header = b"\x02\x00\x21\x01\x00\x00\x00\x00"  # 12 bytes with its CRC, LZMA2, 4 KiB dictionary
    header += zlib.crc32(header).to_bytes(_CRC_BYTES, "little")
    unpadded = len(header) + sum(map(len, chunks)) + _CRC_BYTES
    check = zlib.crc32(data).to_bytes(_CRC_BYTES, "little")
    block = b"".join([header, *chunks, bytes(-unpadded % 4), check])
    return _Block(block, _varint(unpadded) + _varint(len(data)))


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first (section 1.2)."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*packed, number])


def _join(blocks: list[_Block]) -> bytes:
    """One stream of blocks (sections 2.1, 4)."""
    records = [block.record for block in blocks if block.record]  # none for no bytes at all
    index = b"\0" + _varint(len(records)) + b"".join(records)
    index = index.ljust(-(-len(index) // 4) * 4, b"\0")
    index += zlib.crc32(index).to_bytes(_CRC_BYTES, "little")
    # Backward size, and the stream flags as in the header.
    tail = (len(index) // 4 - 1).to_bytes(4, "little") + _FLAGS
    footer = zlib.crc32(tail).to_bytes(_CRC_BYTES, "little") + tail + _FOOTER_MAGIC
    return b"".join([_HEADER, *(block.data for block in blocks), index, footer])
