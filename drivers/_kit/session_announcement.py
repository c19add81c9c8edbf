"""A session as announced to a driver, and intervals of loss in it."""

from __future__ import annotations

from msgspec import UNSET

from recorder.contract.messages import AnnouncedSession as Session
from recorder.contract.messages import Lost
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Message

__all__ = ["Session", "interval_of_loss"]


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
    estimate = round(gap_ns * spec.rate_hz / 1e9) if spec.rate_hz else UNSET
    lost = Lost(cause, gap_ns, estimate).message()
    lost.stream, lost.count, lost.t_mono_ns = spec.name, None, now_ns
    return lost
