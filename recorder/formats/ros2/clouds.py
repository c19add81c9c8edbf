"""Point clouds of ROS 2 as sweeps of columns: PointCloud2, and CustomMsg of Livox's drivers.

Any names, offsets, order, padding and byte order of the fields are read, organised clouds and those
that are not, with NaN points as they come.  What a cloud lacks is not made up::

    clouds = [decode_cloud(data) for data in first_messages]
    layout = CloudLayout.of(clouds)          # its columns are the stream's
    for data in messages:
        sweep = layout.pack(decode_cloud(data))

=============  ====================================================================================
column         from the fields
=============  ====================================================================================
``xyz``        ``x``, ``y``, ``z``: f4, or f8 where they are more exact than that
``intensity``  ``intensity``; of CustomMsg ``reflectivity``, which Livox's clouds have as intensity
``ring``       ``ring``, ``channel``, ``line``, ``laser_id``, ``beam``, the first that is whole
``t_offset``   ``t``, ``time``, ``timestamp``, ``offset_time``, ``time_offset``, with their units
others         all others, by their names
=============  ====================================================================================

A sample's time is that of its last point.  A point's time is stored as ns since the begin of the
sweep, which is the sample's time minus the largest ``t_offset``.  Drivers send it in ns since the
cloud's stamp (Ouster, Livox's CustomMsg), in s before or after the stamp (Velodyne), in s since
1970 (Hesai, RoboSense) or in ns since 1970 (Livox).  The unit follows from the first clouds: an
integer counts ns, unless its name ends in ``_us`` or ``_ms``; of the units of a float, the first is
taken in which a sweep lasts at most 5 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.points import MOST_POINTS, Column, Planes, pack_planes
from recorder.codecs.shuffling import transpose
from recorder.common.errors import FormatError, StreamChangedError
from recorder.common.files import Buffer
from recorder.formats.ros2.codec import CdrReader, decode_message
from recorder.formats.ros2.definitions import POINT_CLOUD
from recorder.formats.ros2.messages import Header, PointCloud2, PointField

NO_TIME: Final = 0xFFFF_FFFF
"""``t_offset`` of a point whose time the cloud does not have, or has too far from its stamp."""
LIVOX_CLOUDS: Final = frozenset(
    {"livox_ros_driver2/msg/CustomMsg", "livox_ros_driver/msg/CustomMsg"}
)

_XYZ: Final = ("x", "y", "z")
_RINGS: Final = ("ring", "channel", "line", "laser_id", "beam")
_TIMES: Final = ("t", "time", "timestamp", "offset_time", "time_offset", "time_offset_ns", "t_us")
_PADDING: Final = ("", "_")
_TYPES: Final = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8")  # datatypes 1 to 8
_SECOND: Final = 1_000_000_000
_UNITS_NS: Final = (_SECOND, 1_000_000, 1000, 1)
_LONGEST_SWEEP_S: Final = 5.0
_NEAR_NS: Final = 10 * _SECOND  # between a stamp and the points' times, if both are of one clock
_FARTHEST_NS: Final = 1 << 31  # between a stamp and a point's time
_LEAST_REACH_NS: Final = 500_000_000
_SPREAD: Final = 3  # times what the first clouds' points are apart from their stamps
_ROUNDING_NS: Final = 500  # of a time since 1970 as a float of 8 bytes
_LARGEST_STEP: Final = (1 << 16) - 1

_LIVOX_STEP: Final = 20
_LIVOX_FIELDS: Final = tuple(
    PointField(name, offset, datatype)
    for name, offset, datatype in (
        ("offset_time", 0, 6), ("x", 4, 7), ("y", 8, 7), ("z", 12, 7),
        ("intensity", 16, 2), ("tag", 17, 2), ("line", 18, 2),
    )
)  # fmt: skip

Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Cloud:
    """A decoded cloud, whose points are not copied.

    Attributes:
        header: stamp and frame.
        rows, columns: of an organised cloud; else 1 row.
        fields: of a point, with positive counts.
        is_bigendian: byte order of the fields.
        data: bytes of the points, u1 [points, bytes of a point], read-only.
        base_ns: time from which a field with relative times counts, minus the stamp.
    """

    header: Header
    rows: int
    columns: int
    fields: tuple[PointField, ...]
    is_bigendian: bool
    data: npt.NDArray[np.uint8]
    base_ns: int = 0

    def read(self, each: PointField) -> Values:
        """Return the values of a field, [points] or [points, count], in its own type."""
        dtype = np.dtype((">" if self.is_bigendian else "<") + _TYPES[each.datatype - 1])
        end = each.offset + each.count * dtype.itemsize
        values = np.ascontiguousarray(self.data[:, each.offset : end]).view(dtype)
        return values[:, 0] if each.count == 1 else values


def decode_cloud(data: Buffer) -> Cloud:
    """Decode a ``sensor_msgs/msg/PointCloud2``.

    Raises:
        FormatError: the bytes are not such a message, or its numbers contradict each other.
    """
    message: PointCloud2 = decode_message(POINT_CLOUD, data)
    fields = tuple(
        each if each.count else replace(each, count=1)  # PCL writes 0 for a scalar
        for each in message.fields
        if each.name not in _PADDING
    )
    for each in fields:
        if not 1 <= each.datatype <= len(_TYPES):
            raise _fault(f"field {each.name!r:.80} has the datatype {each.datatype}")
    points = message.height * message.width
    if points > MOST_POINTS:
        raise _fault(f"{message.height} x {message.width} points are more than {MOST_POINTS}")
    least = max((_find_end(each) for each in fields), default=0)
    step = message.point_step or _guess_step(message, least)
    if not least <= step <= _LARGEST_STEP:
        raise _fault(f"the fields of a point end at byte {least}, a point at {step}")
    row_step = message.row_step if message.height > 1 and message.row_step else message.width * step
    if row_step < message.width * step:
        raise _fault(f"a row of {message.width} points of {step} bytes has {row_step} bytes")
    size = len(message.data)
    needed = (message.height - 1) * row_step + message.width * step if points else 0
    if size < needed or (size and not points):
        raise _fault(f"has {size} bytes of {message.height} x {message.width} points of {step}")
    raw = np.frombuffer(message.data, np.uint8)
    if row_step == message.width * step:
        records = raw[:needed].reshape(points, step)
    else:
        padded = np.zeros(message.height * row_step, np.uint8)
        padded[:size] = raw[: len(padded)]
        records = padded.reshape(message.height, row_step)[:, : message.width * step]
        records = records.reshape(points, step)
    return Cloud(
        message.header, message.height, message.width, fields, message.is_bigendian, records
    )


def decode_livox(type_name: str, data: Buffer) -> Cloud:
    """Decode a ``CustomMsg`` of livox_ros_driver or livox_ros_driver2.

    Raises:
        FormatError: the bytes are not such a message.
    """
    reader = CdrReader(data, type_name)
    (seconds, nanoseconds), frame_id = reader.take("iI"), reader.string()
    if nanoseconds >= _SECOND:
        raise reader.error(f"a time with {nanoseconds} ns in a second")
    timebase_ns, announced, *_ = reader.take("QI4B")
    points = reader.count(_LIVOX_STEP - 1)
    if points != announced or points > MOST_POINTS:
        raise reader.error(f"{points} points, where the message says {announced}")
    content = reader.raw(max(0, points * _LIVOX_STEP - 1))  # the last point has no padding
    reader.finish()
    records = np.zeros((points, _LIVOX_STEP), np.uint8)
    records.reshape(-1)[: len(content)] = np.frombuffer(content, np.uint8)
    header = Header(seconds * _SECOND + nanoseconds, frame_id)
    ahead_ns = timebase_ns - header.stamp_ns
    base_ns = ahead_ns if abs(ahead_ns) <= _SECOND else 0  # else of the lidar's own clock
    return Cloud(header, 1, points, _LIVOX_FIELDS, False, records, base_ns)


def _fault(text: str) -> FormatError:
    return FormatError(f"{POINT_CLOUD}: {text}")


def _changed(text: str) -> StreamChangedError:
    return StreamChangedError(f"{POINT_CLOUD}: {text}")


def _find_end(each: PointField) -> int:
    return each.offset + each.count * int(_TYPES[each.datatype - 1][1])


def _guess_step(message: PointCloud2, least: int) -> int:
    """Return the bytes of a point where the message has 0: all, or the fields' own."""
    points = message.height * message.width
    return len(message.data) // points if points and not len(message.data) % points else least


