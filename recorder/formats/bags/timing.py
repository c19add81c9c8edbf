"""Times of a recording's messages, and the messages in the order of their times.

A message's time is the stamp in its header, which is the time of the measurement, if the stamp is
within `APART_NS` of the log time. Otherwise it is the log time. Both are corrected if the
recording's clock was set back (`recorder.formats.bags.clock`).

::

    for timed in in_order(bag, Timing(bag, {"/imu/data": decode})):
        timed.t_ns, timed.decoded           # t_ns never decreases, but for what the buffer misses
"""

from __future__ import annotations

import contextlib
import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from recorder.common.errors import FormatError
from recorder.formats.bags.bag import LATEST_NS, Bag, Cut
from recorder.formats.bags.clock import LATE_NS, ClockStep, RecordingClock
from recorder.formats.bags.messages import Inertial, Position

if TYPE_CHECKING:
    from recorder.formats.mcap import McapMessage

APART_NS: Final = LATE_NS
"""Distance from the log time at which a stamp belongs to another clock, or is wrong."""

DECIDING: Final = 20
"""Number of a topic's first messages that decide whether its stamps are used."""

_BUFFER_BYTES: Final = 64 << 20  # of messages that wait for earlier ones
_OVERHEAD: Final = 1000  # bytes of a decoded message beside its data

Decode = Callable[[Any], Any]


@dataclass(slots=True)
class Stamping:
    """Rule that gives the messages of one topic their times.

    Attributes:
        of_header: whether stamps in headers are used.
        unused: number of stamps that were too far from their log times.
        lag_ns: latest used stamp minus its log time; negative if the stamp is earlier.
    """

    of_header: bool
    unused: int = 0
    lag_ns: int = 0
    _nearest_ns: int | None = None  # smallest lag of stamps behind their log times
    _shifts: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def of(cls, first: Iterable[tuple[int, int]]) -> Stamping:
        """Decide by the (stamp, log time) of the first messages, in ns; 0 means no time."""
        near = [abs(stamp - log) <= APART_NS for stamp, log in first if stamp > 0 and log > 0]
        return cls(bool(near) and 2 * sum(near) >= len(near))

    def t_ns(self, stamp_ns: int, log_ns: int, shift_ns: int = 0) -> int:
        """Return a message's time in epoch ns; the log time if it has no stamp.

        Args:
            stamp_ns: stamp in the header; 0: none.
            log_ns: log time of the message.
            shift_ns: correction of the log time.
        """
        time_ns = log_ns + shift_ns
        if not self.of_header or stamp_ns <= 0:
            return time_ns
        if shift_ns:
            shift_ns = self._choose_shift(stamp_ns - time_ns, shift_ns)
        lag_ns = stamp_ns + shift_ns - time_ns
        if abs(lag_ns) > APART_NS:
            self.unused += 1
            return time_ns
        self.lag_ns = lag_ns
        self._nearest_ns = lag_ns if self._nearest_ns is None else max(self._nearest_ns, lag_ns)
        return stamp_ns + shift_ns

    def _choose_shift(self, lag_ns: int, shift_ns: int) -> int:
        """Return the correction of a stamp.

        A message that was measured before a step of the clock and received after it has a stamp of
        the clock before the step. So do all messages of a device whose own clock did not step. With
        the correction of the log time, such a stamp would be later than its log time.
        """
        if shift_ns not in self._shifts:
            self._shifts.append(shift_ns)
            self._shifts.sort()
        nearest_ns = self.lag_ns if self._nearest_ns is None else self._nearest_ns
        for smaller, shift in reversed(list(pairwise(self._shifts))):
            if shift <= shift_ns and lag_ns + shift <= nearest_ns + (shift - smaller) // 4:
                return shift
        return self._shifts[0]


@dataclass(slots=True)
class Timed:
    """A message with its time.

    Attributes:
        t_ns: epoch ns; None: the message has neither a log time nor a stamp that can be true.
        message: the message as recorded.
        decoded: the decoded message; None if it cannot be decoded.
        problem: reason why it cannot be decoded.
    """

    t_ns: int | None
    message: McapMessage
    decoded: Any = None
    problem: FormatError | None = None


