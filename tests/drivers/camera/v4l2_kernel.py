"""A capture device that answers V4L2's calls as the kernel does; for tests without hardware.

It keeps the rules that a driver can break: a buffer is filled only while it is queued and the
stream is on, a dequeued one belongs to the user, formats are adjusted and not refused, controls
that an automatic governs are, and a device that is unplugged fails every call with ENODEV.  A
multi-planar device takes only structures of its own type, and buffers with an array of planes.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from drivers.camera.pictures import Note, Shot
from drivers.camera.raw_pictures import RAW_FORMATS
from drivers.camera.v4l2 import abi
from drivers.camera.v4l2.camera import V4l2Camera
from tests.drivers.camera.rig import jpeg
from tests.support.devices import opened

DEVICE = "/dev/video0"
MONOTONIC = abi.BUF_STAMP_MONOTONIC
ROW_BYTES = {form.code: form.row_bytes for form in RAW_FORMATS.values()}
FPS_UNITS = 333_333  # of 10 MHz: the period that a UVC camera tells at 30 Hz


@dataclass
class Frame:
    """What the device gives next; `error` is raised by VIDIOC_DQBUF instead."""

    data: bytes = b""
    sequence: int | None = None  # None: the next
    flags: int = MONOTONIC
    t_ns: int | None = None  # of the stamp; None: now
    planes: tuple[bytes, ...] = ()  # of a multi-planar device, in place of `data`
    data_offset: int = 0  # of every plane, in front of its data
    error: int = 0
    after_ms: float = 1000 / 30
    then: Callable[[FakeDevice], None] | None = None


@dataclass
class FakeControl:
    id: int
    name: bytes
    type: int
    value: int
    minimum: int = 0
    maximum: int = 1
    flags: int = 0
    menu: dict[int, Any] = field(default_factory=dict)
    governed_by: tuple[int, int] | None = None  # locked while that control has that value
    clamps: Callable[[int], int] = lambda value: value


def refuse(number: int) -> OSError:
    return OSError(number, "as the kernel says")


class Mapping:
    def __init__(self, device: FakeDevice, length: int) -> None:
        self.data = bytearray(length)
        self._device = device

    def __getitem__(self, part: slice) -> bytes:
        return bytes(self.data[part])

    def close(self) -> None:
        self._device.mapped -= 1


class FakeDevice:
    """One device, which is also the kernel to a `V4l2Camera`.

    Args:
        frames: what it gives, one after the other; then nothing.
    """

    def __init__(self, *frames: Frame) -> None:
        self.now_ns = 70_000_000_000_000
        self.frames = deque(frames)
        self.formats = {"YUYV": [(640, 480), (64, 48)], "MJPG": [(1280, 720), (64, 48), (64, 32)]}
        self.current = (64, 48, "YUYV")
        self.stride_padding = 0
        self.period = (FPS_UNITS, 10_000_000)
        self.timeperframe = abi.CAP_TIMEPERFRAME
        self.capabilities = abi.CAP_VIDEO_CAPTURE | abi.CAP_STREAMING
        self.driver = b"uvcvideo"
        self.texts: dict[str, str] = {}  # of the kernel's files, by path
        self.granted = 4  # buffers: the kernel may give fewer than requested
        self.planes: tuple[int, ...] = ()  # bytes of a row in each, if it is multi-planar
        self.controls: list[FakeControl] = []
        self.failing: dict[int, int] = {}  # errno by request
        self.present = True
        self.open_error = 0
        self.mapped = self.opened = 0
        self.calls: list[str] = []
        self._buffers: list[dict[int, Mapping]] = []
        self._queued: deque[int] = deque()
        self._streaming = False
        self._sequence = 0

    # What the camera calls

    def open(self, path: str) -> int:
        if self.open_error or path != DEVICE or not self.present:
            raise refuse(self.open_error or errno.ENOENT)
        self.opened += 1
        return 33

    def close(self, fd: int) -> None:
        assert fd == 33
        assert not self._streaming or not self.present
        self.opened -= 1
        self._buffers, self._streaming = [], False
        self._queued.clear()

    def monotonic_ns(self) -> int:
        return self.now_ns

    def read_text(self, path: str) -> str:
        if path not in self.texts:
            raise refuse(errno.ENOENT)
        return self.texts[path]

    def map(self, fd: int, length: int, offset: int) -> Mapping:
        assert fd == 33
        assert offset % 4096 == 0
        self.mapped += 1
        made = Mapping(self, length)
        self._buffers[offset >> 24][offset >> 20 & 15] = made
        return made

    def poll(self, fd: int, timeout_s: float) -> bool:
        assert fd == 33
        assert timeout_s <= 0.2
        if not self.present:
            return True  # POLLERR
        if not self.frames or not self._streaming:
            self.now_ns += round(timeout_s * 1e9)
            return False
        wait_ns = round(self.frames[0].after_ms * 1e6)
        self.now_ns += min(wait_ns, round(timeout_s * 1e9))
        if wait_ns > timeout_s * 1e9:
            self.frames[0].after_ms -= timeout_s * 1e3
            return False
        self.frames[0].after_ms = 0
        return True

    def ioctl(self, fd: int, request: int, argument: Any) -> None:
        assert fd == 33
        name = abi.REQUEST_NAMES[request].removeprefix("VIDIOC_")
        self.calls.append(name)
        if not self.present:
            raise refuse(errno.ENODEV)
        if request in self.failing:
            raise refuse(self.failing[request])
        getattr(self, "_" + name.lower())(argument)

    # What the kernel does

    def _querycap(self, cap: abi.Capability) -> None:
        cap.driver, cap.card, cap.bus_info = self.driver, b"Road Eye 2", b"usb-0000:00:14.0-3"
        cap.capabilities = abi.CAP_DEVICE_CAPS | self.capabilities | 0x800000
        cap.device_caps = self.capabilities

    @property
    def kind(self) -> int:
        return abi.CAPTURE_PLANES if self.planes else abi.CAPTURE

    def _pixels(self, chosen: abi.Format) -> abi.PixelFormat | abi.PlanesFormat:
        self._check_type(chosen.type)
        pixels: abi.PixelFormat | abi.PlanesFormat = chosen.fmt.pix
        return chosen.fmt.pix_mp if self.planes else pixels

    def _check_type(self, kind: int) -> None:
        if kind != self.kind:
            raise refuse(errno.EINVAL)

    def _check_buffer(self, buffer: abi.Buffer) -> None:
        self._check_type(buffer.type)
        if self.planes and not (buffer.m.planes and len(self.planes) <= buffer.length <= 8):
            raise refuse(errno.EINVAL)

    def _enum_fmt(self, description: abi.FormatDescription) -> None:
        self._check_type(description.type)
        if description.index >= len(self.formats):
            raise refuse(errno.EINVAL)
        description.pixelformat = abi.fourcc(list(self.formats)[description.index])

    def _enum_framesizes(self, size: abi.FrameSize) -> None:
        sizes = self.formats[abi.fourcc_name(size.pixel_format)]
        if size.index >= len(sizes):
            raise refuse(errno.EINVAL)
        size.type = abi.FRAME_SIZE_DISCRETE
        size.size[0], size.size[1] = sizes[size.index]

    def _g_fmt(self, chosen: abi.Format) -> None:
        width, height, name = self.current
        pixels = self._pixels(chosen)
        pixels.width, pixels.height, pixels.pixelformat = width, height, abi.fourcc(name)

    def _s_fmt(self, chosen: abi.Format) -> None:
        if self._buffers:
            raise refuse(errno.EBUSY)
        pixels = self._pixels(chosen)
        name = abi.fourcc_name(pixels.pixelformat)
        if name not in self.formats:
            name = next(iter(self.formats))
        width, height = min(
            self.formats[name],
            key=lambda s: abs(s[0] - pixels.width) + abs(s[1] - pixels.height),
        )
        per_pixel = {"YUYV": 2, "UYVY": 2, "RGB3": 3, "BGR3": 3, "MJPG": 0}.get(name, 1)
        row_bytes = ROW_BYTES[name](width) if name in ROW_BYTES else width * per_pixel
        pixels.width, pixels.height, pixels.pixelformat = width, height, abi.fourcc(name)
        if isinstance(pixels, abi.PlanesFormat):
            pixels.num_planes = len(self.planes)
            for plane, row_bytes in zip(pixels.plane_fmt, self.planes, strict=False):
                plane.bytesperline, plane.sizeimage = row_bytes, row_bytes * height
        else:
            pixels.bytesperline = (row_bytes + self.stride_padding) if row_bytes else 0
            pixels.sizeimage = width * height * 3
        self.current = width, height, name

    def _g_parm(self, parameters: abi.StreamParameters) -> None:
        self._check_type(parameters.type)
        capture = parameters.parm.capture
        capture.capability = self.timeperframe
        capture.timeperframe.numerator, capture.timeperframe.denominator = self.period

    def _s_parm(self, parameters: abi.StreamParameters) -> None:
        period = parameters.parm.capture.timeperframe
        asked = period.denominator / period.numerator
        units = min((333_333, 666_666, 2_000_000), key=lambda unit: abs(1e7 / unit - asked))
        self.period = units, 10_000_000
        self._g_parm(parameters)

    def _reqbufs(self, request: abi.RequestBuffers) -> None:
        assert (request.type, request.memory) == (self.kind, abi.MMAP)
        request.count = min(request.count, self.granted)
        self._buffers = [{} for _ in range(request.count)]

    def _querybuf(self, buffer: abi.Buffer) -> None:
        self._check_buffer(buffer)
        if self.planes:
            buffer.length = len(self.planes)
            for k in range(len(self.planes)):
                plane = buffer.m.planes[k]
                plane.length, plane.m.mem_offset = 1_000_000, buffer.index << 24 | k << 20
        else:
            buffer.length, buffer.m.offset = 1_000_000, buffer.index << 24

    def _qbuf(self, buffer: abi.Buffer) -> None:
        self._check_buffer(buffer)
        assert buffer.index not in self._queued
        assert buffer.index < len(self._buffers)
        self._queued.append(buffer.index)

    def _streamon(self, kind: abi.BufferType) -> None:
        self._check_type(kind.type)
        assert len(self._queued) == len(self._buffers)
        assert self.mapped == len(self._buffers) * (len(self.planes) or 1)
        self._streaming, self._sequence = True, 0

    def _streamoff(self, _: abi.BufferType) -> None:
        self._streaming = False
        self._queued.clear()

    def _dqbuf(self, buffer: abi.Buffer) -> None:
        assert self._streaming
        if not self.frames or self.frames[0].after_ms > 0:
            raise refuse(errno.EAGAIN)
        frame = self.frames.popleft()
        if frame.then is not None:
            frame.then(self)
        if frame.error:
            raise refuse(frame.error)
        self._check_buffer(buffer)
        index = self._queued.popleft()
        self._sequence = self._sequence if frame.sequence is None else frame.sequence
        buffer.index, buffer.sequence = index, self._sequence
        for k, part in enumerate(frame.planes or (frame.data,)):
            used = frame.data_offset + len(part)
            self._buffers[index][k].data[frame.data_offset : used] = part
            if self.planes:
                plane = buffer.m.planes[k]
                plane.bytesused, plane.data_offset = used, frame.data_offset
            else:
                buffer.bytesused = used
        buffer.flags = frame.flags
        t_ns = self.now_ns if frame.t_ns is None else frame.t_ns
        buffer.timestamp.tv_sec, rest_ns = divmod(t_ns, 1_000_000_000)
        buffer.timestamp.tv_usec = rest_ns // 1000
        self._sequence = (self._sequence + 1) % (1 << 32)

    # Controls

    def _queryctrl(self, query: abi.QueryControl) -> None:
        after = query.id & ~abi.CTRL_NEXT
        assert query.id & abi.CTRL_NEXT
        later = [control for control in self.controls if control.id > after]
        if not later:
            raise refuse(errno.EINVAL)
        found = min(later, key=lambda control: control.id)
        query.id, query.name, query.type = found.id, found.name, found.type
        query.minimum, query.maximum, query.flags = found.minimum, found.maximum, found.flags

    def _control(self, number: int) -> FakeControl:
        for control in self.controls:
            if control.id == number:
                return control
        raise refuse(errno.EINVAL)

    def _querymenu(self, item: abi.QueryMenu) -> None:
        control = self._control(item.id)
        if item.index not in control.menu:
            raise refuse(errno.EINVAL)
        value = control.menu[item.index]
        if isinstance(value, int):
            item.item.value = value
        else:
            item.item.name = value

    def _g_ctrl(self, argument: abi.Control) -> None:
        control = self._control(argument.id)
        if control.flags & abi.CTRL_WRITE_ONLY:
            raise refuse(errno.EACCES)
        argument.value = control.value

    def _s_ctrl(self, argument: abi.Control) -> None:
        control = self._control(argument.id)
        if control.governed_by is not None:
            number, value = control.governed_by
            if self._control(number).value == value:
                raise refuse(errno.EACCES)
        if not control.minimum <= argument.value <= control.maximum:
            raise refuse(errno.ERANGE)
        control.value = control.clamps(argument.value)


def exposure_controls(automatic: bool = False, units: int = 80) -> list[FakeControl]:
    """A UVC camera's controls of the exposure; the time in units of 100 us."""
    menu = {1: b"Manual Mode", 3: b"Aperture Priority Mode"}
    mode = FakeControl(
        abi.EXPOSURE_AUTO, b"Auto Exposure", abi.TYPE_MENU, 3 if automatic else 1, 0, 3, menu=menu
    )
    time = FakeControl(
        abi.EXPOSURE_ABSOLUTE, b"Exposure Time, Absolute", abi.TYPE_INTEGER, units, 1, 5000
    )
    return [mode, time]


# The camera on it

JPEGS = [jpeg(k, (64, 48)) for k in range(8)]


def camera(device: FakeDevice, **more: Any) -> V4l2Camera:
    return V4l2Camera("front", DEVICE, kernel=device, **more)


def watch(front: V4l2Camera) -> list[Shot | Note]:
    """All that comes before the device is silent for a turn; without the state at the start."""
    events: list[Shot | Note] = []
    while came := front.read(0.2):
        events += came
    assert isinstance(events[0], Note)
    return events[1:]


def record(device: FakeDevice, **more: Any) -> list[Shot | Note]:
    with opened(camera(device, **more)) as front:
        events = watch(front)
    assert (device.mapped, device.opened) == (0, 0)
    return events