@dataclass(frozen=True, slots=True)
class PackedSweep:
    """A cloud as one sample of a stream.

    Attributes:
        frame: the packed points.
        end_ns: time of the last point, which is the sample's, minus the cloud's stamp; 0 without
            times.
    """

    frame: bytes
    end_ns: int


@dataclass(frozen=True, slots=True)
class PointTime:
    """Meaning of the field with the points' times.

    Attributes:
        field: its name.
        unit_ns: ns of its unit.
        origin: what it counts from: ``stamp``, ``1970`` (also of the stamp's own clock), or
            ``own``: another clock, so that the sweep's first point is taken to have its stamp.
        reach_ns: longest time between a cloud's stamp and a point; a point that is farther away has
            no time, since the last point's time is the sweep's.
    """

    field: str
    unit_ns: int
    origin: str
    reach_ns: int

    def offsets_ns(self, cloud: Cloud, values: Values) -> npt.NDArray[np.int64]:
        """Return each point's time minus the cloud's stamp; `_FARTHEST_NS` without a time."""
        stamp_ns = cloud.header.stamp_ns
        seconds, nanoseconds = divmod(stamp_ns, _SECOND)
        wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        has_time = np.isfinite(wide)
        if self.origin != "stamp":
            has_time &= wide != 0  # of points that were not hit
        if self.origin == "stamp":
            base = 0.0
        elif self.origin == "1970":
            base = seconds * _SECOND // self.unit_ns  # exact in float64, and so is the difference
        else:
            base = wide[has_time].min(initial=np.inf)
            base = 0.0 if np.isinf(base) else base
        offsets = np.rint((wide - base) * self.unit_ns)
        offsets += {"stamp": cloud.base_ns, "1970": -nanoseconds}.get(self.origin, 0)
        has_time &= np.abs(offsets) <= self.reach_ns
        return np.where(has_time, offsets, _FARTHEST_NS).astype(np.int64)


