"""xz streams unpacked block by block (the .xz file format, 1.2).

A sweep's far ranges are zeros but for a few rows: blocks of zeros, whose bytes are the same sweep
after sweep, are known at sight.  Other blocks are unpacked raw and checked with zlib's CRC-32,
which takes a third of the time of liblzma's.

::

    unpacker = BlockUnpacker()
    if not unpacker.unpack(stream, out):
        ...                              # liblzma says what is wrong, or knows what this does not
"""

from __future__ import annotations

import functools
import lzma
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

HEADER_BYTES = FOOTER_BYTES = 12
HEADER_MAGIC, FOOTER_MAGIC = b"\xfd7zXZ\0", b"YZ"
_FLAGS = bytes([0, lzma.CHECK_CRC32])
_HEADER = HEADER_MAGIC + _FLAGS + zlib.crc32(_FLAGS).to_bytes(4, "little")
_CRC_BYTES = 4
_LZMA2, _DELTA = 0x21, 0x03
_LARGEST_DICTIONARY = 39
_MANY_ZEROS = 64
"""A block that is so many times as large unpacked may be one of zeros."""
_KEPT = 256


class BlockUnpacker:
    """Unpacks whole streams whose check is CRC-32, of LZMA2 with or without a delta.

    Several threads may use one.
    """

    def __init__(self) -> None:
        self._zeros: dict[bytes, int] = {}

    def unpack(self, stream: bytes, out: npt.NDArray[np.uint8]) -> bool:
        """Unpack a stream into `out`.

        Returns:
            Whether that was done, and every check is right; if not, `out` holds anything.
        """
        try:
            end = 0
            for at, stop, size in _blocks(stream):
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
        if len(values) != len(out) or not whole or not _is_right(values, block[-_CRC_BYTES:]):
            raise _OtherError
        out[:] = np.frombuffer(values, np.uint8)
        if light and not out.any():
            if len(self._zeros) >= _KEPT:
                self._zeros.clear()
            self._zeros[block] = len(out)


class _OtherError(Exception):
    """Damaged, or of a kind that is left to liblzma."""


def _blocks(stream: bytes) -> Iterator[tuple[int, int, int]]:
    """Start and end of each block, and the size of what it holds.

    Raises:
        _OtherError, IndexError: it is no whole stream of the kind.
    """
    footer = stream[-FOOTER_BYTES:]
    if stream[:HEADER_BYTES] != _HEADER or footer[8:] != _FLAGS + FOOTER_MAGIC:
        raise _OtherError
    index_bytes = (int.from_bytes(footer[4:8], "little") + 1) * 4
    start = len(stream) - FOOTER_BYTES - index_bytes
    index = stream[start:-FOOTER_BYTES]
    if start < HEADER_BYTES or not (_is_right(footer[4:10], footer[:4]) and index[0] == 0):
        raise _OtherError
    if not _is_right(index[:-_CRC_BYTES], index[-_CRC_BYTES:]):
        raise _OtherError
    place = HEADER_BYTES
    count, at = varint(index, 1)
    for _ in range(count):
        unpadded, at = varint(index, at)
        size, at = varint(index, at)
        stop = place + (unpadded + 3 & ~3)
        if not unpadded or stop > start:
            raise _OtherError
        yield place, stop, size
        place = stop
    if place != start or index[at:-_CRC_BYTES].strip(b"\0"):
        raise _OtherError


@functools.lru_cache(maxsize=64)
def _filters(header: bytes) -> list[dict[str, Any]]:
    """The filters that a block's header names (3.1)."""
    if not _is_right(header[:-_CRC_BYTES], header[-_CRC_BYTES:]) or header[1] & 0x3C:
        raise _OtherError
    at, filters = 2, []
    for present in (header[1] & 0x40, header[1] & 0x80):  # sizes, which the index has too
        if present:
            _, at = varint(header, at)
    for _ in range((header[1] & 3) + 1):
        kind, at = varint(header, at)
        size, at = varint(header, at)
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


def _is_right(data: bytes, check: bytes) -> bool:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "little") == check


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length (1.2), and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, at
