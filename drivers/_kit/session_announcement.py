"""A session as announced to a driver, and intervals of loss in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Kind, Message


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the writer announces it to drivers.

    Attributes:
        key: identifies the session on the bus.
        start_ns: its start, CLOCK_MONOTONIC.
        until_ns: samples from this time on are not recorded; None: the session has no set end.
        last_ns: latest ``t_mono`` of this sensor's streams in the session, or in the session that
            it continues; None: no sample of them is recorded yet.
        seam_ns: own start of a session that continues another; `start_ns` is then the start of the
            first session, and samples from the seam on are recorded.
    """

    key: str
    start_ns: int
    until_ns: int | None
    last_ns: int | None
    seam_ns: int | None = None

    @property
    def begin_ns(self) -> int:
        """The session's own start, CLOCK_MONOTONIC."""
        return self.start_ns if self.seam_ns is None else self.seam_ns

    def goes_on_from(self, other: Session) -> bool:
        """Whether this is the other session or a later part of the same recording."""
        same = self.seam_ns is not None and self.start_ns == other.start_ns
        return same or self.key == other.key


def interval_of_loss(
    session: Session,
    spec: StreamSpec,
    cause: str,
    span_ns: tuple[int, int],
    at_least_ns: int | None = None,
) -> Message | None:
    """Make a message for an uncounted loss within a session; None if the loss is outside it.

    Args:
        session: the present session.
        spec: the stream.
        cause: of the loss.
        span_ns: CLOCK_MONOTONIC of the start of the loss, and of now.
        at_least_ns: length of the loss where the span is empty; the loss then ends with the
            session's duration.
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
