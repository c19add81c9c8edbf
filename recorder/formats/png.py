"""Codec of grey PNG files of any depth (W3C, "Portable Network Graphics", third edition).

A radar cube is stored as a grid of cells: a column per receiver, a row per sequence (transmitter).
Each cell has a line per range bin, and two values per Doppler bin, real and imaginary part.
The values are int16 plus 32768.

::

    picture = cube_picture(cube)                 # int16 [sequence, rx, range, doppler, 2]
    payload = store_png(picture, text={"shape": "3 4 256 64"})
    cube = cube_of_picture(picture, sequences=3, receivers=4)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import ArchiveError, FormatError
from recorder.formats.zip import zlib
from recorder.formats.zip.writer import Payload

MAGIC = b"\x89PNG\r\n\x1a\n"
_GREY = 0
_SHIFT = 0x8000
_ZLIB = b"\x78\x01"  # RFC 1950: deflate, a window of 32 KiB, the fastest level
_STORED = struct.Struct("<?HH")  # RFC 1951, 3.2.4: last block; size, and its complement
_LONGEST = 0xFFFF
_FAST = 2
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels by colour type (section 11.2.1); a picture with a palette has one: its indices."""


@dataclass(frozen=True, slots=True)
class PngHead:
    """What the header of a PNG file says: size in pixels, bits of a value, values of a pixel."""

    width: int
    height: int
    bits: int
    channels: int


def read_png_head(data: bytes) -> PngHead:
    """Read the header of a PNG file, and check that the file is whole: every chunk by its CRC.

    Raises:
        FormatError: the file is cut, damaged, or not a PNG.
    """
    if not data.startswith(MAGIC):
        raise FormatError("is not a PNG")
    at, kind = len(MAGIC), b""
    while kind != b"IEND":
        size, kind = struct.unpack_from(">I4s", data, at) if at + 12 <= len(data) else (0, b"")
        end = at + 12 + size
        if not kind or end > len(data):
            raise FormatError(f"is cut: {len(data)} bytes, and no end")
        if zlib.crc32(memoryview(data)[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end]):
            raise FormatError(f"is damaged: the CRC of a chunk at byte {at} is wrong")
        if at == len(MAGIC) and (kind, size) != (b"IHDR", 13):
            raise FormatError("has no header")
        at = end
    width, height, bits, colour = struct.unpack_from(">IIBB", data, len(MAGIC) + 8)
    if colour not in _CHANNELS or not width or not height:
        raise FormatError(f"has an invalid header: {width}x{height}, colour type {colour}")
    return PngHead(width, height, bits, _CHANNELS[colour])


def cube_picture(cube: npt.NDArray[np.int16]) -> npt.NDArray[np.uint16]:
    """Convert a cube, int16 [sequence, rx, range, doppler, 2], to its picture.

    Returns:
        uint16 [sequence * range, rx * doppler * 2].
    """
    sequences, receivers, ranges, doppler, two = cube.shape
    assert two == 2
    grid = cube.transpose(0, 2, 1, 3, 4).reshape(sequences * ranges, receivers * doppler * 2)
    return np.asarray(np.ascontiguousarray(grid).view(np.uint16) ^ np.uint16(_SHIFT))


