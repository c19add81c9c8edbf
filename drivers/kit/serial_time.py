"""Times of a device's measurements, from the device's clock and the arrival of its messages.

A serial port delivers bytes late: the line needs time for each byte, converters buffer bytes (16 ms
on many USB adapters), and the scheduler delays processes.  None of these makes a message early.
Two steps correct for the delays, both without I/O and without a clock of their own:

`ByteArrivals` computes the latest possible arrival of a byte: later bytes of the same chunk each
took the line's time.  `MinDelayClock` maps the device's clock to the host's clock with the least
delayed messages.

The error of the mapped time, for a device that does not overload the line, is the sum of:

- a constant: the smallest delay of all messages (the device's own computing, up to 2 ms for an
  MTi);
- up to one tick (100 us for SampleTimeFine) from the rounding of the device's stamps;
- the difference of the least delay in half a second from the least delay in 20 seconds: 0.1 ms for
  a scheduler's delays, 0.2 ms for random delays of 0 to 16 ms;
- where samples and a converter's polls are in step, up to the common divisor of both periods (1 ms
  with polls of 1 ms, 2 ms with 100 Hz and polls of 16 ms): from arrivals alone, delays that
  slowly follow the phase of the two cannot be distinguished from drift;
- in the first two seconds, the drift of the device's clock, which is not known yet.

A step of the device's clock that is reported with `restart` has no cost other than this start.  An
unreported forward step is followed at once.  An unreported backward step looks like messages that
have become late: times are too early by the step until the window has passed.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple

WINDOW_NS: Final = 20_000_000_000
_BUCKET_NS: Final = 500_000_000
_KNOWN_AFTER: Final = 4  # buckets before a slope is used
MAX_DRIFT: Final = 500e-6
"""Limit of the device's clock drift against the host's; a crystal's is below 100e-6."""
_DROP_NS: Final = 1_000_000  # a delay smaller by this than all before discards the earlier ones


class ByteArrivals:
    """Arrival times of a stream's bytes, by their offsets.

    Usage::

        arrivals = ByteArrivals(byte_ns=1e10 / baudrate)
        arrivals.chunk(len(data), t_ns)
        for message in parser.feed(data):
            began_ns = arrivals.start_ns(message.offset, message.size)

    Args:
        byte_ns: the line's time per byte; 0 without such a line (USB).
    """

    def __init__(self, byte_ns: float) -> None:
        self._byte_ns = byte_ns
        self._end = 0
        self._chunks: deque[tuple[int, int]] = deque()

    def chunk(self, size: int, t_ns: int) -> None:
        """Record that the next `size` bytes of the stream had arrived at `t_ns`."""
        self._end += size
        self._chunks.append((self._end, t_ns))

    def start_ns(self, offset: int, size: int) -> int:
        """Return the latest time at which the first of `size` bytes at `offset` was on the line.

        Offsets must not decrease; earlier chunks are discarded.
        """
        stop = offset + size
        while len(self._chunks) > 1 and self._chunks[0][0] < stop:
            self._chunks.popleft()
        end, t_ns = self._chunks[0]
        return t_ns - round((max(0, end - stop) + size) * self._byte_ns)


class _Point(NamedTuple):
    x: float  # device time, ns from the origin
    y: float  # delay beyond the origin's, ns


