"""Detection of steps back of a recording's clock, by its log times in the order of the file.

A recorder writes messages in the order in which it receives them, and a log time is the time of
receipt. So log times that go back mean one of two things: some messages were written late, or the
clock was set back. Late messages lie between earlier ones, and their topic then continues after the
earlier ones. After a step of the clock, the topic continues from the stepped time: the messages
before the step cover the same interval as those after it. A step applies to all topics: a topic
that continues without a step disproves it.

::

    clock = RecordingClock()
    for block in blocks:                      # in the order of the file
        clock.take({topic: (positions, log_times_ns), ...})
    clock.finish()
    clock.steps                               # [ClockStep(position, step_ns, ...)]
    clock.shifts("/imu")                      # ([position, ...], [what to add from there on, ...])

A jump ahead is taken for a pause of the recording, because a clock that was set ahead looks the
same.  The times stay as they were recorded.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

LATE_NS: Final = 10_000_000_000
"""Distance back in time above which a message is not late: the clock has stepped."""

_KEPT: Final = 4096  # latest messages of a topic that are remembered
_MOST_BELOW: Final = 512  # messages behind the latest time after which a decision is made
_FEWEST: Final = 3  # messages that make a step longer than LATE_NS
_MANY: Final = 8  # messages that cover an interval without doubt
_GAPS: Final = 64  # latest gaps that a topic's usual gap is taken from


@dataclass(frozen=True, slots=True)
class ClockStep:
    """Step back of the recording's clock.

    Attributes:
        position: position of the first message after the step, in the order of the recording.
        step_ns: change of the clock; negative.
        before_ns: last log time before the step.
        after_ns: first log time after the step.
    """

    position: int
    step_ns: int
    before_ns: int
    after_ns: int


@dataclass(slots=True)
class _Topic:
    """State of a topic, with its times corrected by the steps found so far.

    Attributes:
        past: latest messages as (position, time), by their times.
        below: messages since the time went back, in the order of the file.
        incoming: messages that are not classified yet, in the order of the file.
        shift_ns: current correction of the log times.
        alone: whether the topic was not written in one order with the others, and has its own
            steps.
        changes: positions, and the shift that is added from each position on.
    """

    past: list[tuple[int, int]] = field(default_factory=list)
    below: list[tuple[int, int]] = field(default_factory=list)
    incoming: deque[tuple[int, int]] = field(default_factory=deque)
    shift_ns: int = 0
    alone: bool = False
    changes: list[tuple[int, int]] = field(default_factory=list)

    @property
    def latest_ns(self) -> int | None:
        return self.past[-1][1] if self.past else None

    def gap_ns(self) -> float | None:
        """Return the usual gap between messages, without pauses; None if too few are known."""
        times = np.array([time for _, time in self.past[-_GAPS:]], np.int64)
        gaps = np.diff(times)
        gaps = gaps[gaps > 0]
        return float(gaps[gaps <= 4 * np.median(gaps)].mean()) if len(gaps) else None

    def insert(self, entries: Iterable[tuple[int, int]]) -> None:
        self.past.extend(entries)
        self.past.sort(key=_time)
        if len(self.past) > 2 * _KEPT:
            del self.past[:-_KEPT]

    def entries(self) -> Iterator[tuple[int, int]]:
        return itertools.chain(self.past, self.below, self.incoming)

    def find_last_before(self, position: int) -> int:
        """Return the position of the topic's last message before a position; -1 without one."""
        return max((at for at, _ in self.entries() if at < position), default=-1)

    def find_jump(self, after: int, until: int) -> tuple[int, int] | None:
        """Return the smallest jump between consecutive messages in a part of the recording.

        Args:
            after: position of a message before the part.
            until: position of the last message of the part.

        Returns:
            The jump in ns and the position after it; None if the topic has too few messages.
        """
        found = sorted(self.entries())
        first = bisect_right(found, (after, 1 << 63))
        last = bisect_left(found, (until, 0))
        pairs = pairwise(found[max(0, first - 1) : last + 1])
        return min(((b[1] - a[1], b[0]) for a, b in pairs), default=None)


def _time(entry: tuple[int, int]) -> int:
    return entry[1]


