"""Sessions: their streams, times, losses, poses and calibration; frames of several sessions."""

from __future__ import annotations

import heapq
import operator
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.api.calibration import Calibration
from recorder.api.errors import UnknownNameError, describe_unknown
from recorder.api.frame import Frame, FramePlan
from recorder.api.stream import Sample, Stream
from recorder.api.stream_tools import StreamTools
from recorder.common.errors import SessionError
from recorder.common.files import Closeable
from recorder.perception.calibration import Calibration as CalibrationFile
from recorder.perception.calibration import session_calibration
from recorder.perception.ego_motion import PoseWindow
from recorder.perception.frames import time_windows
from recorder.perception.poses import Identity, RecordedPoses, find_poses
from recorder.session.discovery import find_sessions_below
from recorder.session.event_clips import KeptEvent
from recorder.session.loss_accounts import loss_intervals, losses
from recorder.session.missing_sensors import collect_losses
from recorder.session.part import WHOLE, Moment, Part
from recorder.session.reader import Session as Reader
from recorder.session.session_part import SessionPart

Time = float | str


@dataclass(frozen=True)
class Gap:
    """A loss of samples.

    Attributes:
        stream: name of the stream.
        start_ns, end_ns: stamps of the samples around it, or the interval of an event; epoch ns;
            None if not known.
        cause: its cause, such as ``buffer``, ``network`` or ``absent``; ``unknown`` without one.
        count: number of samples; None if they could not be counted.
        estimate: estimated number of samples of an uncounted loss; None without an estimate.
        first_seq, last_seq: the missing sample numbers, both included; None if not known.
    """

    stream: str
    start_ns: int | None
    end_ns: int | None
    cause: str
    count: int | None
    estimate: int | None
    first_seq: int | None
    last_seq: int | None


