"""The points of sweeps that are recorded as rays from the sensor's origin (`recorder.codecs.rays`).

::

    source = RayPoints(spec)
    start_ns, points = source.read(stream, index)
    points["x"], points["ring"], points["return"]

A ray with several returns has a point for each.  The other columns are fields of a point, those of
several numbers as a field for each.  ``ring`` is the row of the ray's element of the lidar's model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.points import points_dtype, unpack_points
from recorder.codecs.rays import DIRECTION, DISTANCE, DURATION, ELEMENT, RETURNS, TIMES
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError
from recorder.perception.encoded import EncodedSamples
from recorder.perception.frames import cloud_channel
from recorder.perception.lidar.points import PointSource, Values
from recorder.session.stream import Stream

_OWN: Final = (DIRECTION, DISTANCE, TIMES)
_AXES: Final = ("x", "y", "z")


class RayPoints(PointSource):
    """A converter from sweeps of rays to points.

    Args:
        spec: declaration of the stream.

    Attributes:
        rays: dtype of the rays, as recorded.

    Raises:
        FormatError: the columns are none of rays.
    """

    def __init__(self, spec: StreamSpec) -> None:
        name = cloud_channel(spec)
        assert name is not None
        columns = spec.channel(name).columns
        self._channel, self._where = name, f"{spec.name}: {name}"
        self.rays = points_dtype(columns)
        self.channels, self.frequency_hz = (name, DURATION), spec.rate_hz
        kinds = {column.name: (column.type, tuple(column.shape)) for column in columns}
        wanted = {DIRECTION: ("f4", (3,)), TIMES: ("u4", ())}
        distance, shape = kinds.get(DISTANCE, ("", ()))
        fits = all(kinds.get(key) == form for key, form in wanted.items())
        if not fits or distance != "f4" or len(shape) > 1 or DURATION not in spec.meta():
            raise FormatError(f"{self._where}: its columns are none of rays: {', '.join(kinds)}")
        self.returns = shape[0] if shape else 1
        self._of_returns = frozenset(spec.settings.get(RETURNS, ()))
        self._fields = list(self._expand(kinds))
        more = [(field, kind) for field, kind, _, _ in self._fields]
        own: list[tuple[str, str]] = [(axis, "<f4") for axis in _AXES]
        own += [("return", "u1")] * (self.returns > 1)
        own += [("ring", "<u2")] * (ELEMENT in kinds and "ring" not in kinds)
        self.point = np.dtype([*own, ("t", "<u4"), *more])

    def _expand(
        self, kinds: Mapping[str, tuple[str, tuple[int, ...]]]
    ) -> Iterator[tuple[str, str, str, tuple[bool, int]]]:
        """Yield field, type, column, and whether it is per return, with the index in it."""
        taken = {*_AXES, "t", "return"}
        for name, (kind, shape) in kinds.items():
            if name in _OWN:
                continue
            per_return = self.returns > 1 and name in self._of_returns
            rest = shape[1:] if per_return else shape
            for number, index in enumerate(np.ndindex(rest)):
                field = "_".join((name, *map(str, index)))
                field = f"{field}_" if field in taken else field
                yield field, f"<{kind}", name, (per_return, number)

    def points(self, sample: Mapping[str, Values], t_ns: int) -> tuple[int, Values]:
        rays = sample[self._channel]
        distance = rays[DISTANCE].reshape(len(rays), self.returns)
        parts = [self._make(rays, distance, number) for number in range(self.returns)]
        start_ns = t_ns - int(np.asarray(sample[DURATION]).reshape(-1)[0])
        return start_ns, parts[0] if len(parts) == 1 else np.concatenate(parts)

    @np.errstate(invalid="ignore")
    def _make(self, rays: Values, distance: npt.NDArray[np.float32], number: int) -> Values:
        points = np.empty(len(rays), self.point)
        for at, axis in enumerate(_AXES):
            np.multiply(rays[DIRECTION][:, at], distance[:, number], out=points[axis])
        points["t"] = rays[TIMES]
        names = self.point.names or ()
        if "return" in names:
            points["return"] = number
        if ELEMENT in (rays.dtype.names or ()) and "ring" in names:
            points["ring"] = rays[ELEMENT][:, 0]
        for field, _, name, (per_return, index) in self._fields:
            values = rays[name][:, number] if per_return else rays[name]
            points[field] = values.reshape(len(rays), -1)[:, index] if len(rays) else 0
        return points

    def read_rays(self, stream: Stream, index: int) -> Values:
        """Return the rays of a sweep as recorded, [rays] of `rays`."""
        frame = stream.channels[self._channel].encoded(index)
        where = f"{stream.path / self._channel}: sample {index}"
        return unpack_points(frame, self.rays, where)

    def read_sample(self, stream: Stream, index: int) -> dict[str, Values]:
        duration = stream.sample(index, [DURATION])
        return {self._channel: self.read_rays(stream, index), **duration}

    def decode_sample(self, samples: EncodedSamples, message: Message) -> dict[str, Values]:
        frame = samples.newest(message, self._channel)
        rays = unpack_points(frame, self.rays, self._where)
        return {self._channel: rays, DURATION: samples.decoded(message, DURATION)}
