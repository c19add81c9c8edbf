"""EXIF beside the coded data of a picture (CIPA DC-008, "Exchangeable image file format", 2.32).

::

    tiff = encode_exif(Exif(t_ns=..., latitude_deg=52.5, longitude_deg=13.4))
    jpeg = insert_exif(jpeg, tiff)               # what is coded stays as it is
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction

from recorder.archives import ArchiveError

_ASCII, _BYTE, _SHORT, _LONG, _RATIONAL, _UNDEFINED = 2, 1, 3, 4, 5, 7
_SOI, _APP0, _APP1, _SOS = b"\xff\xd8", 0xE0, 0xE1, 0xDA
_IDENTIFIER = b"Exif\0\0"
_MOST = 65_533 - len(_IDENTIFIER)  # of a segment
_35MM = 36.0  # width of the picture that equivalent focal lengths are for

Tag = tuple[int, int, int, bytes]  # tag, type, count, value


@dataclass(frozen=True)
class Exif:
    """What is told of a picture.

    Attributes:
        t_ns: when it was taken, epoch ns.
        latitude_deg, longitude_deg, altitude_m: where, WGS 84; None where it is not known.
        make, model, serial, host: the device, and the computer that recorded it.
        software: that wrote this.
        description: what the picture is.
        size: width and height.
        exposure_s: None where it is not known.
        focal_px: focal length in pixels; None where the camera is not calibrated.
        comment: further camera parameters, as JSON.
    """

    t_ns: int
    latitude_deg: float | None = None
    longitude_deg: float | None = None
    altitude_m: float | None = None
    make: str = ""
    model: str = ""
    serial: str = ""
    host: str = ""
    software: str = ""
    description: str = ""
    size: tuple[int, int] | None = None
    exposure_s: float | None = None
    focal_px: float | None = None
    comment: str = ""


def encode_exif(exif: Exif) -> bytes:
    """A TIFF structure, little endian: IFD 0, the Exif IFD, and a GPS IFD where the place is known.

    Raises:
        ArchiveError: it does not fit into one segment of a JPEG.
    """
    seconds, nanoseconds = divmod(exif.t_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    stamp = _text(f"{moment:%Y:%m:%d %H:%M:%S}")
    zero = [
        _ascii(0x010E, exif.description),
        _ascii(0x010F, exif.make),
        _ascii(0x0110, exif.model),
        _ascii(0x0131, exif.software),
        (0x0132, _ASCII, len(stamp), stamp),
        _ascii(0x013C, exif.host),
    ]
    detail: list[Tag | None] = [
        (0x9000, _UNDEFINED, 4, b"0232"),
        (0x9003, _ASCII, len(stamp), stamp),
        (0x9004, _ASCII, len(stamp), stamp),
        *(_ascii(tag, "+00:00") for tag in (0x9010, 0x9011, 0x9012)),
        *(_ascii(tag, f"{nanoseconds:09d}") for tag in (0x9290, 0x9291, 0x9292)),
        _ascii(0xA431, exif.serial),
    ]
    if exif.exposure_s is not None and exif.exposure_s > 0:
        detail.append(_rationals(0x829A, [exif.exposure_s]))
    if exif.size is not None:
        width, height = exif.size
        detail += [(0xA002, _LONG, 1, _long(width)), (0xA003, _LONG, 1, _long(height))]
        if exif.focal_px is not None:
            equivalent = min(65_535, max(1, round(exif.focal_px / width * _35MM)))
            detail.append((0xA405, _SHORT, 1, struct.pack("<H", equivalent)))
    if exif.comment:
        comment = b"UNICODE\0" + exif.comment.encode("utf-16-le")
        detail.append((0x9286, _UNDEFINED, len(comment), comment))
    places = _gps(exif, moment, nanoseconds)
    data = _assemble([tag for tag in zero if tag], [tag for tag in detail if tag], places)
    if len(data) > _MOST:
        raise ArchiveError(f"EXIF of {len(data)} bytes does not fit into a JPEG's segment")
    return data


def _gps(exif: Exif, moment: datetime, nanoseconds: int) -> list[Tag]:
    if exif.latitude_deg is None or exif.longitude_deg is None:
        return []
    clock = [moment.hour, moment.minute, moment.second + nanoseconds / 1e9]
    latitude, longitude = exif.latitude_deg, exif.longitude_deg
    tags = [
        (0, _BYTE, 4, bytes([2, 3, 0, 0])),
        _ascii(1, "N" if latitude >= 0 else "S"),
        _rationals(2, _sexagesimal(latitude)),
        _ascii(3, "E" if longitude >= 0 else "W"),
        _rationals(4, _sexagesimal(longitude)),
        _rationals(7, clock),
        _ascii(18, "WGS-84"),
        _ascii(29, f"{moment:%Y:%m:%d}"),
    ]
    if exif.altitude_m is not None:
        tags += [
            (5, _BYTE, 1, bytes([int(exif.altitude_m < 0)])),
            _rationals(6, [abs(exif.altitude_m)]),
        ]
    return [tag for tag in tags if tag]


def _sexagesimal(degrees: float) -> list[float]:
    """Degrees, minutes, seconds; the seconds to a ten-thousandth, which is 3 mm."""
    parts = round(abs(degrees) * 3600 * 10_000)
    whole, rest = divmod(parts, 3600 * 10_000)
    minutes, rest = divmod(rest, 60 * 10_000)
    return [whole, minutes, rest / 10_000]


def _assemble(zero: list[Tag], detail: list[Tag], places: list[Tag]) -> bytes:
    """Header and IFDs one behind the other; the first one points at the others."""
    pointers = [(0x8769, detail)] + ([(0x8825, places)] if places else [])
    at = 8
    sizes = _ifd_size(zero + [(tag, _LONG, 1, bytes(4)) for tag, _ in pointers])
    offsets = {}
    for tag, entries in pointers:
        offsets[tag] = at + sizes
        sizes += _ifd_size(entries)
    first = zero + [(tag, _LONG, 1, _long(offsets[tag])) for tag, _ in pointers]
    parts = [b"II*\0" + _long(at), _ifd(first, at)]
    parts += [_ifd(entries, offsets[tag]) for tag, entries in pointers]
    return b"".join(parts)


def _ifd_size(tags: Sequence[Tag]) -> int:
    return 2 + 12 * len(tags) + 4 + sum(_even(value) for *_, value in tags if len(value) > 4)


def _ifd(tags: Sequence[Tag], at: int) -> bytes:
    entries, values = [struct.pack("<H", len(tags))], []
    behind = at + 2 + 12 * len(tags) + 4
    for tag, kind, count, value in sorted(tags):
        if len(value) <= 4:
            place = value.ljust(4, b"\0")
        else:
            place = _long(behind)
            behind += _even(value)
            values.append(value.ljust(_even(value), b"\0"))
        entries.append(struct.pack("<HHI", tag, kind, count) + place)
    return b"".join([*entries, _long(0), *values])


def _even(value: bytes) -> int:
    return len(value) + len(value) % 2


def _long(value: int) -> bytes:
    return struct.pack("<I", value)


def _text(value: str) -> bytes:
    return value.encode("ascii", "replace").replace(b"\0", b"?") + b"\0"


def _ascii(tag: int, value: str) -> Tag | None:
    return (tag, _ASCII, len(_text(value)), _text(value)) if value else None


def _rationals(tag: int, values: Sequence[float]) -> Tag:
    parts = []
    for value in values:
        share = Fraction(value).limit_denominator(1_000_000)
        if share.numerator > 0xFFFFFFFF:
            share = Fraction(0xFFFFFFFF)
        parts.append(struct.pack("<II", share.numerator, share.denominator))
    return tag, _RATIONAL, len(values), b"".join(parts)


def insert_exif(jpeg: bytes, exif: bytes) -> bytes:
    """Put EXIF into a JPEG, in the place of any that it has; its other segments stay as they are.

    Raises:
        ArchiveError: it is no JPEG, or its segments are broken.
    """
    if not jpeg.startswith(_SOI):
        raise ArchiveError("is no JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", 2 + len(_IDENTIFIER) + len(exif))
    kept = [_SOI, segment, _IDENTIFIER, exif]
    at = 2
    while jpeg[at : at + 1] == b"\xff" and jpeg[at + 1 : at + 2] not in (b"", b"\xda"):
        marker = jpeg[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        size = int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if size < 2 or at + 2 + size > len(jpeg):
            raise ArchiveError("is a broken JPEG")
        whole = jpeg[at : at + 2 + size]
        at += 2 + size
        if marker == _APP1 and whole[4:].startswith(_IDENTIFIER):
            continue
        if marker == _APP0 and len(kept) == 4:
            kept.insert(1, whole)  # JFIF wants to be first; readers of EXIF take it so
        elif marker in (_APP0, _APP1):
            kept.append(whole)
        else:  # only application segments come first: the rest is as it is
            at -= 2 + size
            break
    if jpeg[at : at + 1] != b"\xff":
        raise ArchiveError("is a broken JPEG")
    return b"".join([*kept, jpeg[at:]])
