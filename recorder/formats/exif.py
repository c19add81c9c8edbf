"""EXIF metadata for a picture's coded data (CIPA DC-008, "Exchangeable image file format", 2.32).

::

    tiff = encode_exif(Exif(t_ns=..., latitude_deg=52.5, longitude_deg=13.4))
    jpeg = insert_exif(jpeg, tiff)               # the coded data are unchanged
    read_exif(find_exif(jpeg)).t_ns              # of files of any program
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from recorder.common.errors import ArchiveError

_ASCII, _BYTE, _SHORT, _LONG, _RATIONAL, _UNDEFINED = 2, 1, 3, 4, 5, 7
_SIZES = {_ASCII: 1, _BYTE: 1, _SHORT: 2, _LONG: 4, _RATIONAL: 8, _UNDEFINED: 1}
_DETAIL, _GPS = 0x8769, 0x8825
_PNG = b"\x89PNG\r\n\x1a\n"
_SOI, _APP0, _APP1, _APP15, _COM = b"\xff\xd8", 0xE0, 0xE1, 0xEF, 0xFE
_IDENTIFIER = b"Exif\0\0"
_MOST = 65_533 - len(_IDENTIFIER)  # bytes of EXIF in a segment
_DENOMINATOR = 1_000_000  # the largest denominator
_WIDEST = 0xFFFFFFFF
_ENTRY, _FAR_ENTRY = struct.Struct("<HHI4s"), struct.Struct("<HHII")
_35MM = 36.0  # width of a 35 mm picture, the base of equivalent focal lengths

Tag = tuple[int, int, int, bytes]  # tag, type, count, value


@dataclass(frozen=True)
class Exif:
    """Metadata of a picture.

    Attributes:
        t_ns: time of the picture, epoch ns.
        latitude_deg, longitude_deg, altitude_m: position in WGS 84; None where unknown.
        make, model, serial, host: the device, and the computer that recorded the picture.
        software: the program that writes the EXIF.
        description: description of the picture.
        size: width and height.
        exposure_s: exposure time; None where unknown.
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
    """Encode a TIFF structure, little endian: IFD 0, the Exif IFD, and a GPS IFD if possible.

    Raises:
        ArchiveError: the structure does not fit into one segment of a JPEG.
    """
    seconds, nanoseconds = divmod(exif.t_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    stamp = _text(f"{moment:%Y:%m:%d %H:%M:%S}")
    fraction = _text(f"{nanoseconds:09d}")
    zero = [
        *_device(exif.make, exif.model, exif.software, exif.host),
        *_ascii(0x010E, exif.description),
        (0x0132, _ASCII, len(stamp), stamp),
    ]
    detail = [
        *_camera(exif.serial, exif.exposure_s, exif.size, exif.focal_px, exif.comment),
        (0x9003, _ASCII, len(stamp), stamp),
        (0x9004, _ASCII, len(stamp), stamp),
        *((tag, _ASCII, len(fraction), fraction) for tag in (0x9290, 0x9291, 0x9292)),
    ]
    data = _assemble(zero, detail, _gps(exif, moment, nanoseconds))
    if len(data) > _MOST:
        raise ArchiveError(f"EXIF of {len(data)} bytes does not fit into a JPEG's segment")
    return data


@functools.lru_cache(maxsize=16)
def _device(make: str, model: str, software: str, host: str) -> list[Tag]:
    """Return the tags of IFD 0 that all pictures of a camera share."""
    return [
        *_ascii(0x010F, make),
        *_ascii(0x0110, model),
        *_ascii(0x0131, software),
        *_ascii(0x013C, host),
    ]


@functools.lru_cache(maxsize=16)
def _camera(
    serial: str,
    exposure_s: float | None,
    size: tuple[int, int] | None,
    focal_px: float | None,
    comment: str,
) -> list[Tag]:
    """Return the tags of the Exif IFD that all pictures of a camera share."""
    tags = [
        (0x9000, _UNDEFINED, 4, b"0232"),
        *(one for tag in (0x9010, 0x9011, 0x9012) for one in _ascii(tag, "+00:00")),
        *_ascii(0xA431, serial),
    ]
    if exposure_s is not None and exposure_s > 0:
        tags.append(_rationals(0x829A, [exposure_s]))
    if size is not None:
        width, height = size
        tags += [(0xA002, _LONG, 1, _long(width)), (0xA003, _LONG, 1, _long(height))]
        if focal_px is not None:
            equivalent = min(65_535, max(1, round(focal_px / width * _35MM)))
            tags.append((0xA405, _SHORT, 1, struct.pack("<H", equivalent)))
    if comment:
        text = b"UNICODE\0" + comment.encode("utf-16-le")
        tags.append((0x9286, _UNDEFINED, len(text), text))
    return tags


def _gps(exif: Exif, moment: datetime, nanoseconds: int) -> list[Tag]:
    if exif.latitude_deg is None or exif.longitude_deg is None:
        return []
    clock = [moment.hour, moment.minute, moment.second + nanoseconds / 1e9]
    latitude, longitude = exif.latitude_deg, exif.longitude_deg
    tags = [
        (0, _BYTE, 4, bytes([2, 3, 0, 0])),
        *_ascii(1, "N" if latitude >= 0 else "S"),
        _rationals(2, _sexagesimal(latitude)),
        *_ascii(3, "E" if longitude >= 0 else "W"),
        _rationals(4, _sexagesimal(longitude)),
        _rationals(7, clock),
        *_ascii(18, "WGS-84"),
        *_ascii(29, f"{moment:%Y:%m:%d}"),
    ]
    if exif.altitude_m is not None:
        tags += [
            (5, _BYTE, 1, bytes([int(exif.altitude_m < 0)])),
            _rationals(6, [abs(exif.altitude_m)]),
        ]
    return tags


def _sexagesimal(degrees: float) -> list[float]:
    """Convert to degrees, minutes and seconds, rounded to 1e-4 seconds, which is 3 mm."""
    parts = round(abs(degrees) * 3600 * 10_000)
    whole, rest = divmod(parts, 3600 * 10_000)
    minutes, rest = divmod(rest, 60 * 10_000)
    return [whole, minutes, rest / 10_000]


def _assemble(zero: list[Tag], detail: list[Tag], places: list[Tag]) -> bytes:
    """Assemble header and consecutive IFDs; the first IFD points at the others."""
    first, others = list(zero), []
    at = 8 + _ifd_size(zero) + 12 * (2 if places else 1)
    for tag, entries in ((0x8769, detail), (0x8825, places)):
        if entries:
            first.append((tag, _LONG, 1, _long(at)))
            others.append(_ifd(entries, at))
            at += len(others[-1])
    return b"".join([b"II*\0", _long(8), _ifd(first, 8), *others])


def _ifd_size(tags: Sequence[Tag]) -> int:
    return 2 + 12 * len(tags) + 4 + sum(_even(len(value)) for *_, value in tags if len(value) > 4)


def _ifd(tags: Sequence[Tag], at: int) -> bytes:
    entries, values = [struct.pack("<H", len(tags))], []
    behind = at + 2 + 12 * len(tags) + 4
    for tag, kind, count, value in sorted(tags):
        if len(value) <= 4:
            entries.append(_ENTRY.pack(tag, kind, count, value))
        else:
            entries.append(_FAR_ENTRY.pack(tag, kind, count, behind))
            size = _even(len(value))
            behind += size
            values.append(value.ljust(size, b"\0"))
    return b"".join([*entries, _long(0), *values])


def _even(size: int) -> int:
    return size + size % 2


def _long(value: int) -> bytes:
    return struct.pack("<I", value)


def _text(value: str) -> bytes:
    return value.encode("ascii", "replace").replace(b"\0", b"?") + b"\0"


def _ascii(tag: int, value: str) -> list[Tag]:
    text = _text(value)
    return [(tag, _ASCII, len(text), text)] if value else []


def _rationals(tag: int, values: Sequence[float]) -> Tag:
    parts = []
    for value in values:
        most = min(_DENOMINATOR, _WIDEST // (int(value) + 1))  # the numerator must also fit
        ratio = Fraction(value).limit_denominator(most) if most else Fraction(_WIDEST)
        parts.append(struct.pack("<II", *ratio.as_integer_ratio()))
    return tag, _RATIONAL, len(values), b"".join(parts)


def insert_exif(jpeg: bytes, exif: bytes) -> bytes:
    """Insert EXIF into a JPEG, replacing existing EXIF; other segments are unchanged.

    Raises:
        ArchiveError: the input is not a JPEG, or its segments are broken.
    """
    if not jpeg.startswith(_SOI):
        raise ArchiveError("is not a JPEG")
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
        if not _APP0 <= marker <= _APP15 and marker != _COM:
            break  # the rest is for the decoder, and stays unchanged
        whole = jpeg[at : at + 2 + size]
        at += 2 + size
        if marker == _APP1 and whole[4:].startswith(_IDENTIFIER):
            continue
        if marker == _APP0 and len(kept) == 4:
            kept.insert(1, whole)  # JFIF must come first; EXIF readers accept this order
        else:
            kept.append(whole)
    if jpeg[at : at + 1] != b"\xff":
        raise ArchiveError("is a broken JPEG")
    return b"".join([*kept, memoryview(jpeg)[at:]])


@dataclass(frozen=True)
class FoundExif:
    """What a picture's EXIF states; None and "" where it does not.

    Attributes:
        t_ns: time of the picture, epoch ns; only if it is finer than a second.
        latitude_deg, longitude_deg, altitude_m: position.
        exposure_s: exposure time.
        software: the program that wrote it.
        comment: text of the comment.
    """

    t_ns: int | None = None
    latitude_deg: float | None = None
    longitude_deg: float | None = None
    altitude_m: float | None = None
    exposure_s: float | None = None
    software: str = ""
    comment: str = ""


def find_exif(image: bytes) -> bytes:
    """Return the TIFF structure in a JPEG or PNG, or in its beginning; b"" without any."""
    if image.startswith(_SOI):
        at = 2
        while image[at : at + 1] == b"\xff" and image[at + 1 : at + 2] not in (b"", b"\xda"):
            size = int.from_bytes(image[at + 2 : at + 4], "big")
            body = image[at + 4 : at + 2 + size]
            if image[at + 1] == _APP1 and body.startswith(_IDENTIFIER):
                return body[len(_IDENTIFIER) :]
            at += 2 + max(2, size)
    elif image.startswith(_PNG):
        at = len(_PNG)
        while len(image) >= at + 8:
            size, kind = struct.unpack_from(">I4s", image, at)
            if kind == b"eXIf":
                return image[at + 8 : at + 8 + size]
            at += 12 + size
    return b""


def remove_exif(jpeg: bytes) -> bytes:
    """Return a JPEG without its first segment of EXIF."""
    tiff = find_exif(jpeg)
    whole = b"\xff\xe1" + struct.pack(">H", 2 + len(_IDENTIFIER) + len(tiff)) + _IDENTIFIER + tiff
    return jpeg.replace(whole, b"", 1) if tiff else jpeg


def read_exif(tiff: bytes) -> FoundExif:
    """Read a TIFF structure of EXIF; what is damaged counts as missing."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return FoundExif()
    try:
        zero = _read_ifd(tiff, _unpack(order, "I", tiff, 4), order)
        detail = _read_ifd(tiff, zero[_DETAIL], order) if _DETAIL in zero else {}
        places = _read_ifd(tiff, zero[_GPS], order) if _GPS in zero else {}
    except (struct.error, TypeError, KeyError):
        return FoundExif()
    exposure = detail.get(0x829A)
    comment = detail.get(0x9286, b"")
    text = comment[8:].decode("utf-16-le" if order == "<" else "utf-16-be", "replace")
    altitude = _single(places.get(6))
    if altitude is not None and places.get(5) in (1, b"\x01"):
        altitude = -altitude
    return FoundExif(
        _read_time(detail),
        _read_angle(places.get(2), places.get(1), "S"),
        _read_angle(places.get(4), places.get(3), "W"),
        altitude,
        _single(exposure),
        str(zero.get(0x0131, "")),
        text if comment[:7] == b"UNICODE" else "",
    )


def _unpack(order: str, code: str, data: bytes, at: int) -> int:
    value: int = struct.unpack_from(order + code, data, at)[0]
    return value


def _read_ifd(tiff: bytes, at: int, order: str) -> dict[int, Any]:
    """Return the values of a directory by tag: texts, bytes, whole numbers, lists of shares."""
    found: dict[int, Any] = {}
    for number in range(_unpack(order, "H", tiff, at)):
        place = at + 2 + 12 * number
        tag, kind, count = struct.unpack_from(order + "HHI", tiff, place)
        size = _SIZES.get(kind, 0) * count
        start = place + 8 if size <= 4 else _unpack(order, "I", tiff, place + 8)
        raw = tiff[start : start + size]
        if not size or len(raw) != size:
            continue
        if kind == _ASCII:
            found[tag] = raw.rstrip(b"\0").decode("ascii", "replace")
        elif kind == _RATIONAL:
            pairs = struct.unpack(f"{order}{2 * count}I", raw)
            shares = zip(pairs[::2], pairs[1::2], strict=True)
            found[tag] = [above / below if below else None for above, below in shares]
        elif kind in (_SHORT, _LONG) and count == 1:
            found[tag] = _unpack(order, "H" if kind == _SHORT else "I", raw, 0)
        else:
            found[tag] = raw
    return found


def _read_time(detail: Mapping[int, Any]) -> int | None:
    fraction = str(detail.get(0x9291) or detail.get(0x9290) or "").strip()
    offset = str(detail.get(0x9011) or detail.get(0x9010) or "+00:00")
    shift = re.fullmatch(r"([+-])(\d\d):(\d\d)", offset)
    if not fraction.isdecimal() or shift is None:
        return None
    try:
        moment = datetime.strptime(str(detail.get(0x9003)), "%Y:%m:%d %H:%M:%S")
    except ValueError:
        return None
    ahead_s = (int(shift[2]) * 60 + int(shift[3])) * (60 if shift[1] == "+" else -60)
    seconds = int(moment.replace(tzinfo=UTC).timestamp()) - ahead_s
    return seconds * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))


def _read_angle(parts: Any, side: Any, negative: str) -> float | None:
    if not isinstance(parts, list) or len(parts) != 3 or None in parts:
        return None
    angle = float(parts[0] + parts[1] / 60 + parts[2] / 3600)
    return -angle if side == negative else angle


def _single(values: Any) -> float | None:
    return float(values[0]) if isinstance(values, list) and values and values[0] else None
