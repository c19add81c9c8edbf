"""The part of the kernel's V4L2 interface that cameras need: structures and calls.

Source: linux/videodev2.h.  The layouts are those of 64-bit Linux; `tests/conformance`
compares them with the C compiler's layout of the kernel's own header.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import time
from ctypes import c_char, c_int32, c_int64, c_long, c_uint8, c_uint16, c_uint32, c_ulong
from pathlib import Path
from typing import Any, Final, Protocol

CAPTURE: Final = 1  # V4L2_BUF_TYPE_VIDEO_CAPTURE
CAPTURE_PLANES: Final = 9  # V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE
MMAP: Final = 1  # V4L2_MEMORY_MMAP
MOST_PLANES: Final = 8  # VIDEO_MAX_PLANES

CAP_VIDEO_CAPTURE: Final = 0x1
CAP_VIDEO_CAPTURE_MPLANE: Final = 0x1000
CAP_STREAMING: Final = 0x4000000
CAP_DEVICE_CAPS: Final = 0x80000000
CAP_TIMEPERFRAME: Final = 0x1000  # of a captureparm

BUF_ERROR: Final = 0x40
BUF_STAMP_MASK: Final = 0xE000
BUF_STAMP_MONOTONIC: Final = 0x2000
BUF_SOURCE_MASK: Final = 0x70000
BUF_SOURCE_EXPOSURE: Final = 0x10000

CTRL_DISABLED: Final = 0x1
CTRL_READ_ONLY: Final = 0x4
CTRL_WRITE_ONLY: Final = 0x40
CTRL_NEXT: Final = 0x80000000

TYPE_INTEGER, TYPE_BOOLEAN, TYPE_MENU, TYPE_INTEGER_MENU = 1, 2, 3, 9

EXPOSURE_AUTO: Final = 0x9A0901  # V4L2_CID_EXPOSURE_AUTO; the menu's values:
EXPOSURE_AUTOMATIC, EXPOSURE_APERTURE_PRIORITY = 0, 3  # the device chooses the exposure time
EXPOSURE_ABSOLUTE: Final = 0x9A0902  # V4L2_CID_EXPOSURE_ABSOLUTE, in units of 100 us

FRAME_SIZE_DISCRETE: Final = 1

BIG_ENDIAN: Final = 0x80000000  # of a pixel format's code (v4l2_fourcc_be)


def _words(*names: str) -> list[tuple[str, type[c_uint32]]]:
    """Return the declarations of consecutive ``__u32`` fields."""
    return [(name, c_uint32) for name in names]


class Capability(ctypes.Structure):
    """struct v4l2_capability."""

    _fields_ = [
        ("driver", c_char * 16),
        ("card", c_char * 32),
        ("bus_info", c_char * 32),
        *_words("version", "capabilities", "device_caps"),
        ("reserved", c_uint32 * 3),
    ]


class FormatDescription(ctypes.Structure):
    """struct v4l2_fmtdesc."""

    _fields_ = [
        *_words("index", "type", "flags"),
        ("description", c_char * 32),
        *_words("pixelformat", "mbus_code"),
        ("reserved", c_uint32 * 3),
    ]


class FrameSize(ctypes.Structure):
    """struct v4l2_frmsizeenum; stepwise sizes as minimum, maximum, step of width, then height."""

    _fields_ = [
        *_words("index", "pixel_format", "type"),
        ("size", c_uint32 * 6),
        ("reserved", c_uint32 * 2),
    ]


class PixelFormat(ctypes.Structure):
    """struct v4l2_pix_format."""

    _fields_ = _words(
        "width",
        "height",
        "pixelformat",
        "field",
        "bytesperline",
        "sizeimage",
        "colorspace",
        "priv",
        "flags",
        "ycbcr_enc",
        "quantization",
        "xfer_func",
    )


class PlaneFormat(ctypes.Structure):
    """struct v4l2_plane_pix_format."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("sizeimage", c_uint32), ("bytesperline", c_uint32), ("reserved", c_uint16 * 6)]


