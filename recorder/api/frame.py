"""Frame of a session: a sample with the samples of other streams at its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recorder.api.errors import UnknownNameError, describe_unknown
from recorder.api.stream import Sample, Stream, Window, to_ns
from recorder.perception.frames import time_windows

if TYPE_CHECKING:
    from recorder.api.session import Session

_SENSORS = ("camera", "lidar", "radar")
Part = Sample | Window | None


@dataclass(frozen=True)
class Frame:
    """A sample, and the samples of other streams at its time: ``frame.camera``, ``frame["imu"]``.

    A camera, lidar or radar is a `Sample`, or None where none is near; other streams are `Window`s.
    The points of a lidar are moved to the frame's time (`Sample.points`).

    Attributes:
        session: their session.
        index: index of the sample that the frame was made of.
        t_ns: its time, the end of its measurement, epoch ns.
        streams: the samples and windows by name of stream.
    """

    session: Session
    index: int
    t_ns: int
    streams: Mapping[str, Part]

    def __getitem__(self, stream: str) -> Any:
        """Choose what a stream has at the frame's time.

        Raises:
            UnknownNameError: the frame has no such stream; the text suggests another.
        """
        try:
            return self.streams[stream]
        except KeyError:
            text = describe_unknown("the frame", "stream", stream, self.streams)
            raise UnknownNameError(text) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "streams":  # looked for by copy and pickle
            raise AttributeError(name)
        try:
            return self[name]
        except UnknownNameError as error:
            raise AttributeError(str(error)) from None


class FramePlan:
    """Streams that the frames of a session are made of, and how near their samples must be.

    Args:
        session: the session.
        by: name of the stream whose samples are the frames.
        others: seconds by name of stream.
    """

    def __init__(self, session: Session, by: str, others: Mapping[str, float]) -> None:
        self._session, self._by = session, session[by]
        self._near: list[tuple[Stream, int]] = []
        self._windows: list[tuple[Stream, int]] = []
        for name, seconds in others.items():
            stream = session[name]
            found = self._near if stream.kind in _SENSORS else self._windows
            found.append((stream, to_ns(name, seconds)))
        for stream in (self._by, *(s for s, _ in self._near + self._windows)):
            stream._reader.times(0, 0)  # an error of a stream without times

    def __len__(self) -> int:
        return len(self._by)

    def frames(self) -> Iterator[Frame]:
        """Iterate over the frames."""
        for start, times in time_windows(self._by._reader):
            for index, t_ns in enumerate(times.tolist(), start):
                yield self._frame(index, t_ns)

    def frame(self, index: int) -> Frame:
        """Make one frame."""
        return self._frame(index, self._by[index].t_ns)

    def _frame(self, index: int, t_ns: int) -> Frame:
        parts: dict[str, Part] = {self._by.name: Sample(self._by, index, t_ns)}
        for stream, ns in self._near:
            near = stream._reader.nearest(t_ns, ns)
            parts[stream.name] = None if near is None else Sample(stream, near, t_ns)
        for stream, ns in self._windows:
            parts[stream.name] = stream.between(t_ns - ns + 1, t_ns + 1)
        return Frame(self._session, index, t_ns, parts)
