"""A V4L2 device's queue of memory-mapped buffers, each of one plane or of several."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass
from typing import Any

from drivers.camera.v4l2 import abi


@dataclass(frozen=True, slots=True)
class FilledBuffer:
    """Content of a buffer that the kernel filled.

    Attributes:
        stamp_ns: the kernel's stamp, on the clock that `flags` name.
        taken_ns: time of dequeuing, CLOCK_MONOTONIC.
        flags: the kernel's flags.
        sequence: the frame's number.
        planes: the bytes of each plane; empty if the frame is damaged or lacks a plane.
    """

    stamp_ns: int
    taken_ns: int
    flags: int
    sequence: int
    planes: tuple[bytes, ...]


class BufferQueue:
    """Buffers that a device fills and `take` empties.

    >>> queue = BufferQueue(kernel, fd, abi.CAPTURE)
    >>> queue.start(6)
    >>> filled = queue.take()       # None where no buffer is filled
    >>> queue.close()

    Args:
        kernel: makes the system calls.
        fd: the open device, whose format is set.
        kind: `v4l2_abi.CAPTURE`, or `CAPTURE_PLANES` of a multi-planar device.
        planes: planes of a frame; without effect on a device that is not multi-planar.
    """

    def __init__(self, kernel: abi.Kernel, fd: int, kind: int, planes: int = 1) -> None:
        self._kernel, self._fd, self._kind = kernel, fd, kind
        self._planes = planes if kind == abi.CAPTURE_PLANES else 0
        self._maps: list[list[abi.Mapped]] = []
        self._streaming = False

    def __len__(self) -> int:
        return len(self._maps)

    def start(self, count: int) -> None:
        """Request, map and enqueue up to `count` buffers, and start the stream.

        Raises:
            OSError: the kernel refuses; ENOMEM if it grants no buffer.
        """
        request = abi.RequestBuffers(count=count, type=self._kind, memory=abi.MMAP)
        self._ioctl(abi.REQBUFS, request)
        if not request.count:
            raise OSError(errno.ENOMEM, "no buffers")
        for index in range(request.count):
            buffer = self._buffer(index)
            self._ioctl(abi.QUERYBUF, buffer)
            places = [(buffer.length, buffer.m.offset)]
            if self._planes:
                planes = buffer.m.planes[: self._planes]
                places = [(plane.length, plane.m.mem_offset) for plane in planes]
            maps: list[abi.Mapped] = []
            self._maps.append(maps)
            for length, offset in places:
                maps.append(self._kernel.map(self._fd, length, offset))
            self._ioctl(abi.QBUF, self._buffer(index))
        self._ioctl(abi.STREAMON, abi.BufferType(self._kind))
        self._streaming = True

    def take(self) -> FilledBuffer | None:
        """Copy the next filled buffer and enqueue the buffer again; None without a filled buffer.

        Raises:
            OSError: the kernel's; EIO is a failed transfer, after which the device may recover.
        """
        buffer = self._buffer()
        try:
            self._ioctl(abi.DQBUF, buffer)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            raise
        taken_ns = self._kernel.monotonic_ns()
        parts = [(0, buffer.bytesused)]
        if self._planes:
            planes = buffer.m.planes[: self._planes]
            parts = [(plane.data_offset, plane.bytesused) for plane in planes]
        data: tuple[bytes, ...] = ()
        if not buffer.flags & abi.BUF_ERROR and all(start < end for start, end in parts):
            mapped = zip(self._maps[buffer.index], parts, strict=True)
            data = tuple(bytes(memory[start:end]) for memory, (start, end) in mapped)
        self._ioctl(abi.QBUF, self._buffer(buffer.index))
        stamp = buffer.timestamp
        stamp_ns = stamp.tv_sec * 1_000_000_000 + stamp.tv_usec * 1000
        return FilledBuffer(stamp_ns, taken_ns, buffer.flags, buffer.sequence, data)

    def close(self) -> None:
        """Unmap the buffers and stop the stream; the device may be lost."""
        for mapped in (mapped for maps in self._maps for mapped in maps):
            mapped.close()
        self._maps.clear()
        if self._streaming:
            self._streaming = False
            with contextlib.suppress(OSError):
                self._ioctl(abi.STREAMOFF, abi.BufferType(self._kind))

    def _buffer(self, index: int = 0) -> abi.Buffer:
        buffer = abi.Buffer(index=index, type=self._kind, memory=abi.MMAP)
        if self._planes:
            buffer.m.planes = (abi.Plane * self._planes)()  # ctypes keeps it with the buffer
            buffer.length = self._planes
        return buffer

    def _ioctl(self, request: int, argument: Any) -> None:
        self._kernel.ioctl(self._fd, request, argument)
