"""Streams of a session, their samples one by one, and windows of samples."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from recorder.api.calibration import check_frame
from recorder.api.errors import UnknownNameError, describe_unknown
from recorder.perception.ego_motion import motion_around
from recorder.perception.frames import Kind
from recorder.perception.geometry import apply
from recorder.session.playback import find_unit

if TYPE_CHECKING:
    from recorder.api.session import Session
    from recorder.api.stream_tools import StreamTools
    from recorder.session.stream import Stream as StreamReader

_ROWS = 4096
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Channel:
    """Declaration of a channel.

    Attributes:
        name: its name.
        dtype: type of its values.
        shape: shape of one sample.
        unit: unit of the values, or an empty text.
        description: what the values are.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    unit: str
    description: str


class Stream:
    """One stream of a session; samples are read when they are asked for, and not kept.

    ::

        imu = session["imu"]
        imu[0].acc                       # float32 [3], the first sample
        imu[100:200].acc                 # float32 [100, 3]
        for window in imu.windows():     # all samples, in bounded memory
            window.t_ns, window.acc

    Attributes:
        session: its session.
        name: its name.
    """

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name = session, name

    @property
    def _tools(self) -> StreamTools:
        return self.session._tools(self.name)

    @property
    def _reader(self) -> StreamReader:
        return self._tools.stream

    def __len__(self) -> int:
        """Count the whole samples.

        Raises:
            FormatError: a channel is missing or damaged.
        """
        return len(self._reader)

    @property
    def kind(self) -> Kind:
        """``camera``, ``lidar``, ``radar``, ``imu`` or ``other``, by the stream's channels."""
        return self._tools.kind

    @property
    def t_ns(self) -> npt.NDArray[np.int64]:
        """Ends of all measurements, int64 [n], epoch ns; 8 bytes a sample are kept in memory."""
        return self._reader.t_ns

    @property
    def rate_hz(self) -> float | None:
        """Mean rate of the recorded samples, Hz; None for fewer than two samples."""
        reader, count = self._reader, len(self)
        if count < 2:
            return None
        first, last = (int(reader.times(at, at + 1)[0]) for at in (0, count - 1))
        return (count - 1) * 1e9 / (last - first) if last > first else None

    @property
    def channels(self) -> Mapping[str, Channel]:
        """Declarations of the channels by name, without times and sample numbers."""
        reader = self._reader
        found = {}
        for name in reader.data_channels:
            entry = reader.meta[name]
            dtype, shape = np.dtype(entry["type"]), tuple(entry["shape"])
            text = str(entry.get("desc") or "")
            found[name] = Channel(name, dtype, shape, find_unit(reader, name), text)
        return found

    @property
    def lost(self) -> dict[str, int]:
        """Number of samples counted as lost, by cause; see `Session.lost`."""
        return self.session.lost(self.name)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Window: ...
    def __getitem__(self, index: int | slice) -> Sample | Window:
        """Choose a sample, or the window of a range of samples; nothing is read yet.

        Raises:
            IndexError: there is no such sample.
            ValueError: the slice has a step.
        """
        count = len(self)
        if isinstance(index, slice):
            start, stop, step = index.indices(count)
            if step != 1:
                raise ValueError(f"a window has no step, but {step} is asked for")
            return Window(self, range(start, max(start, stop)))
        number = operator.index(index)
        if not -count <= number < count:
            raise IndexError(f"{self._reader.path}: sample {number} of {count}")
        return Sample(self, number % count)

    def __iter__(self) -> Iterator[Sample]:
        """Iterate over the samples, in bounded memory."""
        return (Sample(self, index) for index in range(len(self)))

    def windows(self, samples: int = _ROWS) -> Iterator[Window]:
        """Iterate over all samples in windows, in bounded memory.

        Args:
            samples: number of samples of a window.
        """
        for start in range(0, len(self), samples):
            yield self[start : start + samples]

    def nearest(self, t_ns: int, tolerance: float | None = None) -> Sample | None:
        """Find the sample nearest to a time, the earlier one of two that are equally near.

        Args:
            t_ns: epoch ns.
            tolerance: largest distance in seconds, included; None: any distance.

        Returns:
            the sample; None where no sample is near enough.

        Raises:
            SessionError: the stream has no times.
            ValueError: the tolerance is negative or not finite.
        """
        limit_ns = None if tolerance is None else to_ns("tolerance", tolerance)
        index = self._reader.nearest(t_ns, limit_ns)
        return None if index is None else Sample(self, index)

    def between(self, start_ns: int, end_ns: int) -> Window:
        """Choose the samples with stamps in a half-open interval.

        Args:
            start_ns: stamps of this time or later, epoch ns.
            end_ns: stamps before this time, epoch ns.

        Raises:
            SessionError: the stream has no times.
        """
        return Window(self, self._reader.between(start_ns, end_ns))

    def picture(self, index: int) -> npt.NDArray[np.uint8]:
        """Decode a camera's picture, uint8 [height, width, 3], RGB.

        JPEG and video are decoded; raw pictures are demosaiced and shown between their levels.

        Raises:
            IndexError: there is no such sample.
            SessionError: the stream is no camera's.
            FormatError: the sample is damaged.
        """
        return self._tools.rgb(self[index].index)

    def jpeg(self, index: int) -> bytes:
        """Read a camera's picture as JPEG: the recorded bytes, or raw pictures and video encoded.

        Raises:
            IndexError, SessionError, FormatError: as for `picture`.
        """
        return self._tools.pictures.jpeg(self[index].index)

    def ranges(self, index: int) -> npt.NDArray[np.float32]:
        """Read the ranges of a lidar's sweep as a picture.

        Returns:
            float32 [beams, columns], m, of the first returns; 0 without a return.  An Ouster's is
            destaggered: a column has the same azimuth in all rows; others have the columns in the
            order of their firing.

        Raises:
            IndexError: there is no such sample.
            SessionError: the stream is no lidar's, or its lidar records points.
            FormatError: the sample, ``lidar.json`` or ``beams.json`` is damaged.
        """
        return self._tools.ranges_m(self[index].index)

    def cloud(self, index: int) -> npt.NDArray[Any]:
        """Read the points of a lidar's sweep with all that is known of each, in its own frame.

        Returns:
            structured array [n] with the fields x, y, z (float32, m), and what the lidar has:
            ``intensity``, ``ring``, ``return`` (0 for the first), ``t_ns`` (int64, epoch ns, of
            each point), and others.  A lidar that records ranges has no points without a return;
            those of recorded points are NaN or 0, 0, 0, as recorded.

        Raises:
            IndexError: there is no such sample.
            SessionError: the stream is no lidar's.
            FormatError: the sample or its metadata are damaged.
        """
        return self._tools.cloud(self[index].index)

    def points(
        self,
        index: int,
        frame: Literal["rig", "sensor"] = "rig",
        motion_corrected: bool = True,
        at_ns: int | None = None,
    ) -> npt.NDArray[np.float32]:
        """Compute the points of a lidar's sweep (all returns), or a radar's detections.

        Args:
            index: index of the sample.
            frame: ``rig``; or ``sensor``: as measured, each point in the sensor's frame at the
                time of the point.
            motion_corrected: in the rig's frame, whether each point of a sweep is moved to where
                it is in the rig at `at_ns`, by the rig's motion since the point was measured.
                Without poses (`Session.pose`) points are not moved.
            at_ns: the time to which points are moved, epoch ns; None: the sample's stamp.

        Returns:
            float32 [n, 3], m; a lidar's row by row, first returns first, or as they are recorded
            (without a return NaN or 0, 0, 0); a radar's strongest first.

        Raises:
            IndexError: there is no such sample.
            SessionError: the stream is of another kind, or its place in the rig is not calibrated.
            FormatError: the sample or its metadata are damaged.
            ValueError: there is no such frame.
        """
        tools, number = self._tools, self[index].index
        in_rig = check_frame(frame) == "rig"
        place = self.session.calibration(self.name)._require_place() if in_rig else None
        xyz, t_ns, stamp_ns = tools.points(number)
        if place is None:
            return xyz
        points = apply(place, xyz)
        poses = self.session._poses if motion_corrected else None
        if poses is not None and len(points):
            reference_ns = stamp_ns if at_ns is None else at_ns
            motion = motion_around(poses.at, reference_ns, stamp_ns, tools.period_ns)
            points = motion.move(points, t_ns)
        return points.astype(np.float32)

    def to_pandas(self, channels: Sequence[str] | None = None) -> Any:
        """Read all samples into a table; see `Window.to_pandas`."""
        return self[:].to_pandas(channels)

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} of {str(self.session.path)!r}>"