class PlanesFormat(ctypes.Structure):
    """struct v4l2_pix_format_mplane."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [
        ("width", c_uint32),
        ("height", c_uint32),
        ("pixelformat", c_uint32),
        ("field", c_uint32),
        ("colorspace", c_uint32),
        ("plane_fmt", PlaneFormat * MOST_PLANES),
        ("num_planes", c_uint8),
        ("flags", c_uint8),
        ("ycbcr_enc", c_uint8),
        ("quantization", c_uint8),
        ("xfer_func", c_uint8),
        ("reserved", c_uint8 * 7),
    ]


class _FormatUnion(ctypes.Union):
    _fields_ = [
        ("pix", PixelFormat),
        ("pix_mp", PlanesFormat),
        ("raw_data", c_uint8 * 200),
        ("aligned", c_ulong),
    ]


class Format(ctypes.Structure):
    """struct v4l2_format."""

    _fields_ = [("type", c_uint32), ("fmt", _FormatUnion)]


class Fraction(ctypes.Structure):
    """struct v4l2_fract."""

    _fields_ = [("numerator", c_uint32), ("denominator", c_uint32)]


class CaptureParameters(ctypes.Structure):
    """struct v4l2_captureparm."""

    _fields_ = [
        *_words("capability", "capturemode"),
        ("timeperframe", Fraction),
        *_words("extendedmode", "readbuffers"),
        ("reserved", c_uint32 * 4),
    ]


class _ParametersUnion(ctypes.Union):
    _fields_ = [("capture", CaptureParameters), ("raw_data", c_uint8 * 200)]


class StreamParameters(ctypes.Structure):
    """struct v4l2_streamparm."""

    _fields_ = [("type", c_uint32), ("parm", _ParametersUnion)]


class Control(ctypes.Structure):
    """struct v4l2_control."""

    _fields_ = [("id", c_uint32), ("value", c_int32)]


class QueryControl(ctypes.Structure):
    """struct v4l2_queryctrl."""

    _fields_ = [
        *_words("id", "type"),
        ("name", c_char * 32),
        ("minimum", c_int32),
        ("maximum", c_int32),
        ("step", c_int32),
        ("default_value", c_int32),
        ("flags", c_uint32),
        ("reserved", c_uint32 * 2),
    ]


class _MenuUnion(ctypes.Union):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("name", c_char * 32), ("value", c_int64)]


class QueryMenu(ctypes.Structure):
    """struct v4l2_querymenu."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [
        *_words("id", "index"),
        ("item", _MenuUnion),
        ("reserved", c_uint32),
    ]


class RequestBuffers(ctypes.Structure):
    """struct v4l2_requestbuffers."""

    _fields_ = [
        *_words("count", "type", "memory", "capabilities"),
        ("flags", c_uint8),
        ("reserved", c_uint8 * 3),
    ]


class TimeValue(ctypes.Structure):
    """struct timeval."""

    _fields_ = [("tv_sec", c_long), ("tv_usec", c_long)]


class TimeCode(ctypes.Structure):
    """struct v4l2_timecode."""

    _fields_ = [("type", c_uint32), ("flags", c_uint32), ("values", c_uint8 * 8)]


class _PlaneMemoryUnion(ctypes.Union):
    _fields_ = [("mem_offset", c_uint32), ("userptr", c_ulong), ("fd", c_int32)]


class Plane(ctypes.Structure):
    """struct v4l2_plane; `bytesused` counts the `data_offset` bytes before the data."""

    _fields_ = [
        ("bytesused", c_uint32),
        ("length", c_uint32),
        ("m", _PlaneMemoryUnion),
        ("data_offset", c_uint32),
        ("reserved", c_uint32 * 11),
    ]


class _MemoryUnion(ctypes.Union):
    _fields_ = [
        ("offset", c_uint32),
        ("userptr", c_ulong),
        ("planes", ctypes.POINTER(Plane)),
        ("fd", c_int32),
    ]


class Buffer(ctypes.Structure):
    """struct v4l2_buffer; with several planes `m.planes` points to `length` of them."""

    _fields_ = [
        *_words("index", "type", "bytesused", "flags", "field"),
        ("timestamp", TimeValue),
        ("timecode", TimeCode),
        *_words("sequence", "memory"),
        ("m", _MemoryUnion),
        *_words("length", "reserved2"),
        ("request_fd", c_int32),
    ]


