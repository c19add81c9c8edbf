"""Account of a topic's messages by the numbers that their publishers give them.

A publisher numbers its messages 1, 2, 3 on each topic (some from 0).  From the first number that is
received to the last, every number is recorded or counted as lost, exactly once.  Numbers before the
first are lost only if the publisher appeared while the recorder listened and has no cache for late
subscribers.  Pure: times are passed in, and nothing is received here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

TRANSPORT: Final = "transport"
"""Cause of the loss of numbers between two received ones."""
JOINING: Final = "joining"
"""Cause of the loss of numbers before the first received one of a publisher that is new."""
VANISHED: Final = "vanished"
"""Cause of the interval after the last number of a publisher that is gone; its count is unknown."""
_REMEMBERED: Final = 256  # ranges that were counted as lost, by publisher


class Fate(Enum):
    """Result of `TopicAccount.take`: what becomes of a message."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"  # its number is recorded already
    LATE = "late"  # its number is counted as lost already


@dataclass(frozen=True, slots=True)
class Missing:
    """Numbers of a publisher that did not arrive.

    Attributes:
        publisher: the publisher's id.
        cause: `TRANSPORT`, `JOINING` or `VANISHED`.
        first: first of the numbers.
        count: number of them, consecutive from `first`; None if unknown.
    """

    publisher: bytes
    cause: str
    first: int
    count: int | None


@dataclass(slots=True)
class _Gap:
    """Numbers [first, stop) that may still arrive until a time in ns."""

    until_ns: int
    first: int
    stop: int
    cause: str


@dataclass(slots=True)
class _Publisher:
    """Lowest and highest number that is recorded or missing (None: none), and the open gaps."""

    is_new: bool
    has_cache: bool
    first: int | None = None
    last: int = 0
    gaps: list[_Gap] = field(default_factory=list)
    counted: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class TopicAccount:
    """Account of the publishers of one topic.

    Args:
        hold_ns: time for which a missing number may still arrive before it is counted as lost.

    Attributes:
        duplicates: messages whose number was recorded already.
        late: messages that arrived after their number was counted as lost.
    """

    def __init__(self, hold_ns: int = 1_000_000_000) -> None:
        self._hold_ns = hold_ns
        self._publishers: dict[bytes, _Publisher] = {}
        self.duplicates = self.late = 0

    @property
    def publishers(self) -> frozenset[bytes]:
        """Ids of the publishers that are there."""
        return frozenset(self._publishers)

    def find_next(self, publisher: bytes) -> int | None:
        """Return the number after the highest one of a publisher; None before its first message."""
        each = self._publishers.get(publisher)
        return None if each is None or each.first is None else each.last + 1

    def appear(self, publisher: bytes, *, is_new: bool, has_cache: bool) -> None:
        """Take the discovery of a publisher; of one that is known, only its cache is taken.

        Args:
            publisher: its id.
            is_new: whether it appeared while the recorder listened.
            has_cache: whether it sends earlier messages to late subscribers (transient local).
        """
        self._publishers.setdefault(publisher, _Publisher(is_new, has_cache)).has_cache = has_cache

    def take(self, publisher: bytes, number: int, t_ns: int) -> Fate:
        """Take a message; its publisher is new if it was not discovered before.

        Args:
            publisher: the publisher's id.
            number: the publisher's number of the message.
            t_ns: time of arrival, by a clock that does not go back.
        """
        each = self._publishers.setdefault(publisher, _Publisher(is_new=True, has_cache=False))
        until_ns = t_ns + self._hold_ns
        if each.first is None:
            each.first = each.last = number
            if number > 1 and each.is_new and not each.has_cache:
                each.first = 1
                each.gaps.append(_Gap(until_ns, 1, number, JOINING))
        elif number > each.last:
            if number > each.last + 1:
                each.gaps.append(_Gap(until_ns, each.last + 1, number, TRANSPORT))
            each.last = number
        elif number < each.first:
            if number + 1 < each.first:
                each.gaps.append(_Gap(until_ns, number + 1, each.first, TRANSPORT))
            each.first = number
        else:
            return self._fill(each, number)
        return Fate.RECORDED

    def _fill(self, each: _Publisher, number: int) -> Fate:
        """Take a message whose number lies between two others of its publisher."""
        for gap in each.gaps:
            if gap.first <= number < gap.stop:
                each.gaps.remove(gap)
                rest = ((gap.first, number), (number + 1, gap.stop))
                each.gaps += [_Gap(gap.until_ns, *r, gap.cause) for r in rest if r[0] < r[1]]
                return Fate.RECORDED
        if any(first <= number < stop for first, stop in each.counted):
            self.late += 1
            return Fate.LATE
        self.duplicates += 1
        return Fate.DUPLICATE

    def count_missing(self, t_ns: int | None) -> list[Missing]:
        """Count the gaps that were held long enough at `t_ns` as lost; None: all gaps."""
        return [m for p, each in self._publishers.items() for m in _count(p, each, t_ns)]

    def leave(self, publisher: bytes, *, is_acknowledged: bool) -> list[Missing]:
        """Take the end of a publisher: count its gaps, and an interval unless nothing can follow.

        Args:
            publisher: its id; one that is not known has lost nothing.
            is_acknowledged: whether its last message is known to have arrived.
        """
        each = self._publishers.pop(publisher, None)
        if each is None:
            return []
        missing = _count(publisher, each, None)
        if each.first is not None and not is_acknowledged:
            missing.append(Missing(publisher, VANISHED, each.last + 1, None))
        return missing


def _count(publisher: bytes, each: _Publisher, t_ns: int | None) -> list[Missing]:
    due = [gap for gap in each.gaps if t_ns is None or gap.until_ns <= t_ns]
    due.sort(key=lambda gap: gap.first)
    each.gaps = [gap for gap in each.gaps if gap not in due]
    each.counted.extend((gap.first, gap.stop) for gap in due)
    return [Missing(publisher, gap.cause, gap.first, gap.stop - gap.first) for gap in due]
