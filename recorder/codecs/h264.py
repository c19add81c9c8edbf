"""H.264 access units in Annex B (ITU-T H.264): NAL units, keyframes and picture size.

An access unit is the data of one picture.  All sections are those of H.264 (2021).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError, need_extra
from recorder.common.files import Buffer

START_CODE: Final = b"\0\0\0\1"
SPS: Final = 7
PPS: Final = 8

_IDR = 5
_SEI = 6
_RECOVERY_POINT = 6
_CODED_PICTURE = range(1, 6)
_CHROMA_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)


def nal_units(unit: Buffer) -> Iterator[bytes]:
    """Yield the NAL units of an access unit, without start codes and zeros around them (B.1)."""
    data = bytes(unit)
    for at in _find_starts(data):
        if nal := _read_nal(data, at):
            yield nal


def _read_nal(data: bytes, at: int) -> bytes:
    after = data.find(START_CODE[1:], at)
    return data[at : after if after >= 0 else len(data)].rstrip(b"\0")


def read_nal_type(nal: bytes) -> int:
    """Return the ``nal_unit_type`` (table 7-1)."""
    return nal[0] & 31


def begins_with_start_code(unit: Buffer) -> bool:
    """Return whether a buffer begins with a start code, as Annex B demands."""
    return bytes(unit[:4]) == START_CODE or bytes(unit[:3]) == START_CODE[1:]


def has_picture(unit: Buffer) -> bool:
    """Return whether an access unit has picture data, and not only parameter sets."""
    data = bytes(unit)
    return any(data[at] & 31 in _CODED_PICTURE for at in _find_starts(data) if at < len(data))


def is_key(unit: Buffer) -> bool:
    """Return whether a decoder can begin with an access unit.

    It can with an IDR picture, and with a picture after a recovery point of 0 frames (D.2.8), which
    encoders with open groups of pictures send. Only the NAL units up to the first one of the
    picture are read.
    """
    data = bytes(unit)
    recovers = False
    for at in _find_starts(data):
        kind = data[at] & 31 if at < len(data) else 0
        if kind in _CODED_PICTURE:
            return kind == _IDR or recovers
        recovers |= kind == _SEI and _recovers_at_once(data, at + 1)
    return False


def parameter_sets(unit: Buffer) -> dict[int, list[bytes]]:
    """Return the parameter sets before the picture, by type (`SPS`, `PPS`)."""
    found: dict[int, list[bytes]] = {SPS: [], PPS: []}
    data = bytes(unit)
    for at in _find_starts(data):
        kind = data[at] & 31 if at < len(data) else 0
        if kind in _CODED_PICTURE:
            break
        if kind in found and (nal := _read_nal(data, at)):
            found[kind].append(nal)
    return found


class ParameterSets:
    """Collector of parameter sets, which adds to every keyframe those that it lacks.

    Every keyframe is then decodable alone. Sets with different numbers are kept together: one
    picture may need several.

    Args:
        known: parameter sets with start codes, as an SDP or a container declares them.
    """

    def __init__(self, known: bytes = b"") -> None:
        self._known: dict[int, dict[int, bytes]] = {SPS: {}, PPS: {}}
        self._learn(_collect_sets(known))

    def _learn(self, found: dict[int, dict[int, bytes]]) -> None:
        if all(found.values()):
            self._known = found  # all that is needed from here on
            return
        for kind, sets in found.items():
            for number, nal in sets.items():
                self._known[kind].pop(number, None)
                self._known[kind][number] = nal

    def complete(self, unit: bytes) -> bytes:
        """Return an access unit; add the missing parameter sets if it is a keyframe."""
        found = _collect_sets(unit)
        self._learn(found)
        lacking = {
            kind: b"".join(START_CODE + nal for n, nal in sets.items() if n not in found[kind])
            for kind, sets in self._known.items()
        }
        if not any(lacking.values()) or not is_key(unit):
            return unit
        # Parameter sets come after an access unit delimiter (7.4.1.2.3), and after those that
        # they refer to.
        at = 0
        if (first := next(nal_units(unit), b"")) and read_nal_type(first) == 9:
            at = unit.find(first) + len(first)
        unit = unit[:at] + lacking[SPS] + unit[at:]
        at += len(lacking[SPS])
        for nal in found[SPS].values():
            at = max(at, unit.find(nal) + len(nal))
        return unit[:at] + lacking[PPS] + unit[at:]


def _collect_sets(unit: bytes) -> dict[int, dict[int, bytes]]:
    """Return the parameter sets of an access unit, by type and by number (-1: damaged)."""
    return {
        kind: {_read_number(nal, 24 if kind == SPS else 0): nal for nal in sets}
        for kind, sets in parameter_sets(unit).items()
    }


def _read_number(nal: bytes, before: int) -> int:
    """Read the number of a parameter set, after `before` bits (7.3.2.1.1, 7.3.2.2)."""
    bits = _Bits(nal[1:])
    try:
        bits.bits(before)
        return bits.ue()
    except (IndexError, FormatError):
        return -1


def picture_size(unit: Buffer) -> tuple[int, int] | None:
    """Return (width, height) in pixels by the last SPS of an access unit; None without one.

    Raises:
        FormatError: the parameter set is damaged.
    """
    sets = parameter_sets(unit)[SPS]
    if not sets:
        return None
    try:
        return _read_size(_Bits(sets[-1][1:]))
    except IndexError:
        raise FormatError("the sequence parameter set of H.264 is cut short") from None


class _Bits:
    """Bit reader for a NAL unit's payload, without emulation prevention bytes (7.4.1.1)."""

    def __init__(self, payload: bytes) -> None:
        self._data = payload.replace(b"\0\0\3", b"\0\0")
        self._at = 0

    def bits(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self._data[self._at >> 3] >> (7 - self._at % 8) & 1
            self._at += 1
        return value

    def ue(self) -> int:
        """Read an Exp-Golomb code (9.1)."""
        zeros = 0
        while not self.bits(1):
            zeros += 1
            if zeros > 31:
                raise FormatError("the sequence parameter set of H.264 has an invalid number")
        return (1 << zeros) - 1 + self.bits(zeros)

    def se(self) -> int:
        value = self.ue()
        return (value + 1) // 2 if value % 2 else -(value // 2)


def _read_size(sps: _Bits) -> tuple[int, int]:
    """Return the cropped size (7.3.2.1.1, 7.4.2.1.1)."""
    profile = sps.bits(8)
    sps.bits(16)  # constraints, level
    sps.ue()  # its number
    chroma, separate = 1, 0
    if profile in _CHROMA_PROFILES:
        chroma = sps.ue()
        separate = sps.bits(1) if chroma == 3 else 0
        sps.ue(), sps.ue(), sps.bits(1)  # depths, bypass
        if sps.bits(1):
            for number in range(12 if chroma == 3 else 8):
                if sps.bits(1):
                    _skip_scaling_list(sps, 16 if number < 6 else 64)
    sps.ue()
    order = sps.ue()
    if order == 0:
        sps.ue()
    elif order == 1:
        sps.bits(1), sps.se(), sps.se()
        for _ in range(sps.ue()):
            sps.se()
    sps.ue(), sps.bits(1)  # reference frames, gaps
    width, rows = sps.ue() + 1, sps.ue() + 1
    frames_only = sps.bits(1)
    if not frames_only:
        sps.bits(1)
    sps.bits(1)
    left = right = top = bottom = 0
    if sps.bits(1):
        left, right, top, bottom = sps.ue(), sps.ue(), sps.ue(), sps.ue()
    wide, high = (2 if chroma in (1, 2) else 1), (2 if chroma == 1 else 1)
    if separate:
        wide = high = 1
    fields = 2 - frames_only
    size = width * 16 - wide * (left + right), fields * (rows * 16 - high * (top + bottom))
    if min(size) < 1 or max(size) > 16384:
        raise FormatError(f"the sequence parameter set of H.264 has a size of {size} pixels")
    return size


def _skip_scaling_list(sps: _Bits, count: int) -> None:
    last = following = 8
    for _ in range(count):
        if following:
            following = (last + sps.se()) % 256
        last = following or last


def _find_starts(data: bytes) -> Iterator[int]:
    """Yield where NAL units begin, after their start codes."""
    at = data.find(START_CODE[1:])
    while at >= 0:
        yield at + 3
        at = data.find(START_CODE[1:], at + 3)


def _recovers_at_once(data: bytes, at: int) -> bool:
    """Return whether SEI messages have a recovery point of 0 frames (7.3.2.3.1)."""
    end = data.find(START_CODE[1:], at)
    end = len(data) if end < 0 else end
    while at + 2 < end:
        values = []
        for _ in range(2):  # type, size
            value = 0
            while at < end and data[at] == 0xFF:
                value, at = value + 255, at + 1
            if at >= end:
                return False
            values.append(value + data[at])
            at += 1
        kind, size = values
        if kind == _RECOVERY_POINT and size and at < end:
            return data[at] >= 0x80  # recovery_frame_cnt is ue: a first bit of 1 is 0
        at += size
    return False


class H264Decoder:
    """Decoder of consecutive access units, the first of them a keyframe.

    ::

        decoder = H264Decoder()
        for unit in units:
            frame = decoder.decode(unit, where)
        picture = rgb_pixels(frame)           # u1 [height, width, 3]

    Pictures must come in display order (no B-frames), so that every access unit gives its picture
    at once.

    Raises:
        FormatError: PyAV is not installed.
    """

    def __init__(self) -> None:
        try:
            import av
        except ImportError as error:
            raise FormatError(f"decoding H.264 {need_extra('rtsp')}: {error}") from None
        av.logging.set_level(None)
        self._av = av
        self._context: Any = av.CodecContext.create("h264", "r")
        self._context.thread_count = 1  # threads delay pictures
        # A damaged slice is an error, not a picture with repaired parts.
        self._context.options = {"err_detect": "explode", "flags": "+low_delay"}
        self._number = 0

    def decode(self, unit: bytes, where: str) -> Any:
        """Return the picture of an access unit, for `rgb_pixels`.

        Raises:
            FormatError: the access unit does not decode; begin with a keyframe in a new decoder.
        """
        packet = self._av.Packet(unit)
        packet.pts = self._number = self._number + 1
        try:
            frames = self._context.decode(packet) if unit else []
            if not frames:
                frames = self._context.decode(None)
                self._context.flush_buffers()
        except self._av.error.FFmpegError as error:
            raise FormatError(f"{where}: does not decode as H.264: {error.strerror}") from None
        for frame in frames:
            if frame.pts == self._number and not frame.is_corrupt:
                return frame
        raise FormatError(f"{where}: {len(unit)} bytes that do not decode as H.264")

    @property
    def fps(self) -> float | None:
        """Pictures per second, as the parameter sets declare them; None where they do not."""
        rate = self._context.framerate
        return float(rate) if rate else None


def rgb_pixels(frame: Any) -> npt.NDArray[np.uint8]:
    """Return the pixels of a decoder's picture, u1 [height, width, 3]."""
    return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
