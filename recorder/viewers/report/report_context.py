"""Context of a report's sections: the open session, moments, and the size budget of pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from recorder.session.reader import Session
from recorder.session.stream import Stream
from recorder.session.verdict import Reason
from recorder.viewers.report.markup import Html, element
from recorder.viewers.report.rasters import Picture, data_uri
from recorder.viewers.report.session_scan import SessionScan, format_error

ROOM = 1_900_000
"""Size budget of all pictures, in bytes before base64 (which takes a third more)."""
_LARGEST = 40_000  # bytes of one picture


@dataclass
class ReportContext:
    """Context that every section uses.

    Attributes:
        found: contents of the session.
        session: the open session, with virtual sensors and the contents of damaged files.
        pictures: largest number of expected pictures, which share the size budget.
        unreadable: read errors of the sections.
    """

    found: SessionScan
    session: Session
    pictures: int = 1
    unreadable: list[Reason] = field(default_factory=list)
    used: int = 0

    @property
    def streams(self) -> list[Stream]:
        """Recorded streams, without virtual sensors."""
        return [s for s in self.session.streams.values() if not s.name.startswith("_")]

    @property
    def span_ns(self) -> tuple[int, int]:
        """Start and end of the shown time, epoch ns."""
        timeline = self.found.timeline
        return (0, 1) if timeline is None else (timeline.start_ns, timeline.end_ns)

    @property
    def seconds(self) -> float:
        """Length of the shown time, in seconds."""
        start_ns, end_ns = self.span_ns
        return max(1e-3, (end_ns - start_ns) / 1e9)

    def since_start_s(self, stream: Stream, index: int) -> float:
        """Return the time of a sample in seconds since the start."""
        return (int(stream.times(index, index + 1)[0]) - self.span_ns[0]) / 1e9

    def moments(self, stream: Stream, count: int) -> list[int]:
        """Return indices of at most `count` distinct samples, evenly spaced over the session."""
        start_ns, end_ns = self.span_ns
        length = len(stream)
        if not length or not stream.has_times:
            return []
        step_ns = (end_ns - start_ns) / count
        wanted = (round(start_ns + (k + 0.5) * step_ns) for k in range(count))
        return sorted({find_nearest(stream, t_ns) for t_ns in wanted})

    def fail(self, where: str, error: BaseException) -> Html:
        """Record a read error; return the text that is shown in its place."""
        text = format_error(error)
        self.unreadable.append(Reason("unreadable", where, text))
        return element("p", f"{where}: {text}", class_="odd")

    def picture(self, picture: Picture) -> str:
        """Encode a picture, within its share of the size budget, as the address of an ``img``."""
        share = min(_LARGEST, max(1500, (ROOM - self.used) // max(1, self.pictures)))
        self.pictures -= 1
        address, size = data_uri(picture, share)
        self.used += size
        return address


def find_nearest(stream: Stream, t_ns: int) -> int:
    """Return the index of the sample nearest to a time; read few stamps of any stream."""

    def stamp(index: int) -> int:
        return int(stream.times(index, index + 1)[0])

    low, high = 0, len(stream)
    while low < high:
        middle = (low + high) // 2
        if stamp(middle) < t_ns:
            low = middle + 1
        else:
            high = middle
    if low == len(stream):
        return low - 1
    if low and t_ns - stamp(low - 1) <= stamp(low) - t_ns:
        return low - 1
    return low


Make = Callable[[ReportContext], Html | None]
"""Function that makes a section; None if the session has no data for it."""