class _ChannelValues:
    """Values of channels as items, and as attributes where the name is an identifier."""

    stream: Stream

    def __getitem__(self, channel: str) -> Array:
        """Read a channel.

        Raises:
            UnknownNameError: there is no such channel.
            FormatError: its bytes are damaged.
        """
        self._check(channel)
        return self._read(channel)

    def _check(self, channel: str) -> None:
        reader = self.stream._reader
        if channel not in reader.meta:
            names = reader.data_channels
            raise UnknownNameError(describe_unknown(reader.path, "channel", channel, names))

    def _read(self, channel: str) -> Array:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Array:
        if name.startswith("__") or name == "stream":  # looked for by copy and pickle
            raise AttributeError(name)
        try:
            return self[name]
        except UnknownNameError as error:
            raise AttributeError(str(error)) from None


class Sample(_ChannelValues):
    """One sample; its values are read when they are asked for: ``sample.acc``, ``sample["acc"]``.

    Attributes:
        stream: its stream.
        index: its index in the stream.
        at_ns: the time to which `points` are moved: that of the `Frame` which has the sample.
    """

    def __init__(self, stream: Stream, index: int, at_ns: int | None = None) -> None:
        self.stream, self.index, self.at_ns = stream, index, at_ns

    @property
    def t_ns(self) -> int:
        """End of the measurement, epoch ns."""
        return int(self.stream._reader.times(self.index, self.index + 1)[0])

    def _read(self, channel: str) -> Array:
        return self.stream._reader.sample(self.index, [channel])[channel]

    def encoded(self, channel: str) -> bytes:
        """Read the recorded bytes of a channel, not decoded: a JPEG, a datagram, an array.

        Args:
            channel: name of the channel.

        Raises:
            UnknownNameError: there is no such channel.
            FormatError: its bytes are damaged.
        """
        self._check(channel)
        return self.stream._reader.channels[channel].encoded(self.index)

    @property
    def rgb(self) -> npt.NDArray[np.uint8]:
        """A camera's picture, uint8 [height, width, 3]; see `Stream.picture`."""
        return self.stream.picture(self.index)

    @property
    def jpeg(self) -> bytes:
        """A camera's picture as JPEG; see `Stream.jpeg`."""
        return self.stream.jpeg(self.index)

    @property
    def ranges(self) -> npt.NDArray[np.float32]:
        """A sweep's ranges, float32 [beams, columns], m; see `Stream.ranges`."""
        return self.stream.ranges(self.index)

    @property
    def cloud(self) -> npt.NDArray[Any]:
        """A sweep's points with all their fields, structured array [n]; see `Stream.cloud`."""
        return self.stream.cloud(self.index)

    def points(
        self, frame: Literal["rig", "sensor"] = "rig", motion_corrected: bool = True
    ) -> npt.NDArray[np.float32]:
        """Compute points, float32 [n, 3], m, moved to the time `at_ns`; see `Stream.points`."""
        return self.stream.points(self.index, frame, motion_corrected, self.at_ns)

    def __repr__(self) -> str:
        return f"<Sample {self.index} of {self.stream!r}>"


