"""Logs of CAN buses: .asc and .blf of Vector by python-can, .log of candump by this module.

python-can 4.6 reads candump's logs too, but reads an error message as a data frame unless it is a
bus error, and drops the message's bytes.  The format is ``sprint_canframe`` of can-utils (lib.c).
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from drivers._protocols.can_errors import BUS_ERROR
from drivers._protocols.can_frames import (
    ERROR,
    EXTENDED,
    FD,
    ID_MASK,
    PASSIVE,
    REMOTE,
    SENT,
    SWITCHED,
    Frame,
    fault_of,
)
from recorder.contract.errors import FormatError, SourceError
from recorder.contract.extras import need_extra

SUFFIXES: Final = (".asc", ".blf", ".log")
_CANDUMP: Final = re.compile(
    rb"\((\d{1,12})\.(\d{1,9})\) +([!-~]{1,32}) +([0-9A-Fa-f]{3}|[0-9A-Fa-f]{8})"
    rb"(?:#R(\d{0,2})|#((?:[0-9A-Fa-f]{2})*)|##([0-9A-Fa-f])((?:[0-9A-Fa-f]{2})*))"
    rb"(?:_[9A-Fa-f])?(?: +([RTrt]))?"
)
_OBJECT: Final = struct.Struct("<4sHHLL")
"""Head of an object of BLF: signature, bytes of the head, its version, bytes, type."""
_EVENT: Final = re.compile(rb"\s*\d+\.\d+\s")
"""The begin of an event's line in ASC: its stamp."""
_LONGEST_LINE: Final = 4096
_LONGEST_NS: Final = 1 << 62


class Logged(NamedTuple):
    """A frame of a log, and the channel or interface that it came from."""

    frame: Frame
    channel: str


class Damaged(NamedTuple):
    """A place of a log that has no frame that a bus can carry; the frames behind it can be read."""

    reason: str


