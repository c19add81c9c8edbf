"""What a session lost, as archives tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from recorder.session.loss_accounts import losses, lost_events
from recorder.session.reader import Session


@dataclass(frozen=True)
class StreamLosses:
    """Losses of one stream.

    Attributes:
        stream: its name.
        counted: samples by cause.
        intervals: how many losses nobody could count.
    """

    stream: str
    counted: Mapping[str, int]
    intervals: int

    @property
    def sentence(self) -> str:
        """For people."""
        parts = [f"{n} ({cause})" for cause, n in self.counted.items()]
        if self.intervals == 1:
            parts.append("an interval that nobody counted")
        elif self.intervals:
            parts.append(f"{self.intervals} intervals that nobody counted")
        return "lost samples: " + ", ".join(parts)


def stream_losses(session: Session) -> Iterator[StreamLosses]:
    """The losses of each stream that has some."""
    for name, events in lost_events(session.events()).items():
        counted, intervals = losses(events)
        known = {cause: count for cause, count in counted.items() if count}
        if known or intervals:
            yield StreamLosses(name, known, len(intervals))
