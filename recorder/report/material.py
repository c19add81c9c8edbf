"""What the sections of a report are made from: the open session, moments, and room for pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from recorder.report.findings import Findings, odd_text
from recorder.report.markup import Html, element
from recorder.report.rasters import Picture, data_uri
from recorder.report.verdict import Reason
from recorder.session.reader import Session
from recorder.session.stream import Stream

ROOM = 1_900_000
"""Bytes of all pictures together, before they are encoded as text (which takes a third more)."""
_LARGEST = 40_000  # bytes of one picture


@dataclass
class Material:
    """What a section is made from.

    Attributes:
        found: what the session holds.
        session: open, with virtual sensors, and with what damaged files hold.
        pictures: the number of pictures that are expected at most: they share the room.
        unreadable: what the sections could not read.
    """

    found: Findings
    session: Session
    pictures: int = 1
    unreadable: list[Reason] = field(default_factory=list)
    used: int = 0

    @property
    def streams(self) -> list[Stream]:
        """The recorded streams, without virtual sensors."""
        return [s for s in self.session.streams.values() if not s.name.startswith("_")]

    @property
    def span_ns(self) -> tuple[int, int]:
        """Start and end of what is shown, epoch ns."""
        timeline = self.found.timeline
        return (0, 1) if timeline is None else (timeline.start_ns, timeline.end_ns)

    @property
    def seconds(self) -> float:
        """The length of what is shown."""
        start_ns, end_ns = self.span_ns
        return max(1e-3, (end_ns - start_ns) / 1e9)

    def since_start_s(self, stream: Stream, index: int) -> float:
        """Time of a sample in seconds since the start."""
        return (int(stream.times(index, index + 1)[0]) - self.span_ns[0]) / 1e9

    def moments(self, stream: Stream, count: int) -> list[int]:
        """Indices of samples that lie evenly over the session, each once, at most `count`."""
        start_ns, end_ns = self.span_ns
        length = len(stream)
        if not length or not stream.has_times:
            return []
        step_ns = (end_ns - start_ns) / count
        wanted = (round(start_ns + (k + 0.5) * step_ns) for k in range(count))
        return sorted({nearest(stream, t_ns) for t_ns in wanted})

    def fail(self, where: str, error: BaseException) -> Html:
        """Note what could not be read; the text that is shown in its place."""
        text = odd_text(error)
        self.unreadable.append(Reason("unreadable", where, text))
        return element("p", f"{where}: {text}", class_="odd")

    def picture(self, picture: Picture) -> str:
        """A picture as the address that an ``img`` shows; it gets its share of the room."""
        share = min(_LARGEST, max(1500, (ROOM - self.used) // max(1, self.pictures)))
        self.pictures -= 1
        address, size = data_uri(picture, share)
        self.used += size
        return address


def nearest(stream: Stream, t_ns: int) -> int:
    """Index of the sample nearest to a time; reads few stamps, however long the stream is."""

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


Make = Callable[[Material], Html | None]
"""Makes a section; None where the session has nothing for it."""