def read_log(path: Path) -> Generator[Logged | Damaged]:
    """Yield the frames of a log.

    Stamps of candump are epoch ns; stamps of .asc and .blf count from the start of the log.

    Raises:
        SourceError: python-can is needed and not installed, or the file cannot be read.
        FormatError: the file is of another kind, or is damaged from here on; names the place.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise FormatError(f"is no log of a kind that is read: {', '.join(SUFFIXES)}")
    with path.open("rb") as file:
        if not file.read(1):
            raise FormatError("is empty")
        file.seek(0)
        if kind == ".log":
            yield from read_candump(file)
        elif kind == ".asc":
            yield from _read_asc(file)
        else:
            yield from _read_blf(file)


def read_candump(file: BinaryIO) -> Iterator[Logged | Damaged]:
    """Yield the frames of a log of ``candump -L`` or ``-l``.

    Raises:
        FormatError: the first line is no frame, or the last one is truncated; names the line.
    """
    number, frames = 0, 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        text = line.strip()
        if not text:
            continue
        if not line.endswith(b"\n"):
            raise FormatError(f"line {number}: is truncated")
        found = _CANDUMP.fullmatch(text)
        frame = None if found is None else _candump_frame(found)
        if found is None or frame is None:
            reason = f"line {number}: is no frame of candump: {_shown(text)}"
            if not frames:
                raise FormatError(reason)
            yield Damaged(reason)
            continue
        frames += 1
        yield Logged(frame, found[3].decode())


def _candump_frame(found: re.Match[bytes]) -> Frame | None:
    seconds, fraction, _, identifier, request, data, fd_flags, fd_data, direction = found.groups()
    t_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, b"0"))
    number = int(identifier, 16)
    if len(identifier) == 8 and not number & ERROR:
        number = number & ID_MASK | EXTENDED
    flags = SENT if direction in (b"T", b"t") else 0
    length = None
    if request is not None:
        number, length, payload = number | REMOTE, int(request or b"0"), b""
    elif fd_flags is not None:
        flags |= int(fd_flags, 16) & (SWITCHED | PASSIVE) | FD
        payload = bytes.fromhex(fd_data.decode())
    else:
        payload = bytes.fromhex(data.decode())
    frame = Frame(t_ns, number, payload, flags, length)
    return None if fault_of(frame) or t_ns > _LONGEST_NS else frame


def _read_asc(file: BinaryIO) -> Iterator[Logged | Damaged]:
    lines = _Lines(file)
    text: Any = lines  # io's types ask for more than TextIOWrapper uses
    reader = _reader("ASCReader")(io.TextIOWrapper(text, "latin-1"))
    try:
        for message in _messages(reader, lines):
            if reader.timestamps_format == "relative":
                raise FormatError(
                    "has stamps that are relative to the line before; write it with absolute ones"
                )
            yield message
    finally:
        reader.stop()


def _read_blf(file: BinaryIO) -> Iterator[Logged | Damaged]:
    whole = _WholeReads(file)
    kind = _reader("BLFReader")
    try:
        reader = kind(whole)
    except Exception as error:  # noqa: BLE001  what its parser raises of damaged bytes
        raise FormatError(f"is no BLF: {_reason(error)}") from None
    # Seconds of an epoch as a float have 200 ns; seconds of a log have less than 1 ns.
    reader.start_timestamp = 0.0
    parse = reader._parse_container

    def checked(data: bytes) -> Any:
        _check_objects(reader._tail + data)
        return parse(data)

    reader._parse_container = checked
    yield from _messages(reader, whole)
    if whole.short or reader._tail.strip(b"\0"):
        raise FormatError(f"is truncated at byte {whole.place}")


def _check_objects(data: bytes) -> None:
    """Follow the objects of a container as python-can does, which never ends at one without size.

    Raises:
        FormatError: an object is shorter than its own header.
    """
    at = data.find(b"LOBJ", 0, 8)
    while at >= 0 and at + _OBJECT.size <= len(data):
        _, _, _, size, _ = _OBJECT.unpack_from(data, at)
        if size < _OBJECT.size:
            raise FormatError(f"is damaged: an object of {size} bytes in a container")
        at = data.find(b"LOBJ", at + size, at + size + 8)


def _messages(reader: Any, file: _Lines | _WholeReads) -> Iterator[Logged | Damaged]:
    messages = iter(reader)
    while True:
        try:
            message = next(messages, None)
        except FormatError:
            raise
        except Exception as error:  # noqa: BLE001  what its parser raises of damaged bytes
            raise FormatError(f"is damaged at {file.place_text}: {_reason(error)}") from None
        if message is None:
            return
        frame = _frame(message)
        if fault := frame if isinstance(frame, str) else fault_of(frame):
            yield Damaged(f"{file.place_text}: has {fault}")
            continue
        assert isinstance(frame, Frame)
        channel = message.channel
        yield Logged(frame, str(channel + 1 if isinstance(channel, int) else channel or 1))


def _frame(message: Any) -> Frame | str:
    """A frame of python-can's ``Message``, or why there cannot be one."""
    if not -1e9 < message.timestamp < 4e9:
        return f"the stamp {message.timestamp:g} s"
    if not 0 <= message.arbitration_id <= ID_MASK:
        return f"the identifier {message.arbitration_id:X} of more than 29 bits"
    t_ns = round(message.timestamp * 1e9)
    flags = 0 if message.is_rx else SENT
    if message.is_error_frame:
        return Frame(t_ns, ERROR | BUS_ERROR, bytes(8), flags)
    number = message.arbitration_id | (EXTENDED if message.is_extended_id else 0)
    if message.is_remote_frame:
        return Frame(t_ns, number | REMOTE, b"", flags, message.dlc)
    if message.is_fd:
        flags |= FD | SWITCHED * bool(message.bitrate_switch)
        flags |= PASSIVE * bool(message.error_state_indicator)
    data = bytes(message.data)
    # A classic frame may have a length code of 9 to 15 with its 8 bytes (ISO 11898-1).
    is_whole = len(data) == message.dlc or (not message.is_fd and 8 == len(data) < message.dlc)
    # A line that was cut has fewer bytes than its length: -1 is no length of a frame.
    return Frame(t_ns, number, data, flags, None if is_whole else -1)


def _reader(name: str) -> Any:
    try:
        import can
    except ImportError as error:
        raise SourceError(f"{need_extra('can')}: {error}") from None
    return getattr(can, name)


class _Lines(io.BufferedIOBase):
    """Gives an ASC file line by line, so that a damaged line can be named.

    python-can ends the header at the first line that does not belong to it, and drops that line.
    Where the header has no such line, one is put in front of the first event.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = 0
        self._held: bytes | None = None
        self._has_events = False

    @property
    def place_text(self) -> str:
        return f"line {self._number}"

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1, /) -> bytes:  # noqa: ARG002  a line, whatever is asked for
        if self._held is not None:
            held, self._held = self._held, None
            return held
        line = self._file.readline(_LONGEST_LINE)
        self._number += bool(line)
        if line and not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            raise FormatError(f"line {self._number}: is truncated")
        if not self._has_events and _EVENT.match(line):
            self._has_events, self._held = True, line
            return b"no internal events logged\n"
        return line

    def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002
        return self.read1()


class _WholeReads:
    """Gives a file's bytes, and notes where it has fewer than were asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes = file.seek(0, io.SEEK_END)
        file.seek(0)
        self.short = False
        self.place = 0

    @property
    def place_text(self) -> str:
        return f"byte {self.place}"

    def read(self, size: int) -> bytes:
        self.place = self._file.tell()
        left = self._bytes - self.place
        if size < 0:
            raise FormatError(f"is damaged at byte {self.place}: an object of {size} bytes")
        # Padding may be missing at the end; nothing at all is the end.
        self.short |= 0 < left < size and size > 3
        return self._file.read(min(size, left))

    def close(self) -> None:
        """Do nothing: the file is not ours."""


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("latin-1"))