@dataclass(slots=True)
class CloudLayout:
    """Conversion of a topic's clouds to sweeps with the same columns; for one thread.

    Attributes:
        columns: columns of the sweeps.
        time: meaning of the points' times; None: they have none, or all the same.
    """

    columns: tuple[Column, ...]
    time: PointTime | None
    _sources: Mapping[str, tuple[str, ...]] = field(repr=False)  # names of fields, by column
    _known: tuple[tuple[PointField, ...], bool, bool] | None = None
    _steps: Sequence[_Step] = ()
    _buffer: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    @np.errstate(all="ignore")  # times may be any numbers
    def of(cls, clouds: Sequence[Cloud]) -> CloudLayout:
        """Choose the columns by the first clouds; the first gives the fields.

        Raises:
            FormatError: there is no field x, y or z, or a name comes twice.
        """
        fields = {each.name: each for each in clouds[0].fields}
        if len(fields) != len(clouds[0].fields):
            raise _fault("two fields have the same name")
        lower = {name.lower(): name for name in reversed(fields)}
        if missing := [name for name in _XYZ if name not in lower]:
            known = ", ".join(fields) or "none"
            raise _fault(f"has no field {missing[0]}; its fields: {known:.200}")
        xyz = tuple(lower[name] for name in _XYZ)
        if any(fields[name].count != 1 for name in xyz):
            raise _fault("x, y and z are not single numbers")
        exact = np.result_type("f4", *(_TYPES[fields[name].datatype - 1] for name in xyz))
        columns = [Column("xyz", exact.str[1:], (3,), "m", "position in the lidar's frame")]
        sources = {"xyz": xyz}
        taken = set(xyz)
        if (name := lower.get("intensity")) is not None and fields[name].count == 1:
            columns.append(Column("intensity", _type_of(fields[name])))
            sources["intensity"] = (name,)
            taken.add(name)
        for name in (lower[ring] for ring in _RINGS if ring in lower):
            if fields[name].count == 1 and _type_of(fields[name]) in ("u1", "u2"):
                columns.append(Column("ring", "u2", desc="beam"))
                sources["ring"] = (name,)
                taken.add(name)
                break
        time = _find_time(clouds, [lower[name] for name in _TIMES if name in lower])
        if time is not None:
            text = f"time after the sweep's begin; {NO_TIME}: unknown"
            columns.append(Column("t_offset", "u4", unit="ns", desc=text))
            sources["t_offset"] = (time.field,)
            taken.add(time.field)
        for name, each in fields.items():
            if name not in taken:
                own = _make_name(name, sources)
                shape = () if each.count == 1 else (each.count,)
                desc = "" if own == name else f"field {name[:80]}"
                columns.append(Column(own, _type_of(each), shape, desc=desc))
                sources[own] = (name,)
        return cls(tuple(columns), time, sources)

    @np.errstate(all="ignore")
    def pack(self, cloud: Cloud) -> PackedSweep:
        """Convert a cloud to a sample.

        Raises:
            StreamChangedError: the cloud lacks a field of the columns, or has one of another type,
                or one that is none of the columns.
        """
        known = cloud.fields, cloud.is_bigendian, cloud.base_ns == 0
        if self._known != known:
            self._steps, self._known = self._plan(cloud), known
        if len(self._buffer) < cloud.data.size:
            self._buffer = np.empty(cloud.data.size, np.uint8)
        every = transpose(cloud.data, self._buffer)
        made = [step(cloud, every) for step in self._steps]
        end_ns = sum(end_ns for _, end_ns in made)
        return PackedSweep(pack_planes([planes for planes, _ in made]), end_ns)

    def _plan(self, cloud: Cloud) -> list[_Step]:
        """Return what makes the planes of a cloud with such fields."""
        fields = {each.name: each for each in cloud.fields}
        wanted = {name for names in self._sources.values() for name in names}
        for name in sorted(wanted ^ fields.keys()):
            verb = "has no" if name in wanted else "has a new"
            raise _changed(f"{verb} field {name!r:.80}; the columns are those of the first clouds")
        steps = [
            self._plan_field(cloud, column, fields[name])
            for column in self.columns
            for name in self._sources[column.name]
        ]
        return _join_copies(steps)

    def _plan_field(self, cloud: Cloud, column: Column, each: PointField) -> _Step:
        own, is_position = _type_of(each), column.name == "xyz"
        if each.count != (1 if is_position else int(np.prod(column.shape))):
            raise _changed(f"field {each.name!r:.80} has {each.count} values")
        if column.name == "t_offset":
            assert self.time is not None
            counts_ns = (self.time.unit_ns, self.time.origin, cloud.base_ns) == (1, "stamp", 0)
            is_same = counts_ns and own == "u4" and not cloud.is_bigendian
            return _Times(each, self.time, is_same)
        is_same = own == column.type
        if not is_same and not (column.name in _CONVERTED and np.can_cast(own, column.type)):
            raise _changed(f"field {each.name!r:.80} is {own}, and was {column.type} before")
        if is_same and not cloud.is_bigendian:
            return _Copy(each.offset, _find_end(each))
        return _Conversion(each, column.type)


