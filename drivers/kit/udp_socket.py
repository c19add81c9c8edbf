"""Reception of a device's datagrams in batches, each with its arrival time.

A lidar sends several thousand packets a second, a radar's capture card about ten thousand.  One
system call and one object per packet would cost more than all further processing.  This module
therefore reads all waiting packets of the socket into one array with one ``recvmmsg`` (Linux).  The
kernel's stamps (``SO_TIMESTAMPNS``) are the arrival times, however late this process reads.  The
kernel's count of packets that it dropped because the buffer was full (``SO_RXQ_OVFL``) is reported
too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from recorder.common.errors import DeviceError, SourceError
from recorder.common.files import Closeable

_SO_RCVBUFFORCE: Final = 33
_SO_TIMESTAMPNS: Final = 35
_SO_RXQ_OVFL: Final = 40

_POINTER: Final = np.dtype("=u8")
# struct mmsghdr of 64-bit Linux, identical on all its machines.  The kernel writes two values into
# the control buffer: first the stamp, then, once packets were dropped, the count.
_HEADER: Final = np.dtype(
    {
        "names": ["name", "name_size", "iov", "iov_count", "control", "control_size", "flags",
                  "size"],
        "formats": [_POINTER, "=u4", _POINTER, _POINTER, _POINTER, _POINTER, "=i4", "=u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)  # fmt: skip
_IOVEC: Final = np.dtype([("base", _POINTER), ("size", _POINTER)])
_CONTROL: Final = np.dtype(
    [
        ("stamp_size", "=u8"), ("stamp_level", "=i4"), ("stamp_kind", "=i4"),
        ("s", "=i8"), ("ns", "=i8"),
        ("lost_size", "=u8"), ("lost_level", "=i4"), ("lost_kind", "=i4"),
        ("lost", "=u4"), ("pad", "=u4"),
    ]
)  # fmt: skip
_ADDRESS_BYTES: Final = 28  # of a sockaddr_in6
_BEFORE_NS: Final = 60_000_000_000  # longest time that a packet waits in a socket
_READ_NS: Final = 20_000  # longest undisturbed reading of the clocks
_READS: Final = 20
_STEP_NS: Final = 1_000_000  # more than the clocks' relative drift between two calls


@dataclass(frozen=True, slots=True)
class Batch:
    """Datagrams in the order of arrival.

    Attributes:
        data: u1 [n, packet_bytes]; row k holds datagram k in its first ``sizes[k]`` bytes.  A view
            of the receiver's own memory: valid until its next `receive`.
        sizes: int64 [n], bytes; a longer datagram is cut to its first ``packet_bytes`` bytes.
        t_ns: int64 [n], arrival, CLOCK_MONOTONIC.
        addresses: u1 [n, 28], the senders' ``sockaddr``; see `source`.
        dropped: int64 [n], number of datagrams that the kernel had dropped before the datagram
            arrived, since the socket was bound.
        more: the socket may hold more datagrams.
        flags: int32 [n], ``MSG_*`` of recvmsg(2); None: not known.
    """

    data: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int64]
    t_ns: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint8]
    dropped: npt.NDArray[np.int64]
    more: bool = False
    flags: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def source(self, k: int) -> bytes:
        """Return the address of the sender of datagram k: 4 bytes of IPv4, or 16 of IPv6."""
        raw = bytes(self.addresses[k])
        if int.from_bytes(raw[:2], sys.byteorder) != socket.AF_INET6:
            return raw[4:8]
        return raw[20:24] if raw[8:20] == _MAPPED else raw[8:24]

    def sources(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint16]]:
        """Return the senders' addresses, u1 [n, 16] (IPv4 as ::ffff:a.b.c.d), and ports, u2 [n]."""
        raw = self.addresses
        found = np.zeros((len(raw), 16), np.uint8)
        family = raw[:, :2].copy().view(np.uint16)[:, 0]
        six = family == socket.AF_INET6
        found[six] = raw[six, 8:24]
        found[~six, 10:12] = 0xFF
        found[~six, 12:] = raw[~six, 4:8]
        ports = raw[:, 2:4].astype(np.uint16)
        return found, np.asarray(ports[:, 0] << 8 | ports[:, 1], np.uint16)