class MinDelayClock:
    """Mapping of a device's times to the host's times by the least delayed messages.

    The delay of a message is its arrival minus its device time: an unknown offset that drifts,
    plus a lateness that is never negative.  The offset is the line below all delays of the last 20
    seconds that fits them best: the lower convex hull's edge over their middle.

    Usage::

        clock = MinDelayClock()
        for t_device_ns, arrival_ns in messages:
            t_host_ns = clock.host_ns(t_device_ns, arrival_ns)

    Returned times strictly increase.  They are not later than the arrival, except where the order
    requires it.  They never advance more slowly than half of the device's pace, unless the arrival
    limits them.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self.restarts = -1
        self.restart()

    def restart(self) -> None:
        """Discard all knowledge of the device's clock, which was set or restarted."""
        self._origin: tuple[int, int] | None = None
        self._closed: deque[_Point] = deque()
        self._low = _Point(0.0, 0.0)
        self._bucket = 0
        self._slope = 0.0
        self._height = 0.0
        self._late_ns = 0.0
        self._pace_from: int | None = None
        self.restarts += 1

    @property
    def drift(self) -> float:
        """Relative rate by which the host's clock is faster than the device's."""
        return self._slope

    @property
    def lateness_ns(self) -> int:
        """Running mean of the messages' delay beyond the least delay."""
        return round(self._late_ns)

    def observe(self, t_device_ns: int, arrival_ns: int) -> None:
        """Use a message for the mapping without returning its time."""
        if self._origin is None:
            self._origin = t_device_ns, arrival_ns - t_device_ns
            return
        x = float(t_device_ns - self._origin[0])
        y = float(arrival_ns - t_device_ns - self._origin[1])
        above = y - self._line(x)
        point, bucket = _Point(x, y), int(x // _BUCKET_NS)
        if bucket < self._bucket:
            self.restart()
            self.observe(t_device_ns, arrival_ns)
            return
        self._late_ns += (max(0.0, above) - self._late_ns) / 64
        if above < -_DROP_NS:
            self._closed.clear()
            self._low, self._bucket = point, bucket
            self._fit()
            return
        if bucket > self._bucket:
            self._closed.append(self._low)
            self._low, self._bucket = point, bucket
            while self._closed and self._closed[0].x < x - WINDOW_NS:
                self._closed.popleft()
            self._fit()
            return
        if y - self._slope * x < self._low.y - self._slope * self._low.x:
            self._low = point
        if above < 0:
            self._fit()

    def host_ns(self, t_device_ns: int, arrival_ns: int) -> int:
        """Return the host's time of the measurement at `t_device_ns`, not after its arrival."""
        self.observe(t_device_ns, arrival_ns)
        device0_ns, offset_ns = self._origin or (t_device_ns, arrival_ns - t_device_ns)
        t_ns = t_device_ns + offset_ns + round(self._line(float(t_device_ns - device0_ns)))
        if self._last is not None:
            last_ns = self._last[1]
            if self._pace_from is not None:
                t_ns = max(t_ns, last_ns + (t_device_ns - self._pace_from) // 2)
            # A measurement precedes its arrival: this bound overrides all others except the order.
            t_ns = max(min(t_ns, arrival_ns), last_ns + 1)
        self._last = t_device_ns, t_ns
        self._pace_from = t_device_ns
        return t_ns

    def _line(self, x: float) -> float:
        return self._height + self._slope * x

    def _fit(self) -> None:
        """Fit the line below all points: the hull's edge over the middle, with a bounded slope."""
        points = [*self._closed, self._low]
        if len(points) > _KNOWN_AFTER:
            left, right = _edge(points)
            slope = (right.y - left.y) / (right.x - left.x)
            self._slope = max(-MAX_DRIFT, min(MAX_DRIFT, slope))
        self._height = min(p.y - self._slope * p.x for p in points)


def _edge(points: list[_Point]) -> tuple[_Point, _Point]:
    """Return the edge of the lower convex hull over the middle of the points, ordered by x."""
    hull: list[_Point] = []
    for point in points:
        while len(hull) >= 2:
            (ax, ay), (bx, by) = hull[-2], hull[-1]
            if (bx - ax) * (point.y - ay) - (by - ay) * (point.x - ax) > 0:
                break
            hull.pop()
        hull.append(point)
    middle = (points[0].x + points[-1].x) / 2
    for left, right in pairwise(hull):
        if right.x >= middle:
            return left, right
    return hull[-2], hull[-1]
