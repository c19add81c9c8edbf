"""A session as a driver knows it, and what it lost of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Kind, Message


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the writer announces it to drivers.

    Attributes:
        key: names the session on the bus.
        start_ns: its start, CLOCK_MONOTONIC.
        until_ns: samples at or after this time are not wanted; None: no end is set.
        last_ns: latest ``t_mono`` that the session, or one that it continues, already holds of
            this sensor's streams; None: nothing of them is recorded yet.
        seam_ns: of a session that continues another: its own start, while `start_ns` is that of
            the first; samples from then on are wanted.
    """

    key: str
    start_ns: int
    until_ns: int | None
    last_ns: int | None
    seam_ns: int | None = None

    @property
    def begin_ns(self) -> int:
        """Its own start, CLOCK_MONOTONIC."""
        return self.start_ns if self.seam_ns is None else self.seam_ns

    def goes_on_from(self, other: Session) -> bool:
        """Whether it is the other, or a later part of the same recording."""
        same = self.seam_ns is not None and self.start_ns == other.start_ns
        return same or self.key == other.key


def interval_of_loss(
    session: Session,
    spec: StreamSpec,
    cause: str,
    span_ns: tuple[int, int],
    at_least_ns: int | None = None,
) -> Message | None:
    """A loss that nobody can count, as far as it lies in a session; None where none of it does.

    Args:
        session: the present one.
        spec: the stream.
        cause: of the loss.
        span_ns: CLOCK_MONOTONIC since when, and of now.
        at_least_ns: its length where the span has none; it then ends with the session's duration.
    """
    since_ns, now_ns = span_ns
    if at_least_ns is not None and session.until_ns is not None:
        now_ns = min(now_ns, session.until_ns)
    gap_ns = now_ns - max(since_ns, session.begin_ns)
    if gap_ns <= 0:  # at full pace the samples' times are ahead of the clock
        gap_ns = at_least_ns or 0
    if gap_ns <= 0:
        return None
    values: dict[str, Any] = {"cause": cause, "duration_ns": gap_ns}
    if spec.rate_hz:
        values["estimate"] = round(gap_ns * spec.rate_hz / 1e9)
    return Message(Kind.LOST, stream=spec.name, count=None, t_mono_ns=now_ns, values=values)
