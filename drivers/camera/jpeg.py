"""Parser of a JPEG's markers (ITU-T T.81, annex B), without decoding."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recorder.common.errors import ProtocolError

_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """Values from a JPEG's markers (ITU-T T.81, annex B).

    Attributes:
        width, height: pixels.
        components: 1 grey, 3 colour.
        process: low byte of the frame header's marker: 0xC0 baseline, 0xC2 progressive.
        length: bytes up to and including the end-of-image marker.
    """

    width: int
    height: int
    components: int
    process: int
    length: int


def parse_jpeg(data: bytes) -> JpegHeader:
    """Parse the markers of the first image in `data`.

    Raises:
        ProtocolError: the data are not a JPEG, or are truncated; names the fault.
    """
    if data[:2] != b"\xff\xd8":
        raise ProtocolError(f"no JPEG: begins with {data[:2].hex() or 'nothing'}, not ffd8")
    frame: tuple[int, int, int, int] | None = None
    at = 2
    while at + 1 < len(data):
        if data[at] != 0xFF:
            raise ProtocolError(f"a JPEG with {data[at]:02x} at {at} where a marker should be")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        at += 2
        if marker == 0xD9:
            if frame is None:
                raise ProtocolError("a JPEG without a frame header")
            return JpegHeader(*frame, length=at)
        length = int.from_bytes(data[at : at + 2], "big")
        if length < 2 or at + length > len(data):
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and length >= 8:
            height = int.from_bytes(data[at + 3 : at + 5], "big")
            width = int.from_bytes(data[at + 5 : at + 7], "big")
            frame = width, height, data[at + 7], marker
        at += length
        if marker == 0xDA:  # entropy-coded data follows, with only these markers
            after = _MARKER_IN_SCAN.search(data, at)
            if after is None:
                break
            at = after.start()
    raise ProtocolError(f"a JPEG cut off after {len(data)} bytes: no end-of-image marker")
