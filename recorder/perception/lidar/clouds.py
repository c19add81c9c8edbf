"""The points of any lidar: sweeps of columns, and the choice between them and an Ouster's ranges.

::

    source = make_point_source(spec)
    start_ns, points = source.read(stream, index)
    points["x"], source.point.names     # ("x", "y", "z", "intensity", "ring", "t", ...)

A point of a cloud has the recorded columns: ``xyz`` as x, y and z; ``t_offset`` as ``t``; a column
of several values as a field for each (``rgb_0``, ``rgb_1``).  Columns that a lidar does not have
are not made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from recorder.bus.wire import Message
from recorder.codecs.beams import BEAMS
from recorder.codecs.points import Column, points_dtype, unpack_points
from recorder.codecs.rays import DIRECTION
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.perception.encoded import EncodedSamples
from recorder.perception.frames import cloud_channel
from recorder.perception.lidar.beams import BeamPoints
from recorder.perception.lidar.device_clouds import DeviceCloud, has_device_units
from recorder.perception.lidar.points import (
    PointSource,
    RangeSource,
    SweepPoints,
    Values,
    find_times,
)
from recorder.perception.lidar.rays import RayPoints
from recorder.session.stream import Stream

XYZ: Final = "xyz"
TIMES: Final = "t_offset"
_AXES: Final = ("x", "y", "z")


class CloudPoints(PointSource):
    """A converter from sweeps of columns to points.

    The points of a sweep are as recorded, with those without a return; positions that are integers
    of a device are converted to m (`recorder.perception.lidar.device_clouds`).  The sweep's stamp
    is the time of its last point.

    Args:
        spec: declaration of the lidar's stream.

    Raises:
        FormatError: the columns have no ``xyz`` of three f4 or f8, or ``t_offset`` is no u4.
    """

    def __init__(self, spec: StreamSpec) -> None:
        name = cloud_channel(spec)
        assert name is not None
        columns = spec.channel(name).columns
        self._where = f"{spec.name}: {name}"
        self._channel, self._recorded = name, points_dtype(columns)
        self.channels, self.frequency_hz = (name,), spec.rate_hz
        self._device: DeviceCloud | None = None
        if has_device_units(columns):
            self._device = DeviceCloud(columns, self._where)
            self.point = self._device.point
        else:
            self.point = _expand(columns, self._recorded, self._where)

    def points(self, sample: Mapping[str, Values], t_ns: int) -> tuple[int, Values]:
        recorded = sample[self._channel]
        if self._device is not None:
            points = self._device.convert(recorded)
        else:
            points = recorded.view(self.point)
        known = find_times(points)
        return t_ns - int(points["t"][known].max()) if known.any() else t_ns, points

    def read_sample(self, stream: Stream, index: int) -> dict[str, Values]:
        frame = stream.channels[self._channel].encoded(index)
        where = f"{stream.path / self._channel}: sample {index}"
        return {self._channel: unpack_points(frame, self._recorded, where)}

    def decode_sample(self, samples: EncodedSamples, message: Message) -> dict[str, Values]:
        frame = samples.newest(message, self._channel)
        return {self._channel: unpack_points(frame, self._recorded, self._where)}


def make_point_source(spec: StreamSpec) -> PointSource:
    """Return the source of a lidar's points, whatever the lidar.

    Raises:
        FormatError: the stream's metadata or columns cannot be used.
    """
    if (name := cloud_channel(spec)) is None:
        return make_range_source(spec)
    columns = spec.channel(name).columns
    return RayPoints(spec) if DIRECTION in {c.name for c in columns} else CloudPoints(spec)


def make_range_source(
    spec: StreamSpec, *, destaggered: bool = False, organized: bool = False
) -> RangeSource:
    """Return the source of the ranges and points of a lidar whose sweeps are images of ranges.

    Args:
        spec: declaration of the lidar's stream.
        destaggered: see `SweepPoints`; other sweeps stay in the order of their firing.
        organized: a pixel without a return has a point too, whose x, y and z are NaN.

    Raises:
        FormatError: the stream's metadata cannot be used.
    """
    if BEAMS in spec.files:
        return BeamPoints(spec, organized=organized)
    return SweepPoints(spec, destaggered=destaggered, organized=organized)


def find_brightness(source: PointSource) -> str | None:
    """Return the field with the brightness of a point: intensity or reflectivity; None without."""
    names = source.point.names or ()
    return next((name for name in ("intensity", "reflectivity") if name in names), None)


def _expand(columns: Sequence[Column], recorded: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return the dtype of the same bytes with a field for each number."""
    types = {column.name: (column.type, tuple(column.shape)) for column in columns}
    if types.get(XYZ) not in (("f4", (3,)), ("f8", (3,))):
        known = ", ".join(types)
        raise FormatError(f"{where}: has no column xyz of three f4 or f8; its columns: {known}")
    if types.get(TIMES, ("u4", ())) != ("u4", ()):
        raise FormatError(f"{where}: its column {TIMES} is no u4")
    names: list[str] = []
    formats: list[str] = []
    offsets: list[int] = []
    for column in columns:
        base = np.dtype("<" + column.type)
        count = int(np.prod(column.shape, dtype=int))
        own = [f"{column.name}_{k}" for k in range(count)] if column.shape else [column.name]
        if column.name == XYZ:
            own = [*_AXES]
        elif column.name == TIMES:
            own = ["t"]
        assert recorded.fields is not None
        start = int(recorded.fields[column.name][1])
        for k, name in enumerate(own):
            taken = name in names or (name in ("t", *_AXES) and column.name not in (XYZ, TIMES))
            names.append(f"{name}_" if taken else name)
            formats.append(base.str)
            offsets.append(start + k * base.itemsize)
    layout = {"names": names, "formats": formats, "offsets": offsets}
    try:
        return np.dtype({**layout, "itemsize": recorded.itemsize})  # type: ignore[call-overload,no-any-return]
    except ValueError as error:
        raise FormatError(f"{where}: its columns have no names of their own: {error}") from None
