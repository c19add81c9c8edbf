"""When a device's measurement was made, from its own clock and when its message arrived.

A serial port gives bytes late: the line takes its time for each byte, converters hold bytes back
(16 ms on many USB adapters), schedulers come when they like.  None of it ever makes a message
early.  Two steps take it out again, both without I/O and without a clock of their own:

`ByteArrivals` says when a byte can have arrived at the latest: bytes behind it in the same chunk
took the line's time each.  `MinDelayClock` maps the device's clock to the host's by the messages
that were late by the least.

Error of the mapped time, for a device that the line does not overload:

- constant: what every message is late by (the device's own computing, up to 2 ms for an MTi);
- up to one tick (100 us for SampleTimeFine), by which the device's stamps are rounded;
- by how much the least delay of half a second differs from that of 20 seconds: 0.1 ms for delays
  of a scheduler, 0.2 ms where delays of 0 to 16 ms come at random;
- where samples and a converter's polls keep step, up to the common divisor of both periods (1 ms
  with polls of 1 ms, 2 ms with 100 Hz and polls of 16 ms): from arrivals alone, delays that
  slowly slide along with the phase of the two cannot be told from drift;
- in the first two seconds the drift of the device's clock is not known, and adds its part.

A step of the device's clock that is told by `restart` costs nothing but that start.  One that is
not told is followed at once where it goes forwards; where it goes backwards, times are early by
it until the window has passed (it looks like messages that have become late).
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple

WINDOW_NS: Final = 20_000_000_000
_BUCKET_NS: Final = 500_000_000
_KNOWN_AFTER: Final = 4  # buckets, until a slope is believed
MAX_DRIFT: Final = 500e-6
"""Of the device's clock against the host's; a crystal's is below 100e-6."""
_DROP_NS: Final = 1_000_000  # a message so much less late than all before makes them worthless


class ByteArrivals:
    """When the bytes of a stream arrived, by their offsets.

    Usage::

        arrivals = ByteArrivals(byte_ns=1e10 / baudrate)
        arrivals.chunk(len(data), t_ns)
        for message in parser.feed(data):
            began_ns = arrivals.start_ns(message.offset, message.size)

    Args:
        byte_ns: time that the line takes for a byte; 0 where there is no such line (USB).
    """

    def __init__(self, byte_ns: float) -> None:
        self._byte_ns = byte_ns
        self._end = 0
        self._chunks: deque[tuple[int, int]] = deque()

    def chunk(self, size: int, t_ns: int) -> None:
        """The next `size` bytes of the stream were there at `t_ns`."""
        self._end += size
        self._chunks.append((self._end, t_ns))

    def start_ns(self, offset: int, size: int) -> int:
        """When the first of `size` bytes from `offset` on was put on the line, at the latest.

        Offsets must not go back; what lies before is forgotten.
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
    """Maps a device's times to the host's by the messages that were late by the least.

    The delay of a message is its arrival minus its device time: an unknown offset that drifts,
    plus a lateness that is never negative.  The line under all delays of the last 20 seconds that
    fits them best is the offset: the lower convex hull's edge over their middle.

    Usage::

        clock = MinDelayClock()
        for t_device_ns, arrival_ns in messages:
            t_host_ns = clock.host_ns(t_device_ns, arrival_ns)

    Returned times strictly increase, never lie behind the arrival by rounding, and never run
    slower than half of the device's pace.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self.restarts = -1
        self.restart()

    def restart(self) -> None:
        """The device's clock was set or has started anew: what is known of it holds no more."""
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
        """By how much the host's clock runs faster than the device's, as a ratio."""
        return self._slope

    @property
    def lateness_ns(self) -> int:
        """How late messages are beyond the least, a running mean."""
        return round(self._late_ns)

    def observe(self, t_device_ns: int, arrival_ns: int) -> None:
        """Learn from a message without asking for its time."""
        if self._origin is None:
            self._origin = t_device_ns, arrival_ns - t_device_ns
            self._low, self._bucket = _Point(0.0, 0.0), 0
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
        """The host's time of the measurement at `t_device_ns`, whose message arrived by then."""
        self.observe(t_device_ns, arrival_ns)
        device0_ns, offset_ns = self._origin or (t_device_ns, arrival_ns - t_device_ns)
        t_ns = t_device_ns + offset_ns + round(self._line(float(t_device_ns - device0_ns)))
        if self._last is not None:
            last_ns = self._last[1]
            if self._pace_from is not None:
                t_ns = max(t_ns, last_ns + (t_device_ns - self._pace_from) // 2)
            # What arrived was measured before: this bound is above the others but for order.
            t_ns = max(min(t_ns, arrival_ns), last_ns + 1)
        self._last = t_device_ns, t_ns
        self._pace_from = t_device_ns
        return t_ns

    def _line(self, x: float) -> float:
        return self._height + self._slope * x

    def _fit(self) -> None:
        """The line under all points: the hull's edge over the middle, its slope bounded."""
        points = [*self._closed, self._low]
        if len(points) > _KNOWN_AFTER:
            left, right = _edge(points)
            slope = (right.y - left.y) / (right.x - left.x)
            self._slope = max(-MAX_DRIFT, min(MAX_DRIFT, slope))
        self._height = min(p.y - self._slope * p.x for p in points)


def _edge(points: list[_Point]) -> tuple[_Point, _Point]:
    """The edge of the lower convex hull over the middle of the points, which are in order of x."""
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