@dataclass(slots=True)
class _StampClock:
    """Detector of steps back in one topic's stamps, although its log times continue.

    Messages wait here until it is decided whether they are late or their clock was set back.
    """

    clock: RecordingClock = field(default_factory=lambda: RecordingClock(long=True))
    waiting: deque[tuple[int, Timed]] = field(default_factory=deque)
    number: int = 0
    held: int = 0

    def take(self, timed: Timed) -> list[Timed]:
        """Add the next message; return the messages whose times are decided."""
        if timed.t_ns is None:
            return [timed]
        self.waiting.append((self.number, timed))
        self.held += _measure(timed)
        decided = self.clock.take_one("", self.number, timed.t_ns)
        self.number += 1
        return self.rest() if decided or self.held > _BUFFER_BYTES // 2 else []

    def rest(self) -> list[Timed]:
        """Decide the times of all waiting messages; return these messages."""
        self.clock.finish()
        positions, shifts = self.clock.shifts("")
        found = []
        for number, timed in self.waiting:
            if timed.t_ns is not None and (at := bisect_right(positions, number)):
                timed.t_ns += shifts[at - 1]
            found.append(timed)
        self.waiting.clear()
        self.held = 0
        return found


@dataclass(slots=True)
class _Buffer:
    """Buffer of messages by their times, which releases those that no later message can precede."""

    heap: list[tuple[int, int, Timed | Cut]] = field(default_factory=list)
    number: int = 0
    held: int = 0

    def put(self, t_ns: int, item: Timed | Cut) -> None:
        heapq.heappush(self.heap, (t_ns, self.number, item))
        self.number += 1
        self.held += _measure(item)

    def ready(self, until_ns: int) -> Iterator[Timed | Cut]:
        """Yield the items at or before a time, and those that the buffer has no room for."""
        while self.heap and (self.heap[0][0] <= until_ns or self.held > _BUFFER_BYTES):
            _, _, item = heapq.heappop(self.heap)
            self.held -= _measure(item)
            yield item


def _measure(item: Timed | Cut) -> int:
    return len(item.message.data) + _OVERHEAD if isinstance(item, Timed) else 0


def read_stamp(message: Any) -> int:
    """Return the stamp of a decoded message, epoch ns; 0 if it has none or one beyond int64."""
    if isinstance(message, Inertial | Position):
        stamp_ns = message.stamp_ns
    else:
        header = getattr(message, "header", None)
        stamp_ns = 0 if header is None else int(header.stamp_ns)
    return stamp_ns if stamp_ns <= LATEST_NS else 0


class Timing:
    """Assignment of times to the messages of a recording.

    Args:
        bag: the recording.
        decoders: decoders by topic; None: the messages of the topic have their log times.
    """

    def __init__(self, bag: Bag, decoders: Mapping[str, Decode | None]) -> None:
        self._bag = bag
        self._decoders = decoders
        self.stampings: dict[str, Stamping] = {}
        self._first: dict[str, list[Timed]] = {}
        self._clocks: dict[str, _StampClock] = {}

    @property
    def topics(self) -> list[str]:
        """Topics whose messages get times here."""
        return list(self._decoders)

    @property
    def unused(self) -> int:
        """Number of stamps that were too far from their log times."""
        return sum(stamping.unused for stamping in self.stampings.values())

    def of(self, message: McapMessage) -> list[Timed]:
        """Return the messages whose times are known now: none, one, or the first of a topic."""
        topic, timed = message.topic, self._decode(message)
        if self._decoders.get(topic) is None:
            self.stampings.setdefault(topic, Stamping(of_header=False))
        if (stamping := self.stampings.get(topic)) is not None:
            return self._place(timed, stamping)
        first = self._first.setdefault(topic, [])
        first.append(timed)
        enough = len(first) >= DECIDING or sum(map(_measure, first)) > _BUFFER_BYTES // 2
        return self._decide(topic) if enough else []

    def rest(self) -> list[Timed]:
        """Return the messages at the end whose times depended on later ones."""
        found = [timed for topic in list(self._first) for timed in self._decide(topic)]
        return found + [timed for clock in self._clocks.values() for timed in clock.rest()]

    def steps(self, topic: str) -> list[ClockStep]:
        """Return the steps of a topic's stamps that its log times did not make."""
        return self._clocks[topic].clock.steps if topic in self._clocks else []

    def lag_ns(self) -> int:
        """Return the smallest difference of a topic's latest time to its log time, in ns."""
        return min((stamping.lag_ns for stamping in self.stampings.values()), default=0)

    @property
    def waits(self) -> bool:
        """Whether later messages may precede earlier ones."""
        return bool(self._first) or any(s.of_header for s in self.stampings.values())

    def _decode(self, message: McapMessage) -> Timed:
        decode = self._decoders.get(message.topic)
        if decode is None:
            return Timed(None, message)
        try:
            return Timed(None, message, decode(message.read_data()))
        except FormatError as error:
            return Timed(None, message, problem=error)

    def _decide(self, topic: str) -> list[Timed]:
        first = self._first.pop(topic)
        pairs = [
            (
                read_stamp(each.decoded),
                each.message.log_ns if self._bag.is_timed(each.message) else 0,
            )
            for each in first
            if each.problem is None
        ]
        stamping = self.stampings[topic] = Stamping.of(pairs)
        if stamping.of_header:
            self._clocks[topic] = _StampClock()
        return [timed for each in first for timed in self._place(each, stamping)]

    def _place(self, timed: Timed, stamping: Stamping) -> list[Timed]:
        """Set a message's time; return the messages whose times are known now."""
        self._set_time(timed, stamping)
        clock = self._clocks.get(timed.message.topic)
        return [timed] if clock is None else clock.take(timed)

    def _set_time(self, timed: Timed, stamping: Stamping) -> None:
        message, bag = timed.message, self._bag
        stamp_ns = 0 if timed.decoded is None else read_stamp(timed.decoded)
        if bag.is_timed(message):
            timed.t_ns = stamping.t_ns(stamp_ns, message.log_ns, message.shift_ns)
            if timed.problem is not None:
                timed.t_ns = message.time_ns + stamping.lag_ns
            return
        start_ns, end_ns = bag.start_ns or 0, bag.end_ns or 0
        if stamping.of_header and start_ns - APART_NS <= stamp_ns <= end_ns + APART_NS:
            timed.t_ns = stamp_ns


