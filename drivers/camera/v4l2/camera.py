"""Cameras at this machine's own ports, through V4L2 (memory-mapped streaming).

A picture's stamp is the kernel's, on CLOCK_MONOTONIC, moved to the end of the exposure as far as
exposure, readout and latency are known (see `Timing`); the state ``stamps`` records the
meaning of the kernel's stamp.  If the kernel's driver uses another clock, the stamp is the time of
dequeuing.  The kernel numbers frames: a gap is a counted loss.  A device's own MJPEG
is passed on unchanged, without the padding after the end of an image, and so is its H.264 with
``codec: copy``; other formats are decoded, raw formats unpacked with all their bits.
"""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Any, Final, TypeVar

from drivers.camera.h264 import H264Pictures
from drivers.camera.pictures import (
    LiveCamera,
    Missing,
    Note,
    Picture,
    Shot,
    make_gap_event,
    trim_jpeg,
)
from drivers.camera.raw_pictures import COPIED_FORMAT, PIXEL_FORMATS, RAW_FORMATS
from drivers.camera.v4l2 import abi
from drivers.camera.v4l2.buffers import BufferQueue, FilledBuffer
from drivers.camera.v4l2.controls import ExposureTime, list_controls, read_controls, set_controls
from drivers.camera.v4l2.pixels import (
    JPEG_FORMATS,
    decode_planes,
    find_layout,
    format_code,
    format_name,
)
from recorder.common.errors import DeviceError, SourceError, StreamChangedError

EXPOSURE_START: Final = "kernel, start of exposure"
TRANSFER_START: Final = "kernel, start of transfer"
FRAME_END: Final = "kernel, end of frame"
ARRIVAL: Final = "arrival"

_HARDWARE_STAMPS: Final = "/sys/module/uvcvideo/parameters/hwtimestamps"
_SLACK_NS: Final = 10_000_000_000  # a stamp on CLOCK_MONOTONIC is never older


@dataclass(frozen=True, slots=True)
class Timing:
    """A camera's times that the config states.

    Attributes:
        exposure_ms: exposure time of every picture; None if unknown, or if the device reports it.
        readout_ms: from the first row to the last row of a rolling shutter.
        latency_ms: from the end of the exposure to the stamp; without effect on stamps of the
            exposure's start.
    """

    exposure_ms: float | None = None
    readout_ms: float = 0.0
    latency_ms: float = 0.0

    @property
    def exposure_us(self) -> int | None:
        """The exposure time in us; None if unknown."""
        return None if self.exposure_ms is None else round(self.exposure_ms * 1000)


class Stamps:
    """Exposure ends of one opened device's pictures, in rising order.

    The kernel flags a stamp as the start of the exposure or as the end of the frame's arrival
    (buffer flags, section "Buffers" of the V4L2 documentation).  Linux' USB video driver
    (``uvcvideo``) sets the first flag always, but it stamps the frame's first packet, unless its
    parameter ``hwtimestamps`` is set and the camera reports its own times.

    Args:
        timing: the camera's times.
        flagged: the meaning of stamps with the flag for the start of the exposure.

    Attributes:
        source: the meaning of the last stamp: one of the constants of this module.
    """

    def __init__(self, timing: Timing, flagged: str = EXPOSURE_START) -> None:
        self._timing, self._flagged = timing, flagged
        self._latency_ns = round(timing.latency_ms * 1e6)
        self._readout_ns = round(timing.readout_ms * 1e6)
        self._last_ns = -2
        self.source = ARRIVAL

    def exposure_end_ns(self, filled: FilledBuffer, exposure_us: int | None) -> int:
        """Return the end of the exposure, CLOCK_MONOTONIC ns, later than that of the last picture.

        The end is at the latest the time of dequeuing.
        """
        now_ns = filled.taken_ns
        self.source = self._source(filled, now_ns)
        if self.source == EXPOSURE_START:
            t_ns = filled.stamp_ns + (exposure_us or 0) * 1000 + self._readout_ns
        else:
            t_ns = (now_ns if self.source == ARRIVAL else filled.stamp_ns) - self._latency_ns
        # 2 ns leave a stamp for a gap in between.
        self._last_ns = max(min(t_ns, now_ns), self._last_ns + 2)
        return self._last_ns

    def _source(self, filled: FilledBuffer, now_ns: int) -> str:
        monotonic = filled.flags & abi.BUF_STAMP_MASK == abi.BUF_STAMP_MONOTONIC
        if not monotonic or not 0 <= now_ns - filled.stamp_ns < _SLACK_NS:
            return ARRIVAL
        early = filled.flags & abi.BUF_SOURCE_MASK == abi.BUF_SOURCE_EXPOSURE
        return self._flagged if early else FRAME_END

    def state(self, exposure: float | str | None) -> dict[str, Any]:
        """Describe the last stamp: its meaning, and the terms in ms that were added to it.

        Args:
            exposure: the exposure time in ms, or where it is recorded; None if unknown.
        """
        timing, added = self._timing, {}
        if self.source == EXPOSURE_START:
            added = {"exposure": exposure, "readout": timing.readout_ms}
        else:
            added = {"latency": -timing.latency_ms}
        added = {name: value for name, value in added.items() if value}
        return {"stamps": self.source} | ({"stamps_added_ms": added} if added else {})