class Session(Closeable):
    """A session, or a part of one, for reading; made by `open` and `sessions`.

    ::

        with recorder.open("sessions/drive") as session:
            session["imu"][0].acc                       # a stream by its name
            for frame in session.synchronized("camera", lidar=0.05):
                frame.camera.rgb, frame.lidar

    Files are opened when they are first needed, and closed by `close`, at the end of a ``with``
    block, or with the last reference.  A session can be pickled: the copy opens the files again, in
    whatever process.  One session is for one thread.

    Attributes:
        path: the session's folder.
    """

    def __init__(
        self, path: str | Path, from_: Time | None = None, until: Time | None = None
    ) -> None:
        """Name a session, without opening it; see `open`."""
        self.path = Path(path)
        self._interval = from_, until
        self._part = Part(_moment(from_), _moment(until))
        self._open: Reader | None = None
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._made: dict[str, StreamTools] = {}
        self._file: CalibrationFile | None = None
        self._source: RecordedPoses | None = None
        self._window: PoseWindow | None = None

    @property
    def _reader(self) -> Reader:
        if self._closed:
            raise SessionError(f"{self.path}: the session is closed; open it again to read it")
        if self._open is None:
            if self._part == WHOLE:
                self._open = Reader(self.path, virtual=True)
            else:
                self._open = SessionPart(self.path, self._part)
            weakref.finalize(self, self._open.close)
        return self._open

    def _tools(self, name: str) -> StreamTools:
        reader = self._reader
        if name not in self._made:
            if name not in reader.streams and name not in reader.broken:
                text = describe_unknown(self.path, "stream", name, self.streams)
                raise UnknownNameError(text)
            self._made[name] = StreamTools(reader.stream(name), self._calibration)
        return self._made[name]

    @property
    def _calibration(self) -> CalibrationFile:
        if self._file is None:
            self._file = session_calibration(self.path)
        return self._file

    @property
    def _pose_source(self) -> RecordedPoses:
        reader = self._reader
        if self._source is None:
            self._source = find_poses(reader.whole, self._calibration)
        return self._source

    @property
    def _poses(self) -> PoseWindow | None:
        """Poses of the rig; None where none were recorded."""
        source = self._pose_source
        if self._window is None and not isinstance(source, Identity):
            self._window = PoseWindow(source)
        return self._window

    @property
    def name(self) -> str:
        """Name of the session."""
        return self._reader.name

    @property
    def state(self) -> str:
        """``recording``, ``clean``, ``sealed`` (the disk failed) or ``recovered``."""
        return self._reader.state

    @property
    def live(self) -> bool:
        """Whether a process records the session right now."""
        return self._reader.live

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the config; what looks like a secret is masked."""
        return self._reader.metadata

    @property
    def start_ns(self) -> int | None:
        """Start, epoch ns; None for a plain trace without samples."""
        return self._reader.start_ns

    @property
    def end_ns(self) -> int | None:
        """End, epoch ns; None if the session was not closed."""
        return self._reader.end_ns

    @property
    def streams(self) -> dict[str, Stream]:
        """The recorded streams by name, sorted.

        Processed ones (``_pose``) are not among them, but are found by their names.
        """
        return {n: Stream(self, n) for n in self._reader.streams if not n.startswith("_")}

    def __getitem__(self, name: str) -> Stream:
        """Choose a stream by its name.

        Raises:
            UnknownNameError: there is no such stream; a `KeyError` whose text suggests another.
            FormatError: the stream's ``meta.json`` is damaged.
        """
        self._tools(name)
        return Stream(self, name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the recorded streams."""
        return iter(self.streams)

    def __contains__(self, name: object) -> bool:
        """Return whether there is a stream of that name."""
        return name in self._reader.streams

    def synchronized(self, by: str, /, **others: float) -> Iterator[Frame]:
        """Iterate over a stream's samples, each with the samples of other streams at its time.

        ::

            for frame in session.synchronized("camera", lidar=0.05, imu=0.5):
                frame.t_ns, frame.camera.rgb
                if frame.lidar is not None:
                    frame.lidar.points("rig")
                frame.imu.acc

        A time is the end of a measurement: of a camera's exposure, and of a lidar's last column.
        Memory does not grow with the session.

        Args:
            by: name of the stream whose samples are the frames.
            others: seconds by name of stream.  Of a camera, a lidar or a radar, the frame has the
                `Sample` nearest to its time, at most that many seconds before or after it, else
                None.  Of other streams (IMU, positions, CAN), it has the `Window` of that many
                seconds that ends at its time: a sample at that time is in the window, a sample at
                the window's start is not.

        Raises:
            UnknownNameError: there is no such stream.
            SessionError: a stream has no times.
            ValueError: a number of seconds is negative or not finite.
        """
        return FramePlan(self, by, others).frames()

    def samples(self, *streams: str) -> Iterator[Sample]:
        """Iterate over the samples of several streams in order of time, in bounded memory.

        Args:
            streams: their names; none: all recorded streams with times.

        Raises:
            UnknownNameError: there is no such stream.
            SessionError: a stream has no times.
        """
        reader = self._reader
        names = streams or tuple(n for n in self.streams if reader.streams[n].has_times)
        feeds = [self._stamps(self[name], number) for number, name in enumerate(names)]
        return (Sample(stream, i) for _, _, i, stream in heapq.merge(*feeds, key=itemgetter(0, 1)))

    def _stamps(self, stream: Stream, number: int) -> Iterator[tuple[int, int, int, Stream]]:
        for start, times in time_windows(stream._reader):
            yield from ((t, number, i, stream) for i, t in enumerate(times.tolist(), start))

    def lost(self, stream: str) -> dict[str, int]:
        """Count a stream's lost samples by cause, as ``recorder info`` does.

        A cause whose losses could not be counted has the count 0; `gaps` has their intervals.

        Args:
            stream: name of the stream; it may be without any sample.

        Raises:
            UnknownNameError: there is no such stream, and no loss of one.
            FormatError: the event log is damaged.
        """
        events = self._losses()
        if stream not in events:
            if stream not in self._reader.declared:
                self._tools(stream)
            return {}
        return losses(events[stream])[0]

    def gaps(self, stream: str | None = None) -> list[Gap]:
        """List the losses one by one, in order of time.

        Args:
            stream: name of a stream; None: all streams.

        Raises:
            FormatError: the event log, stamps or sample numbers are damaged.
        """
        events, reader = self._losses(), self._reader
        names = sorted({*events, *self.streams}) if stream is None else [stream]
        found = [
            Gap(
                name, lost.start_ns, lost.end_ns, lost.cause, lost.count, lost.estimate,
                lost.first_seq, lost.last_seq,
            )
            for name in names
            for lost in loss_intervals(reader.streams.get(name), events.get(name, []))
        ]  # fmt: skip
        return sorted(found, key=lambda gap: gap.start_ns or 0)

    def _losses(self) -> dict[str, list[dict[str, Any]]]:
        return collect_losses(self._reader)

    def events(self) -> Iterator[dict[str, Any]]:
        """Iterate over the session's event log: losses, marks, faults, starts and ends.

        Each event is ``{t_ns, type, stream, cause, count, ...}``.

        Raises:
            FormatError: a line is not JSON; the message names file and line.
        """
        return self._reader.events()

    def kept_events(self) -> list[KeptEvent]:
        """List the events for which a ring kept this session: id, time, window, and shortfalls.

        Raises:
            FormatError: their file is damaged.
        """
        return self._reader.kept_events()

    def calibration(self, sensor: str) -> Calibration:
        """Return the calibration of a sensor; its values are None where the session has none.

        Raises:
            UnknownNameError: neither the session nor its calibration has such a sensor.
            SessionError: ``calibration.yaml`` is wrong; the message names line and key.
        """
        if sensor not in self._calibration.sensors:
            self._tools(sensor)
        return Calibration._of(self._calibration, sensor)

    def pose(self, t_ns: int) -> npt.NDArray[np.float64] | None:
        """Interpolate the rig's pose at a time.

        Args:
            t_ns: epoch ns.

        Returns:
            ``T_rig_world``, float64 [4, 4], m; None where the session has no pose within 0.1 s, or
            no two poses around the time that are at most a second apart.  The translation is zero
            where only orientations were measured: see `pose_source`.

        Raises:
            FormatError: the poses are damaged.
        """
        return None if self._poses is None else self._poses.pose(t_ns)

    @property
    def pose_source(self) -> Mapping[str, Any]:
        """Where poses come from: ``source``, and whether they are ``measured`` in whole."""
        return self._pose_source.describe()

    def refresh(self) -> None:
        """Read the lengths of all streams again: new samples of a recording become visible."""
        self._reader.refresh()
        self._forget()

    def close(self) -> None:
        """Close all files.  Each later use of the session raises `SessionError`."""
        self._closed = True
        if self._open is not None:
            self._open.close()
            self._forget()

    def __reduce__(self) -> tuple[type[Session], tuple[Path, Time | None, Time | None]]:
        """Pickle what opens the session again."""
        return Session, (self.path.absolute(), *self._interval)

    def __repr__(self) -> str:
        return f"<Session {str(self.path)!r}{' (closed)' if self._closed else ''}>"


