"""Logs of CAN buses in Vector's ASC: text with one event per line.

The events are those of Vector's description of the format (ASC Logging Files Format), as far as
public files and readers show it.  Every line after the header is a frame, an error message, an
event of another kind, or a damaged line; none is skipped without an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from drivers.can.errors import BUS_ERROR, CONTROLLER, OVERLOAD_DATA, OVERRUN_DATA, PROTOCOL
from drivers.can.frames import (
    CLASSIC_BYTES,
    ERROR,
    FD,
    PASSIVE,
    REMOTE,
    SENT,
    SWITCHED,
    Damaged,
    Frame,
    LogEntry,
    OtherEvent,
    make_entry,
    make_identifier,
)
from recorder.common.errors import FormatError

_MOST_LINE: Final = 1 << 16
_EVENT: Final = re.compile(r"\s*(-?)(\d{1,12})(?:\.(\d{1,9})\d*)?\s+(.*)")
_HEADER: Final = re.compile(
    r"\s*(?://|date\b|base\b|begin +triggerblock|end +triggerblock|(?:no +)?internal +events|\Z)",
    re.IGNORECASE,
)
_BASE: Final = re.compile(r"\s*base\s+(hex|dec)(?:\s+timestamps\s+(\w+))?", re.IGNORECASE)
_END: Final = re.compile(r"\s*end\s+triggerblock\s*\Z", re.IGNORECASE)
_NUMBERED: Final = re.compile(r"\bID = (\d{1,10})(x?)")
"""The identifier in decimal behind the data, where the line has the message's name before them."""
_DIRECTIONS: Final = {"rx": 0, "tx": SENT, "txrq": SENT}
_EDL, _REMOTE_FD = 0x1000, 0x10
"""Bits of the column `Flags` of CANFD: a frame of CAN FD; a remote request."""


def read_asc(file: BinaryIO) -> Iterator[LogEntry]:
    """Yield the entries of a log, with stamps in ns from the start of the log.

    Raises:
        FormatError: the stamps are relative to the line before, or the last line is truncated.
    """
    log = _AscLog()
    number = 0
    while line := file.readline(_MOST_LINE):
        number += 1
        text = line.decode("latin-1")
        if not line.endswith(b"\n"):
            if len(line) < _MOST_LINE and not _END.match(text):
                raise FormatError(f"line {number}: is truncated")
            while rest := file.readline(_MOST_LINE):  # such a line is no frame
                if rest.endswith(b"\n"):
                    break
        if (entry := log.entry(text, f"line {number}")) is not None:
            yield entry