class Window(_ChannelValues):
    """Consecutive samples; values are read when they are asked for: ``window.acc`` [n, 3].

    Attributes:
        stream: their stream.
        indices: their indices in the stream.
    """

    def __init__(self, stream: Stream, indices: range) -> None:
        self.stream, self.indices = stream, indices

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def t_ns(self) -> npt.NDArray[np.int64]:
        """Ends of the measurements, int64 [n], epoch ns."""
        return self.stream._reader.times(self.indices.start, self.indices.stop)

    def _read(self, channel: str) -> Array:
        start, stop = self.indices.start, self.indices.stop
        return self.stream._reader.read(start, stop, [channel])[channel]

    def to_pandas(self, channels: Sequence[str] | None = None) -> Any:
        """Read the samples into a table, all in memory.

        Args:
            channels: names of the channels; None: those of at most 64 values a sample.

        Returns:
            ``pandas.DataFrame``, a row per sample, indexed by UTC time (ns).  A channel of one
            value is one column (``seq``), others have a column per value (``acc[0]``).

        Raises:
            ImportError: pandas is not installed.
            UnknownNameError: there is no such channel.
            UsageError: a channel has too many values for a table.
        """
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        from recorder.archives.export.whole_files import table_channels

        for name in channels or ():
            self._check(name)
        named = table_channels(self.stream._reader, channels)
        columns = {}
        for name in named if channels is None else channels:
            values = self[name]
            rows = values.reshape(len(self), -1).T
            for place, row in zip(product(*map(range, values.shape[1:])), rows, strict=True):
                columns[name + "".join(f"[{k}]" for k in place)] = row
        return pandas.DataFrame(columns, index=pandas.to_datetime(self.t_ns, unit="ns", utc=True))

    def __repr__(self) -> str:
        start, stop = self.indices.start, self.indices.stop
        return f"<Window of samples {start} to {stop} of {self.stream!r}>"


def to_ns(name: str, seconds: float) -> int:
    """Convert a duration in seconds to ns; ValueError if it is negative or not finite."""
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{name}: needs seconds, not {seconds!r}")
    return round(seconds * 1e9)
