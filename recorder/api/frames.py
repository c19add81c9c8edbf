"""Frames: a sample with the samples of other streams at its time."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from recorder.api.errors import UnknownNameError, describe_unknown
from recorder.api.session import Session
from recorder.api.stream import Sample, Stream, Window, to_ns
from recorder.perception.frames import time_windows

_SENSORS = ("camera", "lidar", "radar")
_MOST_OPEN = 8
"""Sessions that `Frames` keeps open."""

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


class Plan:
    """How the frames of a session are made.

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
            near = stream._tools.search.nearest(t_ns, ns)
            parts[stream.name] = None if near is None else Sample(stream, near, t_ns)
        for stream, ns in self._windows:
            parts[stream.name] = stream.between(t_ns - ns + 1, t_ns + 1)
        return Frame(self._session, index, t_ns, parts)


class Frames:
    """The frames of several sessions as one sequence, for training; made by `frames`.

    It is a dataset as PyTorch's ``DataLoader`` takes it (map-style), and needs no torch.  It can be
    pickled; each process opens its own files, and at most eight sessions at a time.

    Attributes:
        paths: folders of the sessions.
        by: name of the stream whose samples are the frames.
    """

    def __init__(self, paths: Iterable[str | Path], by: str, others: Mapping[str, float]) -> None:
        """Count the frames of the sessions; see `frames`."""
        self.paths = tuple(Path(path).absolute() for path in paths)
        self.by, self._others = by, dict(others)
        self._plans: OrderedDict[int, Plan] = OrderedDict()
        counts = (len(self._plan(number)) for number in range(len(self.paths)))
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Frame:
        """Make one frame; nothing is decoded yet.

        Raises:
            IndexError: there is no such frame.
        """
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"frame {number} of {len(self)}")
        number %= len(self)
        which = bisect_right(self._ends, number)
        return self._plan(which).frame(number - (self._ends[which - 1] if which else 0))

    def __iter__(self) -> Iterator[Frame]:
        """Iterate over the frames of one session after the other."""
        return (self[index] for index in range(len(self)))

    def _plan(self, number: int) -> Plan:
        plan = self._plans.pop(number, None)
        if plan is None:
            plan = Plan(Session(self.paths[number]), self.by, self._others)
        self._plans[number] = plan
        if len(self._plans) > _MOST_OPEN:  # a session closes with the last frame of it
            self._plans.popitem(last=False)
        return plan

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": OrderedDict()}

    def __repr__(self) -> str:
        return f"<Frames: {len(self)} of {self.by!r} in {len(self.paths)} sessions>"


def frames(paths: Iterable[str | Path] | str | Path, by: str, /, **others: float) -> Frames:
    """Make one sequence of the frames of several sessions, with ``len`` and an index.

    ::

        dataset = recorder.frames(recorder_paths, "camera", lidar=0.05)
        dataset[0].camera.rgb

    Args:
        paths: folders of the sessions, or one folder.
        by: name of the stream whose samples are the frames.
        others: seconds by name of stream, as for `Session.synchronized`.

    Raises:
        SessionError: a session cannot be opened, or a stream has no times.
        UnknownNameError: a session has no such stream.
        ValueError: a number of seconds is negative or not finite.
    """
    return Frames([paths] if isinstance(paths, str | Path) else paths, by, others)
