"""Context of a report's sections: the open session, moments, and the size budget of pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from recorder.perception.frames import Kind, kind_of
from recorder.session.reader import Session
from recorder.session.stream import Stream
from recorder.session.verdict import Reason
from recorder.viewers.report.markup import Content, Html, element
from recorder.viewers.report.rasters import Picture, data_uri
from recorder.viewers.report.session_scan import SessionScan, format_error

ROOM = 1_900_000
"""Size budget of all pictures, in bytes before base64 (which takes a third more)."""
SENSOR_MOMENTS: Mapping[Kind, int] = {"camera": 12, "lidar": 4, "radar": 4}
"""Moments of which each sensor of a kind is shown."""
_MOST_STREAMS: Mapping[Kind, int] = {"camera": 16, "lidar": 8, "radar": 8}
_LARGEST = 40_000  # bytes of one picture


@dataclass
class ReportContext:
    """Context that every section uses.

    Attributes:
        found: contents of the session.
        session: the open session, with virtual sensors and the contents of damaged files.
        unreadable: read errors of the sections.
        used: bytes of the pictures so far.
        pictures: largest number of pictures to come, which share the size budget.
    """

    found: SessionScan
    session: Session
    unreadable: list[Reason] = field(default_factory=list)
    used: int = 0
    pictures: int = field(init=False)

    def __post_init__(self) -> None:
        # The expected pictures share the size budget.  A lidar has a range image, too.
        self.pictures = sum(
            len(self.of_kind(kind)) * (count + (kind == "lidar"))
            for kind, count in SENSOR_MOMENTS.items()
        )

    def of_kind(self, kind: Kind) -> list[Stream]:
        """Return the streams of a kind of sensor that the report shows."""
        return [s for s in self.streams if kind_of(s) == kind][: _MOST_STREAMS[kind]]

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
        return sorted({k for t_ns in wanted if (k := stream.nearest(t_ns)) is not None})

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


Make = Callable[[ReportContext], Content]
"""Function that makes the content of a section; None if the session has no data for it."""