class RecordingClock:
    """Detector of the clock steps of one recording; see the module.

    Args:
        long: whether to find only steps over many messages.

    Attributes:
        steps: steps found so far, in the order of the recording.
    """

    def __init__(self, *, long: bool = False) -> None:
        self._long = long
        self.steps: list[ClockStep] = []
        self._topics: dict[str, _Topic] = {}
        self._shift_ns = 0  # of topics in common order
        self._restarted_at = 0

    def restart(self, position: int) -> None:
        """Begin another recording: the messages from this position on have their own clock."""
        self.finish()
        for topic in self._topics.values():
            topic.past.clear()
            topic.alone = False
            if topic.shift_ns:
                topic.shift_ns = 0
                topic.changes.append((position, 0))
        self._shift_ns, self._restarted_at = 0, position

    def take(self, block: Mapping[str, tuple[Times, Times]], origin: int = 0) -> None:
        """Process the next messages in the order of the file.

        Args:
            block: positions and log times by topic, int64 [n] each.
            origin: offset that is added to the positions, which then increase from call to call.
        """
        slow = []
        for name, (positions, log_ns) in block.items():
            topic = self._topics.get(name)
            if topic is None:
                topic = self._begin(name, origin + int(positions[0]), int(log_ns[0]))
            times = log_ns + topic.shift_ns if topic.shift_ns else log_ns
            latest_ns = topic.latest_ns
            rises = len(times) == 1 or bool((np.diff(times) >= 0).all())
            places = positions.tolist()
            if origin:
                places = [origin + place for place in places]
            entries = zip(places, times.tolist(), strict=True)
            if rises and not topic.below and (latest_ns is None or times[0] >= latest_ns):
                topic.past.extend(entries)
                if len(topic.past) > 2 * _KEPT:
                    del topic.past[:-_KEPT]
            else:
                topic.incoming.extend(entries)
                slow.append(topic)
        for topic in slow:
            self._work(topic)

    def take_one(self, name: str, position: int, time_ns: int) -> bool:
        """Process one message.

        Returns:
            Whether the message and all before it are classified.
        """
        topic = self._topics.get(name)
        if topic is None:
            topic = self._begin(name, position, time_ns)
        topic.incoming.append((position, time_ns + topic.shift_ns))
        self._work(topic)
        return not topic.below

    def _begin(self, name: str, position: int, log_ns: int) -> _Topic:
        topic = self._topics[name] = _Topic(shift_ns=self._shift_ns)
        last = self.steps[-1] if self.steps else None
        if last is not None and last.position >= self._restarted_at and log_ns < last.after_ns:
            # A file that was written topic by topic: the topic begins before that step.
            topic.alone, topic.shift_ns = True, 0
        if topic.shift_ns:
            topic.changes.append((position, topic.shift_ns))
        return topic

    def finish(self) -> None:
        """Classify the messages that are pending at the end of the recording."""
        for topic in list(self._topics.values()):
            while topic.below or topic.incoming:
                self._work(topic)
                if topic.below:
                    self._decide(topic, None)

    def _work(self, topic: _Topic) -> None:
        while topic.incoming:
            entry = topic.incoming.popleft()
            latest_ns = topic.latest_ns
            if not topic.below:
                if latest_ns is None or entry[1] >= latest_ns:
                    topic.past.append(entry)
                    if len(topic.past) > 2 * _KEPT:
                        del topic.past[:-_KEPT]
                else:
                    topic.below.append(entry)
            elif latest_ns is not None and entry[1] > latest_ns:
                topic.incoming.appendleft(entry)
                self._decide(topic, entry[1])
            else:
                topic.below.append(entry)
                if len(topic.below) >= _MOST_BELOW:
                    self._decide(topic, None)

    def _decide(self, topic: _Topic, beyond_ns: int | None) -> None:
        """Decide whether messages are late or the clock has stepped.

        Args:
            topic: topic with messages before its latest time.
            beyond_ns: first time that is later than the latest again; None: there is none yet.
        """
        step = self._find_step(topic, beyond_ns)
        if step is not None:
            self._apply(topic, step)
        else:
            late, topic.below = topic.below, []
            topic.insert(late)

    def _find_step(self, topic: _Topic, beyond_ns: int | None) -> ClockStep | None:
        gap_ns = topic.gap_ns()
        latest_ns, first_ns = topic.past[-1][1], topic.below[0][1]
        if gap_ns is None or not _is_step(topic, beyond_ns, gap_ns, long=self._long):
            return None
        position = topic.below[0][0]
        step_ns = latest_ns - first_ns + round(gap_ns)
        if topic.alone:
            return self._match_step(topic, position, step_ns, gap_ns)
        # A step shows in every topic whose gaps are short enough: ask all other topics.
        evidence = [(gap_ns, step_ns, position)]
        against, before = 0, topic.find_last_before(position)
        for other in self._topics.values():
            if other is topic or other.alone or (other_gap := other.gap_ns()) is None:
                continue
            jump = other.find_jump(before, position)
            if jump is None or other_gap > 2 * step_ns:
                continue
            if jump[0] < other_gap - step_ns / 2:
                evidence.append((other_gap, round(other_gap) - jump[0], jump[1]))
            else:
                against += 1
        if against >= len(evidence):
            return None
        _, step_ns, _ = min(evidence)  # of the topic with the shortest gap
        position = min(at for _, _, at in evidence)
        shift_ns = topic.shift_ns
        return ClockStep(position, -step_ns, latest_ns - shift_ns, first_ns - shift_ns)

    def _match_step(self, topic: _Topic, position: int, step_ns: int, gap_ns: float) -> ClockStep:
        """Return a step of a topic that was not written in one order with the others."""
        shift_ns = topic.shift_ns
        before_ns, after_ns = (t - shift_ns for t in (topic.past[-1][1], topic.below[0][1]))
        for step in self.steps:
            near = abs(step.before_ns - before_ns) <= 2 * gap_ns + abs(step.step_ns)
            if near and abs(step.step_ns + step_ns) <= gap_ns:
                return ClockStep(position, step.step_ns, before_ns, after_ns)
        return ClockStep(position, -step_ns, before_ns, after_ns)

    def _apply(self, topic: _Topic, step: ClockStep) -> None:
        """Add the step to the times of all topics, from its position on."""
        same = [each for each in self.steps if each.step_ns == step.step_ns]
        if not (topic.alone and same):
            self.steps.append(step)
        if topic.alone:
            chosen = [topic]
        else:
            chosen = [each for each in self._topics.values() if not each.alone]
            self._shift_ns -= step.step_ns
        for each in chosen:
            each.shift_ns -= step.step_ns
            each.changes.append((step.position, each.shift_ns))
            later = sorted(entry for entry in each.entries() if entry[0] >= step.position)
            each.below = [entry for entry in each.below if entry[0] < step.position]
            each.past = [entry for entry in each.past if entry[0] < step.position]
            each.incoming = deque((at, time - step.step_ns) for at, time in later)
        for each in chosen:
            if each is not topic:
                self._work(each)

    def shifts(self, topic: str) -> tuple[list[int], list[int]]:
        """Return positions, and the correction of the topic's log times from each position on."""
        found = self._topics.get(topic)
        if found is None or not found.changes:
            return [], []
        positions, shifts = zip(*found.changes, strict=True)
        return list(positions), list(shifts)


