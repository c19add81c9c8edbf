"""Logs of CAN buses in Vector's BLF: binary objects, most of them in compressed containers.

Layouts of the objects as in Vector's binlog_objects.h, which public readers (vector_blf by Tobias
Lorenz, python-can) follow.  Every object of CAN is a frame, an error message, or damaged; the kinds
of all others are named.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from drivers.can.errors import BUS_ERROR, CONTROLLER, OVERLOAD_DATA, OVERRUN_DATA, PROTOCOL
from drivers.can.frames import (
    ERROR,
    EXTENDED,
    FD,
    PASSIVE,
    REMOTE,
    SENT,
    SWITCHED,
    Damaged,
    Frame,
    LogEntry,
    OtherEvent,
    decode_length,
    make_entry,
    make_identifier,
)
from recorder.common.errors import FormatError

_FILE: Final = struct.Struct("<4sL")
_OBJECT: Final = struct.Struct("<4sHHLL")
"""Signature, bytes of the head, its version, bytes of the object, its type."""
_TIMES: Final = {1: struct.Struct("<L4xQ"), 2: struct.Struct("<L4xQ8x")}
"""Flags and stamp behind it, by the version of the head."""
_CONTAINER: Final = struct.Struct("<H6xL4x")
_MESSAGE: Final = struct.Struct("<HBBL")
_FD_MESSAGE: Final = struct.Struct("<HBBL5xBB5x")
_FD_MESSAGE_64: Final = struct.Struct("<BBBxL4xL18xBB4x")
_OVERRUN: Final = struct.Struct("<LH")
_DATA_LOST: Final = struct.Struct("<4x8xL")
_TEN_MICROSECONDS: Final = 1
_SENT, _REMOTE = 0x01, 0x80
_CAN_BUS: Final = 1

_CONTAINER_TYPE: Final = 10
_ERROR_TYPES: Final = {2: "<H", 73: "<H", 104: "<B"}
"""CAN_ERROR, CAN_ERROR_EXT, CAN_FD_ERROR_64; they begin with their channel."""
_OVERLOAD_TYPE, _OVERRUN_TYPE, _DATA_LOST_TYPE = 3, 91, 126
_FRAME_TYPES: Final = (1, 86, 100, 101)
"""CAN_MESSAGE, CAN_MESSAGE2, CAN_FD_MESSAGE, CAN_FD_MESSAGE_64."""
_CAN_TYPES: Final = frozenset(
    (*_ERROR_TYPES, *_FRAME_TYPES, _OVERLOAD_TYPE, _OVERRUN_TYPE, _DATA_LOST_TYPE)
)
_NAMES: Final = {
    4: "CAN_STATISTIC", 5: "APP_TRIGGER", 6: "ENV_INTEGER", 7: "ENV_DOUBLE", 8: "ENV_STRING",
    9: "ENV_DATA", 11: "LIN_MESSAGE", 31: "CAN_DRIVER_ERROR", 65: "APP_TEXT",
    71: "ETHERNET_FRAME", 72: "SYSTEM_VARIABLE", 74: "CAN_DRIVER_ERROR_EXT", 92: "EVENT_COMMENT",
    96: "GLOBAL_MARKER", 115: "RESERVED", 120: "ETHERNET_FRAME_EX", 125: "DATA_LOST_BEGIN",
}  # fmt: skip

_CHUNK: Final = 1 << 20
_MOST_OBJECT: Final = 1 << 28


class _Object(NamedTuple):
    """An object: where it begins in its stream, and its bytes with the head."""

    at: int
    version: int
    kind: int
    data: bytes


class _Objects:
    """Parser of objects in bytes that come in pieces, with up to 4 bytes of padding between two.

    Attributes:
        at: number of the rest's first byte.
        rest: bytes that do not complete an object yet.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self.at = 0
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[_Object]:
        """Yield the objects that the bytes complete.

        Raises:
            FormatError: no object begins, or an object is shorter than its head.
        """
        data, at = self.rest + data, 0
        while (start := data.find(b"LOBJ", at, at + 8)) >= 0 and start + 16 <= len(data):
            _, _, version, size, kind = _OBJECT.unpack_from(data, start)
            if not _OBJECT.size <= size <= _MOST_OBJECT:
                raise FormatError(f"is damaged: an object of {size} bytes {self._place}")
            if start + size > len(data):
                break
            at = start + size
            yield _Object(self.at + start, version, kind, data[start:at])
        self.rest, self.at = data[at:], self.at + at
        if start < 0 and len(self.rest) >= 8:
            raise FormatError(f"is damaged: no object begins at byte {self.at} {self._place}")


def read_blf(file: BinaryIO) -> Iterator[LogEntry]:
    """Yield the entries of a log, with stamps in ns from the start of the log.

    Raises:
        FormatError: the file is no BLF, is damaged from here on, or is truncated.
    """
    head = file.read(_FILE.size)
    if len(head) < _FILE.size or not head.startswith(b"LOGG"):
        raise FormatError("is no BLF: it does not begin with LOGG")
    start = max(_FILE.unpack(head)[1], _FILE.size)
    file.seek(start)
    outer, inner = _Objects("of the file"), _Objects("in a container")
    while chunk := file.read(_CHUNK):
        for found in outer.feed(chunk):
            place = f"byte {start + found.at}"
            if found.kind == _CONTAINER_TYPE:
                yield from _read_container(found.data, inner, place)
            else:
                yield _entry(found, place)
    if rest := outer.rest.lstrip(b"\0"):
        place = f"byte {start + outer.at}"
        if rest[12:16] == _CONTAINER_TYPE.to_bytes(4, "little"):
            yield from _read_container(rest, inner, place)
        raise FormatError(f"is truncated at {place}")
    if inner.rest.strip(b"\0"):
        raise FormatError("is truncated in its last container")


