"""Intervals of sessions and choices of streams, as users write them.

::

    part = Part(Moment.parse("10"), Moment.parse("2026-01-01T12:00:30Z"), ("camera", "imu"))
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Protocol

from recorder.common.errors import SessionError, UsageError

_SECONDS = re.compile(r"\d+(\.\d*)?|\.\d+")
_UTC = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[T_ ](?P<time>\d\d:\d\d(:\d\d)?)(\.(?P<part>\d{1,9}))?( ?(Z|UTC))?"
)


class HasStart(Protocol):
    """The session that a `Moment` counts from."""

    path: Path

    @property
    def start_ns(self) -> int | None:
        """Start in epoch ns; None for a session without a sample."""


@dataclass(frozen=True)
class Moment:
    """A time in a session, as its user writes it.

    Attributes:
        text: the user's text.
        ns: nanoseconds, since the start of the session or since the epoch.
        since_epoch: whether `ns` counts from the epoch.
    """

    text: str
    ns: int
    since_epoch: bool

    @classmethod
    def parse(cls, text: str) -> Moment:
        """Parse seconds since the session's start (``12.5``), or UTC (``2026-01-01T12:00:30.5Z``).

        Raises:
            UsageError: the text is neither.
        """
        text = text.strip()
        if _SECONDS.fullmatch(text):
            return cls(text, int(Decimal(text) * 1_000_000_000), since_epoch=False)
        if found := _UTC.fullmatch(text):
            try:
                moment = datetime.fromisoformat(f"{found['day']}T{found['time']}")
            except ValueError as error:
                raise UsageError(f"{text!r}: {error}") from None
            seconds = int(moment.replace(tzinfo=UTC).timestamp())
            part = (found["part"] or "").ljust(9, "0")
            return cls(text, seconds * 1_000_000_000 + int(part), since_epoch=True)
        raise UsageError(
            f"{text!r}: needs seconds since the start of the session, such as 12.5, or UTC, such "
            "as 2026-01-01T12:00:30Z"
        )

    def in_session(self, session: HasStart) -> int:
        """Return the moment in epoch ns; SessionError for a session without a start."""
        if self.since_epoch:
            return self.ns
        if session.start_ns is None:
            raise SessionError(f"{session.path}: has no sample, so no start to count from")
        return session.start_ns + self.ns


@dataclass(frozen=True)
class Part:
    """The samples of a session with stamps in ``[begin, end)``, of some streams.

    Attributes:
        begin, end: None: the start and the end of the session.
        streams: names of recorded streams; None: all.
    """

    begin: Moment | None = None
    end: Moment | None = None
    streams: tuple[str, ...] | None = None

    @property
    def is_whole(self) -> bool:
        """True if the part is the whole session."""
        return self == WHOLE

    def __str__(self) -> str:
        words = []
        for word, moment in (("from", self.begin), ("until", self.end)):
            if moment is not None:
                words.append(f"{word} {moment.text}{'' if moment.since_epoch else ' s'}")
        if self.streams is not None:
            words.append(f"streams {', '.join(self.streams)}")
        return ", ".join(words)

    @property
    def folder(self) -> str:
        """A name of a folder for this part, such as ``from_10_until_20.5_camera-imu``."""
        words = []
        for word, moment in (("from", self.begin), ("until", self.end)):
            if moment is not None:
                words += [word, re.sub("[^0-9A-Za-z.]", "-", moment.text)]
        if self.streams is not None:
            words.append("-".join(self.streams))
        return "_".join(words)[:200]


WHOLE = Part()