_MAPPED: Final = bytes(10) + b"\xff\xff"


class SocketReceiver(Closeable):
    """Reader of a socket's messages in batches, with the kernel's stamps and drop count.

    Args:
        made: the bound socket; it is closed with the receiver, or if the construction fails.
        name: names the socket in messages.
        buffer_bytes: requested receive buffer; see `granted_bytes`.
        timeout_s: how long `receive` waits for a first message.
        packet_bytes: length of the longest useful message; longer messages are cut.
        batch: largest number of messages per call.
        force: exceed ``net.core.rmem_max`` where this process may (CAP_NET_ADMIN).

    Attributes:
        name: as given.
        asked_bytes, granted_bytes: requested and granted size of the socket's buffer.
        overflow: number of messages that the kernel has dropped because the buffer was full.  It
            is updated by the next message that arrives.
    """

    def __init__(
        self,
        made: socket.socket,
        name: str,
        buffer_bytes: int,
        timeout_s: float,
        *,
        packet_bytes: int,
        batch: int,
        force: bool = True,
    ) -> None:
        self._socket, self.name = made, name
        self._fd = made.fileno()
        try:
            self.asked_bytes = buffer_bytes
            self.granted_bytes = _enlarge(made, buffer_bytes, force)
            for option in (_SO_TIMESTAMPNS, _SO_RXQ_OVFL):
                with contextlib.suppress(OSError):
                    made.setsockopt(socket.SOL_SOCKET, option, 1)
        except BaseException:
            made.close()
            raise
        self.overflow = 0
        self._timeout_s = timeout_s
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._buffers(batch, packet_bytes)
        self._offset_ns = _monotonic_offset_ns()
        self._last_ns = 0  # stamp of the newest message

    def _buffers(self, batch: int, packet_bytes: int) -> None:
        self._batch = batch
        self._data = np.empty((batch, packet_bytes), np.uint8)
        self._addresses = np.zeros((batch, _ADDRESS_BYTES), np.uint8)
        self._control = np.zeros(batch, _CONTROL)
        self._iov = np.zeros(batch, _IOVEC)
        self._headers = np.zeros(batch, _HEADER)
        rows = np.arange(batch, dtype=np.uint64)

        def places(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
            return np.asarray(array.ctypes.data + rows * np.uint64(array.strides[0]), np.uint64)

        self._iov["base"], self._iov["size"] = places(self._data), packet_bytes
        self._headers["name"] = places(self._addresses)
        self._headers["iov"], self._headers["iov_count"] = places(self._iov), 1
        self._headers["control"] = places(self._control)
        # The kernel overwrites these fields, so they are set again before each call.
        self._headers["name_size"] = _ADDRESS_BYTES
        self._headers["control_size"] = _CONTROL.itemsize
        self._call = _recvmmsg()
        self._place = ctypes.c_void_p(self._headers.ctypes.data)

    def fileno(self) -> int:
        return self._fd

    def receive(self, timeout_s: float | None = None) -> Batch:
        """Return waiting messages, up to a batch; empty if none arrived within `timeout_s`.

        Raises:
            DeviceError: the socket has failed.
        """
        count = self._take()
        if not count:
            wait_s = self._timeout_s if timeout_s is None else timeout_s
            if wait_s > 0 and self._poll.poll(wait_s * 1e3):
                count = self._take()
        headers = self._headers[:count]
        stamps, dropped = self._stamps(count)
        return Batch(
            self._data[:count],
            headers["size"].astype(np.int64),
            stamps,
            self._addresses[:count],
            dropped,
            count == self._batch,
            headers["flags"].copy(),
        )

    def _take(self) -> int:
        self._headers["control_size"] = _CONTROL.itemsize
        self._headers["name_size"] = _ADDRESS_BYTES
        count = int(self._call(self._fd, self._place, self._batch, socket.MSG_DONTWAIT, None))
        if count >= 0:
            return count
        number = ctypes.get_errno()
        try:
            raise OSError(number, os.strerror(number))
        except (BlockingIOError, InterruptedError, ConnectionRefusedError):
            return 0
        except OSError as error:
            raise DeviceError(f"{self.name}: {error.strerror}") from None

    def _stamps(self, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return `Batch.t_ns` and `Batch.dropped`, and update the count of dropped datagrams."""
        control = self._control[:count]
        now_ns, before_ns = time.monotonic_ns(), self._offset_ns
        self._offset_ns = _monotonic_offset_ns()
        stamps, dropped = np.empty(count, np.int64), np.full(count, self.overflow, np.int64)
        if not count:
            return stamps, dropped
        stamps.fill(now_ns)
        got = self._headers["control_size"][:count]
        stamped = (got >= 32) & (control["stamp_kind"] == _SO_TIMESTAMPNS)
        if stamped.any() and abs(self._offset_ns - before_ns) < _STEP_NS:
            kernel = control["s"] * 1_000_000_000 + control["ns"] + self._offset_ns
            fits = stamped & (kernel <= now_ns) & (kernel > now_ns - _BEFORE_NS)
            np.copyto(stamps, kernel, where=fits)
            # Without a stamp, or by a clock that was set back, a datagram arrived no earlier than
            # the datagrams before it.
            stamps = np.maximum.accumulate(np.where(fits, stamps, stamps[fits].min(initial=now_ns)))
            np.maximum(stamps, self._last_ns, out=stamps)
        self._last_ns = int(stamps[-1])
        counted = stamped & (got >= 52) & (control["lost_kind"] == _SO_RXQ_OVFL)
        if counted.any():
            # The kernel's count has 32 bits.
            more = (control["lost"].astype(np.int64) - self.overflow) & 0xFFFFFFFF
            dropped += np.maximum.accumulate(np.where(counted, more, 0))
            self.overflow = int(dropped[-1])
        return stamps, dropped

    def close(self) -> None:
        self._socket.close()


class UdpReceiver(SocketReceiver):
    """A bound UDP socket with a large receive buffer.

    >>> with UdpReceiver("127.0.0.1", 0, 32 << 20, 0.2) as receiver:
    ...     batch = receiver.receive()          # empty after 0.2 s without data
    ...     for k in range(len(batch)):
    ...         use(batch.t_ns[k], batch.data[k, : batch.sizes[k]])

    Args:
        address: to bind to: ``""`` for all addresses of this machine, a name, or a multicast group,
            which the socket joins.
        port: to bind to; 0 for any free port.
        buffer_bytes: requested receive buffer; see `granted_bytes`.
        timeout_s: how long `receive` waits for a first datagram.
        packet_bytes: length of the longest useful datagram; longer datagrams are cut.
        batch: largest number of datagrams per call.
        interface: address of this machine on the link where the socket joins a group: IPv4, or IPv6
            with its link (``fe80::1%eth0``); "": the route decides.
        force: exceed ``net.core.rmem_max`` where this process may (CAP_NET_ADMIN).

    Attributes:
        address: as given.
        port: the bound port.
        asked_bytes, granted_bytes: requested and granted size of the socket's buffer.
        overflow: number of datagrams that the kernel has dropped because the buffer was full.  It
            is updated by the next datagram that arrives.

    Raises:
        DeviceError: the address or port cannot be bound; the message names them.
    """

    def __init__(
        self,
        address: str,
        port: int,
        buffer_bytes: int,
        timeout_s: float,
        *,
        packet_bytes: int = 65536,
        batch: int = 64,
        force: bool = True,
        interface: str = "",
    ) -> None:
        self.address = address
        made = _bind(address, port, interface)
        self.port = int(made.getsockname()[1])
        super().__init__(
            made,
            f"UDP port {self.port}",
            buffer_bytes,
            timeout_s,
            packet_bytes=packet_bytes,
            batch=batch,
            force=force,
        )


def make_cap_warning(
    receiver: SocketReceiver, name: str, place: str = "", what: str = "packets"
) -> str | None:
    """Return a warning for the user where the kernel granted a smaller buffer than requested."""
    if receiver.granted_bytes >= receiver.asked_bytes:
        return None
    return (
        f"{name}: the kernel gives {place or receiver.name} a receive buffer of "
        f"{receiver.granted_bytes / 1e6:.1f} MB instead of {receiver.asked_bytes / 1e6:.1f} MB, so "
        f"{what} are lost if this machine is busy for a moment; raise the limit "
        f"net.core.rmem_max: sudo sysctl -w net.core.rmem_max={receiver.asked_bytes}"
    )


def parse_address(text: str, form: str) -> tuple[str, int]:
    """Return address and port to receive at; the address "" means all of this machine.

    Args:
        text: ``ADDRESS:PORT``, IPv6 in brackets; an address ``*`` or ``0.0.0.0`` means all.
        form: the form of the source, for the message.

    Raises:
        SourceError: the text has another form.
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not port or parts.path or parts.query or parts.fragment or parts.username is not None:
        raise SourceError(f"is not of the form {form}")
    return ("" if host in ("0.0.0.0", "*") else host), port


def is_multicast(address: str) -> bool:
    """Return whether an address is a multicast group."""
    try:
        return ipaddress.ip_address(address).is_multicast
    except ValueError:
        return False


def _bind(address: str, port: int, interface: str) -> socket.socket:
    try:
        flags = socket.AI_PASSIVE
        found = socket.getaddrinfo(address or None, port, type=socket.SOCK_DGRAM, flags=flags)
        family, _, _, _, where = min(found, key=lambda one: one[0] != socket.AF_INET)
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if is_multicast(str(where[0])):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.bind(where)
                _join(made, family, where, interface)
            else:
                made.bind(where)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason += " by another sensor or program; each sensor needs ports of its own"
        raise DeviceError(f"UDP {address or '*'}:{port}: cannot be bound: {reason}") from None
    return made


def _join(made: socket.socket, family: int, where: Any, interface: str) -> None:
    group = socket.inet_pton(family, str(where[0]).partition("%")[0])
    if family == socket.AF_INET:
        here = socket.inet_aton(interface) if interface.count(".") == 3 else bytes(4)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + here)
    else:
        link = interface.partition("%")[2]
        scope = where[3] or (socket.if_nametoindex(link) if link else 0)
        request = group + struct.pack("@I", scope)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)


def _enlarge(made: socket.socket, wanted: int, force: bool) -> int:
    """Request a receive buffer; return the bytes that the kernel grants."""
    options = [socket.SO_RCVBUF, *([_SO_RCVBUFFORCE] if force else [])]
    granted = 0
    for option in options:
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, option, min(wanted, 0x7FFFFFFF))
        # The kernel doubles the requested size to have room for its own book-keeping.
        granted = made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        if granted >= wanted:
            break
    return granted


def _monotonic_offset_ns() -> int:
    """Return the offset from CLOCK_REALTIME to CLOCK_MONOTONIC, accurate to about 1 us.

    A thread that loses the processor between the readings of the clocks repeats them.
    """
    took_ns, offset_ns = _READ_NS + 1, 0
    for _ in range(_READS):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if after - before < took_ns or not offset_ns:
            took_ns, offset_ns = after - before, (before + after) // 2 - real
        if took_ns <= _READ_NS:
            break
    return offset_ns


def _recvmmsg() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.recvmmsg
    call.restype = ctypes.c_int
    call.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p,
    ]  # fmt: skip
    return call
