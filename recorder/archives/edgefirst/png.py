"""PNG files (W3C, "Portable Network Graphics", third edition): grey pictures of any depth.

A radar cube is a grid of pictures: a column per receiver, a row per sequence (transmitter); each
cell has a line per range bin, and two values for each Doppler bin, real and imaginary part.
The values are int16 plus 32768.

::

    picture = cube_picture(cube)                 # int16 [sequence, rx, range, doppler, 2]
    data = encode_png(picture, level=0, text={"shape": "3 4 256 64"})
    cube = cube_of_picture(picture, sequences=3, receivers=4)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives import ArchiveError

MAGIC = b"\x89PNG\r\n\x1a\n"
_GREY = 0
_SHIFT = 0x8000


def cube_picture(cube: npt.NDArray[np.int16]) -> npt.NDArray[np.uint16]:
    """A cube, int16 [sequence, rx, range, doppler, 2], as its picture.

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
    """The inverse of `cube_picture`.

    Raises:
        ArchiveError: the picture cannot be divided so.
    """
    height, width = picture.shape
    if height % sequences or width % (receivers * 2):
        raise ArchiveError(f"{width}x{height} is no grid of {receivers}x{sequences} cells")
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
    """A grey picture, losslessly.

    Args:
        picture: u1 or u2 [height, width].
        level: of zlib; 0 stores.
        bits: 1 stores non-zero values as white; else the picture's own depth.
        text: Latin-1 keywords and texts that go along.
    """
    height, width = picture.shape
    if bits == 1:
        rows = np.packbits(picture != 0, axis=1)
    else:
        bits = picture.dtype.itemsize * 8
        rows = picture.astype(picture.dtype.newbyteorder(">"), copy=False).view(np.uint8)
        rows = rows.reshape(height, -1)
    lines = np.empty((height, 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = 0  # no filter
    lines[:, 1:] = rows
    parts = [MAGIC, _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, _GREY, 0, 0, 0))]
    for keyword, value in (text or {}).items():
        parts.append(_chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + value.encode("latin-1")))
    parts.append(_chunk(b"IDAT", zlib.compress(lines.data, level)))
    parts.append(_chunk(b"IEND", b""))
    return b"".join(parts)


def insert_exif(png: bytes, exif: bytes) -> bytes:
    """Add EXIF (a TIFF structure) to a PNG, before its data.

    Raises:
        ArchiveError: it is no PNG.
    """
    if not png.startswith(MAGIC):
        raise ArchiveError("is no PNG")
    first = len(MAGIC) + 25  # behind IHDR, which is always so long
    return png[:first] + _chunk(b"eXIf", exif) + png[first:]


def _chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(data, zlib.crc32(kind))
    return b"".join([struct.pack(">I", len(data)), kind, data, struct.pack(">I", crc)])