def describe_flagged(kernel: abi.Kernel, driver: str) -> str:
    """Return the meaning of stamps that a kernel driver flags as the start of the exposure."""
    if driver != "uvcvideo":
        return EXPOSURE_START
    try:
        measured = kernel.read_text(_HARDWARE_STAMPS).strip() not in ("", "0")
    except OSError:
        measured = False
    return EXPOSURE_START if measured else TRANSFER_START


T = TypeVar("T")

_BUFFERS = 6
_OPEN_S = 4.0  # longest wait for a first picture
_IO_ERRORS = 8  # consecutive errors that a present device may report
_SEQUENCES = 1 << 32
_LONGEST_GAP = 1 << 20
_RATE_SLACK = 0.01
_MOST = 1000

_REASONS = {
    errno.ENOENT: "no such device",
    errno.ENXIO: "no such device",
    errno.ENODEV: "no such device",
    errno.EACCES: "may not be opened by this user; members of the group 'video' may",
    errno.EBUSY: "is in use by another program",
    errno.ENOTTY: "is not a V4L2 device",
    errno.ENOMEM: "has no memory for pictures",
    errno.ENOSPC: "the bus has no bandwidth left; use another USB port, size or rate",
}


class V4l2Camera(LiveCamera):
    """One capture device.

    Args:
        name: the sensor's name.
        path: ``/dev/videoN``, or a link to it.
        size: requested (width, height); None: the device's present setting.
        fps: requested rate; None: the device's present setting.
        pixel_format: one of `PIXEL_FORMATS`; None: the first that the device offers.
        controls: values by the names that ``v4l2-ctl --list-ctrls`` shows.
        copying: the device's H.264 is recorded as it is.
        timing: the camera's times that the config states.
        timeout_s: time without a picture after which the device is lost.
        kernel: makes the system calls.
    """

    def __init__(
        self,
        name: str,
        path: str,
        *,
        size: tuple[int | None, int | None] = (None, None),
        fps: float | None = None,
        pixel_format: str | None = None,
        controls: Mapping[str, Any] | None = None,
        copying: bool = False,
        timing: Timing | None = None,
        timeout_s: float = 5.0,
        kernel: abi.Kernel | None = None,
    ) -> None:
        self.where = f"{name}: v4l2:{path}"
        self._path = path
        self._wanted_size = size
        self._wanted_fps = fps
        self._wanted_format = pixel_format
        self._copying = copying
        self._wanted_controls = dict(controls or {})
        self._timing = timing or Timing()
        self._timeout_s = timeout_s
        self._kernel: abi.Kernel = kernel or abi.LinuxKernel()
        self._fd = -1
        self._queue: BufferQueue | None = None

    def open(self) -> None:
        self._events: list[Shot | Note] = []
        self._sequence: int | None = None
        self._video = H264Pictures(self.where)
        self._io_errors = 0
        self._changed: StreamChangedError | None = None
        try:
            try:
                self._fd = self._kernel.open(self._path)
                self._identify()
                self._choose_format()
                self._choose_rate()
                self._choose_controls()
                self._start()
            except OSError as error:
                raise self._trouble(error) from None
            self._first_picture()
        except BaseException:
            self.close()
            raise

    def read(self, timeout_s: float) -> list[Shot | Note]:
        if self._fd < 0:
            raise DeviceError(f"{self.where}: read before open")
        if not self._events:
            if self._changed is not None:
                raise self._changed
            try:
                if self._kernel.poll(self._fd, timeout_s):
                    self._dequeue()
            except OSError as error:
                raise self._trouble(error) from None
            now_ns = self._kernel.monotonic_ns()
            if self._events:
                self._alive_ns = now_ns
            elif self._changed is not None:
                raise self._changed
            elif now_ns - self._alive_ns > self._timeout_s * 1e9:
                raise DeviceError(f"{self.where}: no picture for {self._timeout_s:g} s")
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        if self._fd < 0:
            return
        if self._queue is not None:
            self._queue.close()
            self._queue = None
        fd, self._fd = self._fd, -1
        self._kernel.close(fd)

    # Setting up

    def _ioctl(self, request: int, argument: Any) -> None:
        self._kernel.ioctl(self._fd, request, argument)

    def _trouble(self, error: OSError) -> DeviceError:
        number = error.errno or 0
        return DeviceError(f"{self.where}: {_REASONS.get(number) or os.strerror(number)}")

    def _identify(self) -> None:
        capability = abi.Capability()
        self._ioctl(abi.QUERYCAP, capability)
        can = capability.capabilities
        if can & abi.CAP_DEVICE_CAPS:
            can = capability.device_caps
        if can & abi.CAP_VIDEO_CAPTURE:
            self._kind = abi.CAPTURE
        elif can & abi.CAP_VIDEO_CAPTURE_MPLANE:
            self._kind = abi.CAPTURE_PLANES
        else:
            raise SourceError(
                f"{self.where}: gives no pictures (a camera's second node gives only metadata)"
            )
        if not can & abi.CAP_STREAMING:
            raise SourceError(f"{self.where}: does not stream")
        self.settings = {
            "card": capability.card.decode("utf-8", "replace"),
            "driver": capability.driver.decode("utf-8", "replace"),
        }
        self._stamps = Stamps(self._timing, describe_flagged(self._kernel, self.settings["driver"]))
        self._bus = capability.bus_info.decode("utf-8", "replace")

    def _offered_formats(self) -> list[str]:
        formats = (abi.FormatDescription(index=k, type=self._kind) for k in range(_MOST))
        listed = self._list(abi.ENUM_FMT, formats, (errno.EINVAL,))
        return [format_name(description.pixelformat) for description in listed]

    def _offered_sizes(self, name: str) -> list[tuple[int, int]]:
        """Return the sizes that a device lists for a format; empty if it lists a range."""
        sizes = (abi.FrameSize(index=k, pixel_format=format_code(name)) for k in range(_MOST))
        listed = self._list(abi.ENUM_FRAMESIZES, sizes, (errno.EINVAL, errno.ENOTTY))
        discrete = takewhile(lambda found: found.type == abi.FRAME_SIZE_DISCRETE, listed)
        return [(found.size[0], found.size[1]) for found in discrete]

    def _list(self, request: int, items: Iterable[T], end: Sequence[int]) -> Iterator[T]:
        """Yield structures as the device fills them in, until an error that ends its list."""
        for item in items:
            try:
                self._ioctl(request, item)
            except OSError as error:
                if error.errno in end:
                    return
                raise
            yield item

    def _choose_format(self) -> None:
        offered = self._offered_formats()
        possible = [COPIED_FORMAT] if self._copying else PIXEL_FORMATS[:-1]
        usable = [n for n in possible if n in offered and self._wanted_format in (None, n)]
        if not usable:
            known = [name for name in possible if name not in RAW_FORMATS]
            wanted = self._wanted_format or " or ".join(known)
            wanted += "" if self._wanted_format or self._copying else ", nor a supported raw format"
            raise SourceError(
                f"{self.where}: offers {', '.join(offered) or 'no format'}, but not {wanted}"
            )
        name = usable[0]
        chosen, pixels = self._empty_format()
        self._ioctl(abi.G_FMT, chosen)
        sizes = self._offered_sizes(name)
        width, height = self._choose_size(sizes, (pixels.width, pixels.height))
        # A new structure, so that no field of the previous format remains (strides, colours).
        chosen, pixels = self._empty_format()
        pixels.width, pixels.height, pixels.pixelformat = width, height, format_code(name)
        self._ioctl(abi.S_FMT, chosen)
        got = pixels.width, pixels.height
        if format_name(pixels.pixelformat) != name or any(
            wanted not in (None, given)
            for wanted, given in zip(self._wanted_size, got, strict=True)
        ):
            listed = ", ".join(f"{w}x{h}" for w, h in sizes)
            raise SourceError(
                f"{self.where}: gives {format_name(pixels.pixelformat)} {got[0]}x{got[1]} "
                f"instead of the requested {name} {width}x{height}"
                + (f"; it offers {listed}" if listed else "")
            )
        self.size = got
        self.jpegs = name in JPEG_FORMATS
        self._layout = find_layout(self.where, name, pixels)
        self.raw = None if self._layout.raw is None else self._layout.raw.pixels
        self.settings = {**self.settings, "pixel_format": name}

    def _empty_format(self) -> tuple[abi.Format, abi.PixelFormat | abi.PlanesFormat]:
        """Return an empty format, and its part for this kind of device."""
        made = abi.Format(type=self._kind)
        return made, made.fmt.pix if self._kind == abi.CAPTURE else made.fmt.pix_mp

    def _choose_size(
        self, sizes: list[tuple[int, int]], current: tuple[int, int]
    ) -> tuple[int, int]:
        width, height = self._wanted_size
        if width is None and height is None:
            return current
        if width is not None and height is not None:
            return width, height
        # Only one is given: the largest listed size that matches, or else in proportion.
        fitting = [s for s in sizes if width in (None, s[0]) and height in (None, s[1])]
        if fitting:
            return max(fitting)
        if width is None:
            assert height is not None
            return round(current[0] * height / max(1, current[1])), height
        return width, round(current[1] * width / max(1, current[0]))

    def _choose_rate(self) -> None:
        self.fps = None
        parameters = abi.StreamParameters(type=self._kind)
        try:
            self._ioctl(abi.G_PARM, parameters)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTTY):
                raise
            self.fps = self._wanted_fps
            return
        capture = parameters.parm.capture
        if self._wanted_fps is not None and capture.capability & abi.CAP_TIMEPERFRAME:
            capture.timeperframe.numerator = 1_000_000
            capture.timeperframe.denominator = round(self._wanted_fps * 1_000_000)
            self._ioctl(abi.S_PARM, parameters)
        period = capture.timeperframe
        if period.numerator and period.denominator:
            self.fps = period.denominator / period.numerator
        wanted = self._wanted_fps
        if wanted is not None and (
            self.fps is None or abs(self.fps - wanted) > wanted * _RATE_SLACK
        ):
            granted = "does not report its rate" if self.fps is None else f"gives {self.fps:g}"
            self._warn(f"requested {wanted:g} pictures a second, the device {granted}")

    def _choose_controls(self) -> None:
        known = list_controls(self._ioctl)
        set_controls(self._ioctl, known, self._wanted_controls, self.where)
        now = read_controls(self._ioctl, known)
        values: dict[str, Any] = {"controls": now, "bus": self._bus, **self.settings}
        differ = {
            name: {"asked": known[name].shown(known[name].wanted(name, asked)), "is": now.get(name)}
            for name, asked in self._wanted_controls.items()
        }
        differ = {name: pair for name, pair in differ.items() if pair["asked"] != pair["is"]}
        if differ:
            values["controls_differ"] = differ
            for name, pair in differ.items():
                self._warn(f"controls.{name}: {pair['asked']} requested, {pair['is']} set")
        self._state = values
        self._exposure = ExposureTime(self._ioctl, known)
        self.reports_exposure = self._timing.exposure_ms is None and self._exposure.us is not None

    def _warn(self, text: str) -> None:
        print(f"{self.where}: {text}", file=sys.stderr)

    def _start(self) -> None:
        self._queue = BufferQueue(self._kernel, self._fd, self._kind, len(self._layout.planes) or 1)
        self._queue.start(_BUFFERS)

    def _first_picture(self) -> None:
        """Wait for a first complete picture; damaged pictures before it are not counted."""
        start_ns = self._alive_ns = self._kernel.monotonic_ns()
        timeout_s, self._timeout_s = self._timeout_s, math.inf
        first: list[Shot | Note] = []
        try:
            while not first:
                if self._kernel.monotonic_ns() - start_ns > _OPEN_S * 1e9:
                    raise DeviceError(f"{self.where}: no whole picture within {_OPEN_S:g} s")
                first = list(dropwhile(_is_incomplete, self.read(0.2)))
        finally:
            self._timeout_s = timeout_s
        self.size = self._video.size if self._copying else self.size
        self._events = [Note(first[0].t_ns, {**self._state, **self._stamps_state()}), *first]

    def _stamps_state(self) -> dict[str, Any]:
        reported = "channel exposure" if self.reports_exposure else None
        return self._stamps.state(self._timing.exposure_ms or reported)

    # Pictures

    def _dequeue(self) -> None:
        """Process the buffers that the kernel has filled."""
        assert self._queue is not None
        for number in range(len(self._queue)):
            try:
                filled = self._queue.take()
            except OSError as error:
                # The kernel reports a lost signal or a failed transfer; the device may recover.
                self._io_errors += error.errno == errno.EIO
                if error.errno != errno.EIO or self._io_errors >= _IO_ERRORS:
                    raise
                return
            if filled is None:
                return
            self._io_errors = 0
            if self._exposure.automatic and self.reports_exposure and not number:
                self._exposure.update()
            if self._changed is None:
                self._add(filled)

    def _add(self, filled: FilledBuffer) -> None:
        exposure_us = self._exposure.us if self.reports_exposure else self._timing.exposure_us
        before = None if self._sequence is None else self._stamps.source
        t_ns = self._stamps.exposure_end_ns(filled, exposure_us)
        picture: Picture | None
        if not filled.planes:
            picture = Missing("the device says that the picture is damaged")
        elif self.jpegs or self._copying:
            try:
                if self.jpegs:
                    picture = trim_jpeg(self.where, filled.planes[0], self.size)
                else:
                    picture = self._video.take(filled.planes[0])
            except StreamChangedError as error:
                self._changed = error
                return
        elif not self._layout.fits(filled.planes):
            size = sum(map(len, filled.planes))
            picture = Missing(f"{size} bytes of a picture of {self._layout.size}")
        else:
            picture = decode_planes(filled.planes, self._layout)
        self._count_gap(t_ns, filled.sequence)
        if before not in (None, self._stamps.source):
            self._events.append(Note(t_ns, self._stamps_state()))
        if picture is not None:
            self._events.append(Shot(t_ns, picture, exposure_us=exposure_us))

    def _count_gap(self, t_ns: int, sequence: int) -> None:
        before, self._sequence = self._sequence, sequence
        if before is None or sequence == before:  # a kernel driver that does not count
            return
        gap = (sequence - before - 1) % _SEQUENCES
        if gap:
            lost = gap if gap < _LONGEST_GAP else None
            self._events.append(make_gap_event("kernel", t_ns - 1, before, sequence, lost))


def _is_incomplete(event: Shot | Note) -> bool:
    return isinstance(event, Note) or isinstance(event.picture, Missing)