def _is_step(topic: _Topic, beyond_ns: int | None, gap_ns: float, *, long: bool) -> bool:
    """Return whether a topic's times went back by a step of the clock, by that topic alone.

    Args:
        topic: topic with messages before its latest time.
        beyond_ns: first time that is later than the latest again; None: there is none yet.
        gap_ns: the topic's usual gap.
        long: whether only a step over many messages counts, all of which are after the first one.
    """
    past, below = topic.past, [time for _, time in topic.below]
    latest_ns = past[-1][1]
    if latest_ns - below[0] + gap_ns > LATE_NS and beyond_ns is None and not long:
        return len(below) >= _FEWEST
    low = max(below[0], past[0][1])
    high = latest_ns if beyond_ns is not None else max(below)
    if high < low:  # all before the first message
        return len(below) >= _MANY and not long
    expected = (high - low) / gap_ns + 1
    if expected < 2:
        return beyond_ns is not None and not long and _is_regular(topic, beyond_ns, gap_ns)
    there = bisect_right(past, high, key=_time) - bisect_left(past, low, key=_time)
    again = sum(low <= time <= high for time in below)
    if min(there, again) < max(2.0, 0.85 * expected - 1):
        return False
    if expected >= _MANY:
        return True
    nearer = beyond_ns is None or _is_nearer(beyond_ns - below[-1], beyond_ns - latest_ns, gap_ns)
    return nearer and not long


def _is_regular(topic: _Topic, beyond_ns: int, gap_ns: float) -> bool:
    """Return whether the topic's even gaps continue after the step, and not as before it."""
    gaps = np.diff([time for _, time in topic.past[-_MANY:]])
    if (np.abs(gaps - gap_ns) > gap_ns / 4).any():
        return False
    as_before_ns, as_after_ns = beyond_ns - topic.past[-1][1], beyond_ns - topic.below[-1][1]
    return abs(as_before_ns - gap_ns) > gap_ns / 4 and abs(as_after_ns - gap_ns) <= gap_ns / 4


def _is_nearer(one: Any, other: Any, to: float) -> bool:
    """Return whether one number is at least as near as another."""
    return bool(abs(one - to) <= abs(other - to))
