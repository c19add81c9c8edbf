"""Notes about irregularities of a session, for its archives and the report of packing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from recorder.perception.stream_contents import (
    holds_can_frames,
    holds_can_signals,
    holds_datagrams,
    holds_messages,
)
from recorder.session.accounts import count_incomplete, format_incomplete
from recorder.session.layout import RECOVERED
from recorder.session.loss_accounts import group_lost_events, losses
from recorder.session.reader import Session
from recorder.session.stream import Stream


class SessionNotes:
    """Irregularities of a session, each listed once.

    Args:
        session: the session.
        lines: sentences with which the notes begin.

    Attributes:
        lines: sentences, in the order in which they were added.
    """

    def __init__(self, session: Session, lines: Sequence[str] = ()) -> None:
        self._session = session
        self.lines = list(lines)

    def add(self, sentence: str, subject: str = "") -> None:
        """Add an irregularity of a stream, or of any other named subject."""
        line = f"{subject}: {sentence}" if subject else sentence
        if line not in self.lines:
            self.lines.append(line)

    def find(self, subject: str) -> list[str]:
        """Return the sentences about a stream, without its name."""
        start = f"{subject}: "
        return [line.removeprefix(start) for line in self.lines if line.startswith(start)]

    def add_absent(self, unreadable: str = "cannot be read, left out") -> None:
        """Add the streams that cannot be read, and the streams without a recorded sample."""
        session = self._session
        for name, fault in session.broken.items():
            self.add(f"{unreadable}: {fault}", name)
        for name in sorted(
            session.declared.keys() - session.streams.keys() - session.broken.keys()
        ):
            self.add("no sample was recorded", name)

    def add_bus_streams(self, streams: Iterable[Stream]) -> None:
        """Add the streams of datagrams, CAN and topics, for an archive that cannot hold them."""
        kinds = (
            (holds_datagrams, "datagrams"),
            (holds_can_frames, "frames of a CAN bus"),
            (holds_can_signals, "signals of a CAN bus"),
            (holds_messages, "messages of a topic"),
        )
        for stream in streams:
            for holds, what in kinds:
                if holds(stream):
                    self.add(f"has {what}: left out", stream.name)

    def add_recovery(self) -> None:
        """Add that the session was recovered instead of closed by its writer."""
        if self._session.state == RECOVERED:
            self.add("recovered: its writer died, or its disk failed", "session")

    def add_losses(self) -> dict[str, Any]:
        """Add losses and incomplete samples; return the losses by stream, for the archive."""
        lost: dict[str, Any] = {}
        recorded = list(self._session.events())
        for name, incomplete in count_incomplete(recorded).items():
            self.add(f"incomplete samples: {format_incomplete(incomplete)}", name)
        for name, events in group_lost_events(recorded).items():
            causes, intervals = losses(events)
            counted = {cause: count for cause, count in causes.items() if count}
            parts = [f"{count} ({cause})" for cause, count in counted.items()]
            if intervals:
                times = "an interval" if len(intervals) == 1 else f"{len(intervals)} intervals"
                parts.append(f"{times} of unknown count")
            if parts:
                lost[name] = {"counted": counted, "uncounted_intervals": len(intervals)}
                self.add("lost samples: " + ", ".join(parts), name)
        return lost