_CONVERTED: Final = ("xyz", "ring")
_Step = Callable[[Cloud, Planes], tuple[Planes, int]]
"""Function that makes planes of a cloud and its planes, and gives the last point's time, ns."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """Bytes of a point as they are, from `start` to `stop`."""

    start: int
    stop: int

    def __call__(self, cloud: Cloud, every: Planes) -> tuple[Planes, int]:  # noqa: ARG002
        return every[self.start : self.stop], 0


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Conversion of a field to another type or byte order."""

    field: PointField
    type: str

    def __call__(self, cloud: Cloud, every: Planes) -> tuple[Planes, int]:  # noqa: ARG002
        return _split(cloud.read(self.field).astype("<" + self.type)), 0


@dataclass(frozen=True, slots=True)
class _Times:
    """Conversion of the points' times; `is_same`: they are ns since the cloud's stamp already."""

    field: PointField
    time: PointTime
    is_same: bool

    def __call__(self, cloud: Cloud, every: Planes) -> tuple[Planes, int]:
        if self.is_same:
            planes = every[self.field.offset : _find_end(self.field)]
            last_ns = int(transpose(planes).view("<u4").max(initial=0))
            if last_ns <= self.time.reach_ns:
                return planes, last_ns
        values = cloud.read(self.field)
        offsets = self.time.offsets_ns(cloud, values)
        known = offsets < _FARTHEST_NS
        offsets[(offsets < 0) & (offsets > -_ROUNDING_NS)] = 0
        start_ns = min(0, int(offsets[known].min(initial=0)))
        end_ns = int(offsets[known].max(initial=start_ns)) if known.any() else 0
        return _split(np.where(known, offsets - start_ns, NO_TIME).astype("<u4")), end_ns


