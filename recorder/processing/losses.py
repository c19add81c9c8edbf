"""Losses of a session, for the metadata and notes of archives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recorder.session.loss_accounts import losses, lost_events
from recorder.session.reader import Session


@dataclass(frozen=True)
class StreamLosses:
    """Losses of one stream.

    Attributes:
        stream: name of the stream.
        counted: number of lost samples by cause.
        intervals: number of losses without a count.
    """

    stream: str
    counted: Mapping[str, int]
    intervals: int

    @property
    def sentence(self) -> str:
        """The losses as a sentence for a note."""
        parts = [f"{n} ({cause})" for cause, n in self.counted.items()]
        if self.intervals == 1:
            parts.append("an interval that nobody counted")
        elif self.intervals:
            parts.append(f"{self.intervals} intervals that nobody counted")
        return "lost samples: " + ", ".join(parts)


def stream_losses(session: Session) -> Iterator[StreamLosses]:
    """The losses of each stream with losses."""
    for name, events in lost_events(session.events()).items():
        counted, intervals = losses(events)
        known = {cause: count for cause, count in counted.items() if count}
        if known or intervals:
            yield StreamLosses(name, known, len(intervals))