def _read_container(data: bytes, inner: _Objects, place: str) -> Iterator[LogEntry]:
    at = _OBJECT.size + _CONTAINER.size
    if len(data) < at:
        raise FormatError(f"is damaged at {place}: a container of {len(data)} bytes")
    method, _ = _CONTAINER.unpack_from(data, _OBJECT.size)
    for part in _decompress(data[at:], method, place):
        for found in inner.feed(part):
            yield _entry(found, f"{place}, byte {found.at} of the objects")


def _decompress(data: bytes, method: int, place: str) -> Iterator[bytes]:
    if method == 0:
        yield data
        return
    if method != 2:
        raise FormatError(f"is damaged at {place}: compression {method} is not known")
    deflated = zlib.decompressobj()
    try:
        while data and not deflated.eof:
            yield deflated.decompress(data, _CHUNK)
            data = deflated.unconsumed_tail
    except zlib.error as error:
        raise FormatError(f"is damaged at {place}: {error}") from None


def _entry(found: _Object, place: str) -> LogEntry:
    kind, times = found.kind, _TIMES.get(found.version)
    if kind not in _CAN_TYPES:
        return OtherEvent(_NAMES.get(kind, f"object type {kind}"))
    try:
        if times is None:
            raise ValueError
        unit, stamp = times.unpack_from(found.data, _OBJECT.size)
        t_ns = stamp * 10_000 if unit == _TEN_MICROSECONDS else stamp
        return _can_entry(found, t_ns, _OBJECT.size + times.size, place)
    except (struct.error, ValueError):
        return Damaged(f"{place}: has an object of type {kind} that is no frame")


def _can_entry(found: _Object, t_ns: int, head: int, place: str) -> LogEntry:
    kind, data = found.kind, found.data
    if kind in _ERROR_TYPES:
        (channel,) = struct.unpack_from(_ERROR_TYPES[kind], data, head)
        return make_entry(Frame(t_ns, ERROR | BUS_ERROR, bytes(8)), channel, place)
    if kind == _OVERLOAD_TYPE:
        (channel,) = struct.unpack_from("<H", data, head)
        return make_entry(Frame(t_ns, ERROR | PROTOCOL, OVERLOAD_DATA), channel, place)
    if kind == _OVERRUN_TYPE:
        bus, channel = _OVERRUN.unpack_from(data, head)
        if bus != _CAN_BUS:
            return OtherEvent("OVERRUN_ERROR")
        return make_entry(Frame(t_ns, ERROR | CONTROLLER, OVERRUN_DATA), channel, place)
    if kind == _DATA_LOST_TYPE:
        (count,) = _DATA_LOST.unpack_from(data, head)
        return Damaged(f"{place}: the logging program lost {count} events", max(count, 1))
    return _frame_entry(found, t_ns, head, place)


def _frame_entry(found: _Object, t_ns: int, head: int, place: str) -> LogEntry:
    data, end = found.data, len(found.data)
    if found.kind == 101:
        channel, code, size, number, bits, sent, extra = _FD_MESSAGE_64.unpack_from(data, head)
        at = head + _FD_MESSAGE_64.size
        is_fd, switched, passive = bits & 0x1000, bits & 0x2000, bits & 0x4000
        remote, end = bits & 0x10, extra or end  # other bytes may follow the data
        data = data[at : min(at + size, end)].ljust(size, b"\0")  # zeros may be left out
    elif found.kind == 100:
        channel, bits, code, number, fd_bits, size = _FD_MESSAGE.unpack_from(data, head)
        at = head + _FD_MESSAGE.size
        is_fd, switched, passive = fd_bits & 1, fd_bits & 2, fd_bits & 4
        sent, remote, data = bits & _SENT, bits & _REMOTE, data[at : at + size]
    else:
        channel, bits, code, number = _MESSAGE.unpack_from(data, head)
        at = head + _MESSAGE.size
        is_fd = switched = passive = 0
        sent, remote = bits & _SENT, bits & _REMOTE
        data = data[at : at + decode_length(code, is_fd=False)]
    if (identifier := make_identifier(number & ~EXTENDED, bool(number & EXTENDED))) is None:
        return Damaged(f"{place}: has the identifier {number & ~EXTENDED:X} of more than 29 bits")
    length = decode_length(code, is_fd=bool(is_fd))
    flags = SENT * bool(sent)
    if remote:
        return make_entry(Frame(t_ns, identifier | REMOTE, b"", flags, length), channel, place)
    if len(data) != length:
        raise ValueError
    if is_fd:
        flags |= FD | SWITCHED * bool(switched) | PASSIVE * bool(passive)
    return make_entry(Frame(t_ns, identifier, data, flags), channel, place)
