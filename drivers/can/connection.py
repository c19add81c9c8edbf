"""Reception of frames from a CAN interface (SocketCAN) or a stand-in, in batches.

A raw socket of AF_CAN gives each frame as ``struct can_frame`` or ``canfd_frame`` (linux/can.h)
with the kernel's stamp, the kernel's count of dropped frames, and the interface's error messages
(linux/can/raw.h, Documentation/networking/can.rst).  A stand-in is a UDP port at which each
datagram is such a structure; all but the opening of the socket is the same.
"""

from __future__ import annotations

import errno
import re
import socket
import struct
from pathlib import Path
from typing import Final

import numpy as np

from drivers.can.errors import ALL_CLASSES
from drivers.can.frames import FD_MTU, Frames, parse_frames
from drivers.kit.udp_socket import Batch, SocketReceiver, parse_address
from recorder.common.errors import DeviceError

FORM: Final = "can:INTERFACE or can:HOST:PORT"
_SOL_CAN_RAW: Final = 101
_ERROR_FILTER, _FD_FRAMES = 2, 5
_IFF_UP: Final = 1
_ARPHRD_CAN: Final = 280
_MSG_DONTROUTE: Final = 4
"""Set in the flags of a frame that this machine sent (Documentation/networking/can.rst, 4.1.7)."""
_ROW_BYTES: Final = 80
"""Room for more than the longest structure, so that a longer one is detected."""
_INTERFACE: Final = re.compile(r"[!-.0-9;-~]{1,15}")
INTERFACES: Final = Path("/sys/class/net")


def parse_stand_in(address: str) -> tuple[str, int] | None:
    """Return host and port of a stand-in's address; None for an interface's name.

    Raises:
        SourceError: the address has neither form.
    """
    if _INTERFACE.fullmatch(address):
        return None
    host, port = parse_address(address, FORM)
    return host or "127.0.0.1", port


def find_interface_fault(name: str, folder: Path = INTERFACES) -> str | None:
    """Return the fault of a CAN interface and the command that repairs it; None without a fault.

    Args:
        name: of the interface.
        folder: that of the kernel's interfaces.
    """
    place = folder / name
    virtual = name.startswith("v")
    bitrate = "" if virtual else " type can bitrate 500000"
    if not place.exists():
        known = sorted(p.name for p in folder.glob("*") if _number(p / "type") == _ARPHRD_CAN)
        there = "there is no CAN interface"
        if known:
            there = f"the CAN interfaces are {', '.join(known)}"
        add = f"; sudo ip link add {name} type vcan adds a virtual one" if virtual else ""
        return f"no interface {name}: {there}{add}"
    if (kind := _number(place / "type")) != _ARPHRD_CAN:
        return f"the interface {name} is no CAN interface (type {kind})"
    if not _number(place / "flags") & _IFF_UP:
        return f"the interface {name} is down: sudo ip link set {name} up{bitrate}" + (
            " (with the bit rate of the bus)" if bitrate else ""
        )
    return None


def is_fd_interface(name: str, folder: Path = INTERFACES) -> bool:
    """Return whether an interface gives frames of CAN FD."""
    return _number(folder / name / "mtu") >= FD_MTU


def _number(path: Path) -> int:
    try:
        return int(path.read_text(), 0)
    except (OSError, ValueError):
        return 0


def open_can_socket(interface: str, fd: bool) -> socket.socket:
    """Return a raw socket that receives all frames and error messages of an interface.

    Raises:
        DeviceError: the kernel has no CAN, or the interface cannot be used; names both.
    """
    try:
        made = socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT):
            reason += "; this kernel has no CAN (modules can, can_raw), or the unit forbids AF_CAN"
        raise DeviceError(f"no CAN socket: {reason}") from None
    try:
        made.setsockopt(_SOL_CAN_RAW, _ERROR_FILTER, struct.pack("=I", ALL_CLASSES))
        if fd:
            made.setsockopt(_SOL_CAN_RAW, _FD_FRAMES, 1)
        made.bind((interface,))
    except OSError as error:
        made.close()
        raise DeviceError(f"cannot be bound: {error.strerror or error}") from None
    return made


def _open_stand_in(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.bind((host, port))
        except BaseException:
            made.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DeviceError(f"cannot be bound: {reason}") from None
    return made


class CanReceiver(SocketReceiver):
    """Receiver of CAN frames in batches.

    >>> with CanReceiver("can0", width=64, buffer_bytes=4 << 20, timeout_s=0.2, batch=512) as can:
    ...     batch = can.receive()
    ...     frames, rows = can.frames(batch)

    Args:
        address: name of an interface, or HOST:PORT of a stand-in.
        width: bytes of a frame's data: 8, or 64 with frames of CAN FD.
        buffer_bytes, timeout_s, batch: as for `SocketReceiver`.

    Raises:
        SourceError: the address has neither form.
        DeviceError: the interface is missing, down, or no CAN interface, or the socket fails.
    """

    def __init__(
        self, address: str, *, width: int, buffer_bytes: int, timeout_s: float, batch: int
    ) -> None:
        self.width = width
        place = parse_stand_in(address)
        if place is None:
            if fault := find_interface_fault(address):
                raise DeviceError(fault)
            made = open_can_socket(address, width > 8)
        else:
            made = _open_stand_in(*place)
        super().__init__(
            made, address, buffer_bytes, timeout_s, packet_bytes=_ROW_BYTES, batch=batch
        )

    def frames(self, batch: Batch) -> tuple[Frames, np.ndarray[tuple[int], np.dtype[np.intp]]]:
        """Return the frames of a batch with the rows that they come from; see `parse_frames`."""
        flags = batch.flags if batch.flags is not None else np.zeros(len(batch), np.int32)
        sent = flags & _MSG_DONTROUTE != 0
        return parse_frames(batch.data, batch.sizes, batch.t_ns, sent, self.width)
