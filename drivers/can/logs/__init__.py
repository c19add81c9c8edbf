"""Logs of CAN buses: .asc and .blf of Vector, .log of candump.

python-can reads these logs, too, but skips unknown entries without a count: stamps before 0,
overload frames, most kinds of error messages, objects outside of containers.  It reads an error
message of candump as a data frame.  candump's format is ``sprint_canframe`` of can-utils (lib.c).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from drivers.can.frames import (
    ERROR,
    EXTENDED,
    FD,
    ID_MASK,
    PASSIVE,
    REMOTE,
    SENT,
    SWITCHED,
    Damaged,
    Frame,
    LogEntry,
    Logged,
    find_fault,
)
from drivers.can.logs.asc import read_asc
from drivers.can.logs.blf import read_blf
from recorder.common.errors import FormatError

SUFFIXES: Final = (".asc", ".blf", ".log")
_CANDUMP: Final = re.compile(
    rb"\((\d{1,12})\.(\d{1,9})\) +([!-~]{1,32}) +([0-9A-Fa-f]{3}|[0-9A-Fa-f]{8})"
    rb"(?:#R(\d{0,2})|#((?:[0-9A-Fa-f]{2})*)|##([0-9A-Fa-f])((?:[0-9A-Fa-f]{2})*))"
    rb"(?:_[9A-Fa-f])?(?: +([RTrt]))?"
)
_LONGEST_LINE: Final = 4096
_LONGEST_NS: Final = 1 << 62


def read_log(path: Path) -> Generator[LogEntry]:
    """Yield the entries of a log.

    Stamps of candump are epoch ns; stamps of .asc and .blf count from the start of the log.

    Raises:
        OSError: the file cannot be read.
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
            yield from read_asc(file)
        else:
            yield from read_blf(file)


def read_candump(file: BinaryIO) -> Iterator[Logged | Damaged]:
    """Yield the frames of a log of ``candump -L`` or ``-l``.

    Raises:
        FormatError: the last line is truncated; names the line.
    """
    number = 0
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
            yield Damaged(f"line {number}: is no frame of candump: {_shown(text)}")
            continue
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
    return None if find_fault(frame) or t_ns > _LONGEST_NS else frame


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("latin-1"))