def order_messages(bag: Bag, timing: Timing) -> Generator[Timed | Cut]:
    """Yield messages, and the early ends of files, in the order of their times.

    A message that was written late is put in its place, if the messages after that place fit into
    memory. A message without a time is yielded at once.

    Args:
        bag: the recording.
        timing: times of the topics whose messages are yielded.

    Raises:
        FormatError: a file is damaged; the messages before the damage have been yielded.
    """
    buffer, cuts = _Buffer(), deque(bag.cuts)
    damage: FormatError | OSError | None = None

    def put(found: list[Timed]) -> Iterator[Timed]:
        for timed in found:
            if timed.t_ns is None:
                yield timed
            else:
                buffer.put(timed.t_ns, timed)

    messages = bag.messages(timing.topics)
    with contextlib.closing(messages):
        try:
            for message in messages:
                until_ns = message.time_ns
                while cuts and bag.is_timed(message) and cuts[0].time_ns < until_ns:
                    buffer.put(cuts[0].time_ns + timing.lag_ns(), cuts.popleft())
                yield from put(timing.of(message))
                if bag.is_timed(message):
                    yield from buffer.ready(until_ns - APART_NS if timing.waits else until_ns)
        except (FormatError, OSError) as error:
            damage = error
    yield from put(timing.rest())
    yield from buffer.ready(LATEST_NS)
    if damage is not None:
        raise damage
    yield from cuts


def first_ns(bag: Bag, decoders: Mapping[str, Decode | None]) -> int:
    """Return the earliest time of the messages of some topics, epoch ns.

    It reads as far as an earlier time can follow, or to the first damage, which is reported when
    the messages are played.

    Raises:
        FormatError: there is no message with a time.
    """
    timing, earliest = Timing(bag, decoders), None
    begin_ns: int | None = None
    messages = bag.messages([name for name in decoders if name in bag.topics])
    with contextlib.closing(messages), contextlib.suppress(FormatError):
        for message in messages:
            if bag.is_timed(message):
                begin_ns = message.time_ns if begin_ns is None else begin_ns
                if message.time_ns > begin_ns + APART_NS:
                    break
            for timed in timing.of(message):
                if timed.t_ns is not None:
                    earliest = timed.t_ns if earliest is None else min(earliest, timed.t_ns)
    for timed in timing.rest():
        if timed.t_ns is not None:
            earliest = timed.t_ns if earliest is None else min(earliest, timed.t_ns)
    if earliest is None:
        raise FormatError(f"{bag.path}: has no message with a time")
    return earliest