def cube_of_picture(
    picture: npt.NDArray[np.uint16], sequences: int, receivers: int
) -> npt.NDArray[np.int16]:
    """Convert a picture of `cube_picture` to its cube, int16 [sequence, rx, range, doppler, 2].

    Raises:
        ArchiveError: the picture cannot be divided into that many cells.
    """
    height, width = picture.shape
    if height % sequences or width % (receivers * 2):
        raise ArchiveError(f"{width}x{height} is not a grid of {receivers}x{sequences} cells")
    shape = (sequences, height // sequences, receivers, width // receivers // 2, 2)
    values = (picture ^ np.uint16(_SHIFT)).view(np.int16).reshape(shape)
    return np.ascontiguousarray(values.transpose(0, 2, 1, 3, 4))


def encode_png(
    picture: npt.NDArray[Any],
    *,
    level: int = 6,
    bits: int | None = None,
    text: Mapping[str, str] | None = None,
) -> bytes:
    """Encode a grey picture losslessly.

    Args:
        picture: u1 or u2 [height, width].
        level: compression level of zlib.
        bits: 1 stores non-zero values as white; None stores the picture's own depth.
        text: Latin-1 keywords and texts to store in the file.
    """
    height, width = picture.shape
    if bits == 1:
        rows = np.packbits(picture != 0, axis=1)
    else:
        bits = picture.dtype.itemsize * 8
        rows = _rows(picture)
    lines = np.empty((height, 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = 0  # no filter
    lines[:, 1:] = rows
    data = _chunk(b"IDAT", zlib.compress(lines.data, level))
    return b"".join([_head(width, height, bits, text), data, _chunk(b"IEND", b"")])


def compress_png(
    picture: npt.NDArray[Any], level: int, *, text: Mapping[str, str] | None = None
) -> Payload:
    """Encode a grey picture losslessly and fast, with its CRC.

    Args:
        picture: u1 or u2 [height, width].
        level: 0 stores the picture; 1 is the fastest level that is worth its time.  zlib-ng's own
            level 1 leaves 0.58 of a radar cube where its level 2 leaves 0.36, in the same time.
        text: Latin-1 keywords and texts to store in the file.
    """
    if level == 0:
        return store_png(picture, text=text)
    data = encode_png(picture, level=max(level, _FAST), text=text)
    return Payload(data, zlib.crc32(data))


def store_png(picture: npt.NDArray[Any], *, text: Mapping[str, str] | None = None) -> Payload:
    """Encode a grey picture without compression, with its CRC.

    Args:
        picture: u1 or u2 [height, width].
        text: Latin-1 keywords and texts to store in the file.
    """
    height, width = picture.shape
    rows = _rows(picture)
    line = 1 + rows.shape[1]
    if not rows.size or line > _LONGEST:
        return Payload(encode_png(picture, level=0, text=text))
    head = _head(width, height, picture.dtype.itemsize * 8, text)
    size = len(_ZLIB) + -(-height // (_LONGEST // line)) * _STORED.size + height * line + 4
    head += struct.pack(">I", size)
    end = _chunk(b"IEND", b"")
    data = np.empty(len(head) + 4 + size + 4 + len(end), np.uint8).data
    data[: len(head)] = head
    chunk = data[len(head) : -4 - len(end)]
    chunk[: 4 + len(_ZLIB)] = b"IDAT" + _ZLIB
    adler = _store(rows, np.frombuffer(chunk, np.uint8)[4 + len(_ZLIB) : -4])
    chunk[-4:] = struct.pack(">I", adler)
    crc = zlib.crc32(chunk)
    end = struct.pack(">I", crc) + end
    data[-len(end) :] = end
    before = zlib.crc32_combine(zlib.crc32(head), crc, len(chunk))
    return Payload(data, zlib.crc32(end, before))


def _store(rows: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> int:
    """Write unfiltered rows into uncompressed blocks of deflate.

    Returns:
        the Adler-32 of the blocks' contents.
    """
    height, width = rows.shape
    line, most = 1 + width, _LONGEST // (1 + width)
    whole, adler = height // most, 1
    parts = [(whole, most)] * (whole > 0) + [(1, height % most)] * (height % most > 0)
    for blocks, count in parts:
        size = _STORED.size + count * line
        block = out[: blocks * size].reshape(blocks, size)
        head = _STORED.pack(False, count * line, count * line ^ 0xFFFF)
        block[:, : _STORED.size] = np.frombuffer(head, np.uint8)
        lines = block[:, _STORED.size :].reshape(blocks, count, line)
        lines[:, :, 0] = 0
        lines[:, :, 1:] = rows[: blocks * count].reshape(blocks, count, width)
        for one in block:
            adler = zlib.adler32(one[_STORED.size :], adler)
        out, rows = out[blocks * size :], rows[blocks * count :]
    block[-1, 0] = True
    return adler


def insert_exif(png: bytes, exif: bytes) -> bytes:
    """Add EXIF (a TIFF structure) to a PNG, before its image data.

    Raises:
        ArchiveError: the input is not a PNG.
    """
    if not png.startswith(MAGIC):
        raise ArchiveError("is not a PNG")
    first = len(MAGIC) + 25  # the end of IHDR, whose size is constant
    return png[:first] + _chunk(b"eXIf", exif) + png[first:]


def read_text(png: bytes) -> dict[str, str]:
    """Return the texts (``tEXt``) before a PNG's image data, by keyword."""
    found, at = {}, len(MAGIC)
    while png.startswith(MAGIC) and len(png) >= at + 8:
        size, kind = struct.unpack_from(">I4s", png, at)
        if kind == b"IDAT":
            break
        if kind == b"tEXt":
            keyword, _, value = png[at + 8 : at + 8 + size].partition(b"\0")
            found[keyword.decode("latin-1")] = value.decode("latin-1")
        at += 12 + size
    return found


def _rows(picture: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the picture's bytes in PNG's order, u1 [height, bytes of a row]."""
    values = picture.astype(picture.dtype.newbyteorder(">"), copy=False)
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(picture), -1)


def _head(width: int, height: int, bits: int, text: Mapping[str, str] | None) -> bytes:
    """Return the chunks before the image data."""
    parts = [MAGIC, _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, _GREY, 0, 0, 0))]
    for keyword, value in (text or {}).items():
        parts.append(_chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + value.encode("latin-1")))
    return b"".join(parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(data, zlib.crc32(kind))
    return b"".join([struct.pack(">I", len(data)), kind, data, struct.pack(">I", crc)])