class BufferType(ctypes.Structure):
    """The int argument of VIDIOC_STREAMON and VIDIOC_STREAMOFF."""

    _fields_ = [("type", c_int32)]


_WRITE, _READ = 1, 2


def _request(direction: int, number: int, argument: type[ctypes.Structure]) -> int:
    """Return _IOC of asm-generic/ioctl.h for x86 and ARM; the V4L2 group is 'V'."""
    return direction << 30 | ctypes.sizeof(argument) << 16 | ord("V") << 8 | number


QUERYCAP: Final = _request(_READ, 0, Capability)
ENUM_FMT: Final = _request(_READ | _WRITE, 2, FormatDescription)
G_FMT: Final = _request(_READ | _WRITE, 4, Format)
S_FMT: Final = _request(_READ | _WRITE, 5, Format)
REQBUFS: Final = _request(_READ | _WRITE, 8, RequestBuffers)
QUERYBUF: Final = _request(_READ | _WRITE, 9, Buffer)
QBUF: Final = _request(_READ | _WRITE, 15, Buffer)
DQBUF: Final = _request(_READ | _WRITE, 17, Buffer)
STREAMON: Final = _request(_WRITE, 18, BufferType)
STREAMOFF: Final = _request(_WRITE, 19, BufferType)
G_PARM: Final = _request(_READ | _WRITE, 21, StreamParameters)
S_PARM: Final = _request(_READ | _WRITE, 22, StreamParameters)
G_CTRL: Final = _request(_READ | _WRITE, 27, Control)
S_CTRL: Final = _request(_READ | _WRITE, 28, Control)
QUERYCTRL: Final = _request(_READ | _WRITE, 36, QueryControl)
QUERYMENU: Final = _request(_READ | _WRITE, 37, QueryMenu)
ENUM_FRAMESIZES: Final = _request(_READ | _WRITE, 74, FrameSize)

REQUEST_NAMES: Final = {
    value: f"VIDIOC_{name}"
    for name, value in list(globals().items())
    if isinstance(value, int) and value > 0xFFFF and (value >> 8) & 0xFF == ord("V")
}


class Mapped(Protocol):
    """A buffer shared by the kernel; slices give its bytes."""

    def __getitem__(self, part: slice) -> bytes: ...
    def close(self) -> None: ...


class Kernel(Protocol):
    """The system calls that a V4L2 camera needs; all raise OSError."""

    def open(self, path: str) -> int: ...
    def ioctl(self, fd: int, request: int, argument: Any) -> None: ...
    def map(self, fd: int, length: int, offset: int) -> Mapped: ...
    def read_text(self, path: str) -> str: ...
    def poll(self, fd: int, timeout_s: float) -> bool: ...
    def close(self, fd: int) -> None: ...
    def monotonic_ns(self) -> int: ...


class LinuxKernel:
    """The system calls of this machine."""

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def ioctl(self, fd: int, request: int, argument: Any) -> None:
        while True:
            try:
                fcntl.ioctl(fd, request, argument, True)
            except InterruptedError:
                continue
            return

    def map(self, fd: int, length: int, offset: int) -> Mapped:
        both = mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(fd, length, mmap.MAP_SHARED, both, offset=offset)

    def read_text(self, path: str) -> str:
        return Path(path).read_text("ascii", "replace")

    def poll(self, fd: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s`; return whether a buffer or an error is pending."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1e3))

    def close(self, fd: int) -> None:
        os.close(fd)

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


def fourcc(name: str) -> int:
    """Return a pixel format's code, such as for ``MJPG``."""
    return int.from_bytes(name.encode("ascii").ljust(4), "little")


def fourcc_name(code: int) -> str:
    """Return the four characters of a pixel format's code; ``Y16-BE`` if it is big-endian."""
    name = (code & ~BIG_ENDIAN).to_bytes(4, "little").decode("latin-1").rstrip()
    return name + "-BE" if code & BIG_ENDIAN else name