def _join_copies(steps: Iterable[_Step]) -> list[_Step]:
    """Join copies of bytes that lie side by side."""
    joined: list[_Step] = []
    for step in steps:
        last = joined[-1] if joined else None
        if isinstance(step, _Copy) and isinstance(last, _Copy) and last.stop == step.start:
            joined[-1] = _Copy(last.start, step.stop)
        else:
            joined.append(step)
    return joined


def _split(values: Values) -> Planes:
    """Return the planes of values, [points] or [points, n]."""
    width = values.dtype.itemsize * (values.shape[1] if values.ndim > 1 else 1)
    return transpose(values.view(np.uint8).reshape(len(values), width))


def _type_of(each: PointField) -> str:
    return _TYPES[each.datatype - 1]


def _make_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return a column's name for a field's."""
    base = re.sub(r"[^a-z0-9_]", "_", name.lower())[:50]
    base = base if re.match(r"[a-z]", base) else f"f_{base}"
    found, number = base, 2
    while found in taken:
        found, number = f"{base}_{number}", number + 1
    return found


def _find_time(clouds: Sequence[Cloud], names: Sequence[str]) -> PointTime | None:
    """Return the first field that gives the points of some cloud different times."""
    for name in names:
        ranges = [found for cloud in clouds if (found := _find_range(cloud, name)) is not None]
        if not any(last > first for _, first, last in ranges):
            continue
        dtype = next(_type_of(f) for c in clouds for f in c.fields if f.name == name)
        unit_ns = _find_unit(name.lower(), dtype, ranges)
        cloud, first, last = ranges[0]
        if max(abs(first), abs(last)) * unit_ns <= _LONGEST_SWEEP_S * _SECOND:
            reach_ns = max(max(abs(first), abs(last)) for _, first, last in ranges) * unit_ns
            return PointTime(name, unit_ns, "stamp", _find_reach(reach_ns))
        apart_ns = first * unit_ns - cloud.header.stamp_ns
        reach_ns = max(last - first for _, first, last in ranges) * unit_ns
        if abs(apart_ns) <= _NEAR_NS:
            return PointTime(name, unit_ns, "1970", _find_reach(reach_ns + abs(apart_ns)))
        return PointTime(name, unit_ns, "own", _find_reach(reach_ns))
    return None


def _find_reach(first_ns: float) -> int:
    """Return the longest time between a stamp and a point, by that of the first clouds."""
    return round(min(_FARTHEST_NS - 1, max(_LEAST_REACH_NS, _SPREAD * first_ns)))


def _find_range(cloud: Cloud, name: str) -> tuple[Cloud, float, float] | None:
    """Return a cloud with the range of nearly all its times; None without one."""
    fields = [each for each in cloud.fields if each.name == name and each.count == 1]
    values = cloud.read(fields[0]).astype(np.float64) if fields else np.empty(0)
    values = values[np.isfinite(values)]
    if (others := values[values != 0]).size:
        first, last = _cut_range(others)
        if min(abs(first), abs(last)) > 10 * (last - first):  # 0: points that were not hit
            values = others
    return (cloud, *_cut_range(values)) if values.size else None


def _cut_range(values: Values) -> tuple[float, float]:
    """Return the smallest and largest value without the outermost hundredths."""
    outermost = len(values) // 100
    ordered = np.sort(values)
    return float(ordered[outermost]), float(ordered[len(values) - 1 - outermost])


def _find_unit(name: str, dtype: str, ranges: Sequence[tuple[Cloud, float, float]]) -> int:
    """Return the ns of the unit of a field with times."""
    for suffix, unit_ns in (("_us", 1000), ("_ms", 1_000_000), ("_ns", 1)):
        if name.endswith(suffix):
            return unit_ns
    if dtype[0] != "f":
        return 1
    size = max(max(abs(first), abs(last)) for _, first, last in ranges)
    for least, unit_ns in ((1e17, 1), (1e14, 1000), (1e11, 1_000_000)):
        if size >= least:
            return unit_ns
    span = max(last - first for _, first, last in ranges)
    for unit_ns in _UNITS_NS:
        if span * unit_ns <= _LONGEST_SWEEP_S * _SECOND:
            return unit_ns
    return 1
