"""Compression of single records: LZ4 (frame format) and zstd (VRS, Compressor.cpp)."""

from __future__ import annotations

from enum import IntEnum

import lz4.frame  # type: ignore[import-untyped]
import zstandard

from recorder.common.errors import FormatError

MIN_BYTES = 250
"""Size in bytes below which data are not compressed, as in the format's own writer."""
_MAX_ZSTD_RATIO = 100_000
_MAX_LZ4_RATIO = 256


class Compression(IntEnum):
    """Compression of a record's data."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class Compressor:
    """Compressor of records; one serves one thread."""

    def __init__(self, kind: Compression) -> None:
        self.kind = kind
        self._zstd = zstandard.ZstdCompressor() if kind == Compression.ZSTD else None

    def compress(self, data: bytes) -> bytes | None:
        """Compress data to one frame with its content size; return None if that is not smaller."""
        if len(data) < MIN_BYTES or self.kind == Compression.NONE:
            return None
        if self._zstd is not None:
            packed: bytes = self._zstd.compress(data)
        else:
            packed = lz4.frame.compress(data)
        return packed if len(packed) < len(data) else None


def find_compressor(name: str) -> Compressor | None:
    """Return the compressor ``lz4`` or ``zstd``; None for ``none``."""
    kind = Compression[name.upper()]
    return None if kind is Compression.NONE else Compressor(kind)


def decompress(kind: int, data: bytes, size: int) -> bytes:
    """Decompress a record's data of `size` bytes.

    Raises:
        FormatError: the compression is unknown, the data do not decompress, or they have another
            size. Memory is bounded by the largest compression ratio.
    """
    if kind == Compression.LZ4:
        return _check_size(_decompress_lz4(data, size), size)
    if kind == Compression.ZSTD:
        return _check_size(_zstd(data, size), size)
    raise FormatError(f"compression of unknown type {kind}")


def _check_size(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise FormatError(f"decompresses to {len(data)} bytes, not to {size}")
    return data


def _decompress_lz4(data: bytes, size: int) -> bytes:
    if size > len(data) * _MAX_LZ4_RATIO:
        raise FormatError(f"{len(data)} bytes of LZ4 cannot hold {size}")
    try:
        out: bytes = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size + 1)
    except (RuntimeError, ValueError, EOFError) as error:
        raise FormatError(f"is no LZ4 frame: {error}") from None
    return out


def _zstd(data: bytes, size: int) -> bytes:
    if size > len(data) * _MAX_ZSTD_RATIO:
        raise FormatError(f"{len(data)} bytes of zstd cannot hold {size}")
    try:
        declared = zstandard.frame_content_size(data)
        if declared not in (-1, size):
            raise FormatError(f"a zstd frame of {declared} bytes, not of {size}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        raise FormatError(f"is no zstd frame: {error}") from None