def _moment(time: Time | None) -> Moment | None:
    if time is None or isinstance(time, str):
        return None if time is None else Moment.parse(time)
    return Moment.parse(f"{Decimal(repr(time)):f}")


def open(path: str | Path, *, from_: Time | None = None, until: Time | None = None) -> Session:
    """Open a session for reading: finished, being recorded, or left by a crash; or a roverd trace.

    ::

        session = recorder.open("sessions/drive", from_=10, until="2026-01-01T12:00:30Z")

    Args:
        path: the session's folder.
        from_: read from this time on: seconds since the start of the session, or UTC as a text.
        until: read up to, and without, this time.

    Raises:
        SessionError: there is no such session, ``session.json`` is damaged, or the part has no
            sample.
        UsageError: a time is neither.
    """
    session = Session(path, from_, until)
    _ = session._reader
    return session


def sessions(root: str | Path) -> Iterator[Session]:
    """Find the sessions in a folder and in its folders, by path.

    A session is opened at its first use, so that a damaged one does not end the iteration.

    Args:
        root: the folder.

    Raises:
        SessionError: the folder cannot be read; for a folder in it, after the last session.
    """
    failures: list[str] = []
    for path in find_sessions_below(Path(root), failures.append):
        yield Session(path)
    if failures:
        raise SessionError("; ".join(failures))


_MOST_OPEN = 8
"""Sessions that `Frames` keeps open."""


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
        self._plans: OrderedDict[int, FramePlan] = OrderedDict()
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

    def _plan(self, number: int) -> FramePlan:
        plan = self._plans.pop(number, None)
        if plan is None:
            plan = FramePlan(Session(self.paths[number]), self.by, self._others)
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