class _AscLog:
    """Reader of the lines of one log, in order."""

    def __init__(self) -> None:
        self._base = 16
        self._is_relative = False
        self._has_events = False

    def entry(self, line: str, place: str) -> LogEntry | None:
        """Return the entry of a line; None for the header and lines that only structure the log."""
        event = _EVENT.match(line)
        if event is None:
            if (base := _BASE.match(line)) is not None:
                self._base = 16 if base[1].lower() == "hex" else 10
                self._is_relative = (base[2] or "").lower() == "relative"
            if not self._has_events or _HEADER.match(line):
                return None
            return Damaged(f"{place}: is no event of ASC: {line.strip()[:60]!r}")
        if self._is_relative:
            raise FormatError(
                "has stamps that are relative to the line before; write it with absolute ones"
            )
        self._has_events = True
        sign, seconds, fraction, text = event.groups(default="")
        t_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))
        try:
            return self._event(-t_ns if sign else t_ns, text, place)
        except (ValueError, IndexError):
            return Damaged(f"{place}: is no frame of ASC: {text.strip()[:60]!r}")

    def _event(self, t_ns: int, text: str, place: str) -> LogEntry | None:
        words = text.split()
        kind = words[0].lower() if words else ""
        if kind == "canfd":
            return self._fd_event(t_ns, words[1:], place)
        if kind == "can" and "rx queue overrun" in text.lower():
            return make_entry(Frame(t_ns, ERROR | CONTROLLER, OVERRUN_DATA), int(words[1]), place)
        if not kind.isdigit():
            return None if kind == "start" else _other(words)
        channel, words = int(kind), words[1:]
        kind = words[0].lower()
        if kind == "errorframe":
            return make_entry(Frame(t_ns, ERROR | BUS_ERROR, bytes(8)), channel, place)
        if kind == "overloadframe":
            return make_entry(Frame(t_ns, ERROR | PROTOCOL, OVERLOAD_DATA), channel, place)
        if len(words) < 3 or words[1].lower() not in _DIRECTIONS:
            if re.fullmatch(r"[0-9a-f]+x?", kind):
                raise ValueError
            return _other(words)
        if (number := self._identifier(words[0], text)) is None:
            return Damaged(f"{place}: has the identifier {words[0]} of more than 29 bits")
        flags, (kind, *words) = _DIRECTIONS[words[1].lower()], words[2:]
        if kind == "r":
            length = self._number(words[0]) if words and len(words[0]) < 3 else 0
            frame = Frame(t_ns, number | REMOTE, b"", flags, min(length, CLASSIC_BYTES))
        elif kind == "d":
            # A classic frame may have a length code of 9 to 15 with its 8 bytes (ISO 11898-1).
            length = self._number(words[0])
            data = self._bytes(words[1:], length if length > 15 else min(length, CLASSIC_BYTES))
            frame = Frame(t_ns, number, data, flags)
        else:
            raise ValueError
        return make_entry(frame, channel, place)

    def _fd_event(self, t_ns: int, words: list[str], place: str) -> LogEntry:
        """Parse ``CHANNEL DIR ID [NAME] BRS ESI DLC LENGTH DATA... DURATION BITS FLAGS ...``."""
        channel, flags = int(words[0]), _DIRECTIONS.get(words[1].lower(), -1)
        if flags < 0:
            raise ValueError
        if words[2].lower() == "errorframe":
            return make_entry(Frame(t_ns, ERROR | BUS_ERROR, bytes(8), flags), channel, place)
        if (number := self._identifier(words[2], "")) is None:
            return Damaged(f"{place}: has the identifier {words[2]} of more than 29 bits")
        at = 3 if words[3] in ("0", "1") and words[4] in ("0", "1") else 4
        switched, passive, code = words[at], words[at + 1], self._number(words[at + 2])
        length, words = int(words[at + 3]), words[at + 4 :]
        data, behind = self._bytes(words, length), words[length:]
        bits = int(behind[2], 16) if len(behind) > 2 else 0
        if bits & _REMOTE_FD or (not length and code):
            return make_entry(
                Frame(t_ns, number | REMOTE, b"", flags, min(code, 8)), channel, place
            )
        # Channels of CAN FD have classic frames, too; some programs leave the bits out.
        if bits & _EDL or not bits or length > CLASSIC_BYTES:
            flags |= FD | SWITCHED * (switched == "1") | PASSIVE * (passive == "1")
        return make_entry(Frame(t_ns, number, data, flags), channel, place)

    def _identifier(self, word: str, text: str) -> int | None:
        extended = word[-1:] in ("x", "X")
        try:
            return make_identifier(self._number(word[: -1 if extended else None]), extended)
        except ValueError:
            if (found := _NUMBERED.search(text)) is None:
                raise
            return make_identifier(int(found[1]), bool(found[2]))

    def _bytes(self, words: list[str], length: int) -> bytes:
        """Return the first bytes of the words; ValueError if there are fewer."""
        data = bytes(self._number(word) for word in words[: max(length, 0)])
        if len(data) != length:
            raise ValueError
        return data

    def _number(self, word: str) -> int:
        if not word.isalnum():
            raise ValueError
        return int(word, self._base)


def _other(words: list[str]) -> OtherEvent:
    found = re.match(r"[A-Za-z_][A-Za-z0-9_-]{0,30}", words[0] if words else "")
    return OtherEvent(found[0] if found else "unnamed")
