"""Sweeps of a lidar as raw ranges, from which the browser computes points."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.config.options import Option, OptionTable
from recorder.perception.encoded import EncodedSamples
from recorder.perception.lidar.lidar import sweep_optics
from recorder.perception.lidar.sweeps import SweepGrid, pack_brightness, pack_ranges
from recorder.viewers.live.views.drawing import Drawing, checked_options

_RANGE, _FAR, _METADATA = "rng", "rng_far", "lidar.json"
_INTENSITIES = {"reflectivity": "rfl", "signal": "signal", "near_ir": "nir"}
_NONE = "none"

_optics = functools.lru_cache(maxsize=8)(sweep_optics)


class SweepView:
    """View of the newest sweep.

    A drawing has the arrays ``range``, u2 [rows, columns], 0 without a return, and ``intensity``,
    u1 of the same shape, unless the option is ``none``.  The pictures are destaggered: the rays of
    a column have one azimuth.  The header has ``rows`` and ``columns``, ``row_step`` and
    ``column_step`` (every Nth row and column of the sweep is shown), ``range_unit_m``,
    ``intensity`` (the option), and ``intensity_white``, the value that 255 represents.

    The static drawing has ``direction`` and ``origin``, f4 [rows * columns, 3]: a ray's point is
    ``origin + direction * range * range_unit_m``, in the sensor's frame.  Its header has rows,
    columns, and the steps.

    The option ``intensity`` names the shown channel, where the stream has more than one:
    ``reflectivity``, ``signal`` or ``near_ir``.
    """

    every = False

    def __init__(self, spec: StreamSpec, options: Mapping[str, Any]) -> None:
        shape = spec.channel(_RANGE).shape
        intensities = _intensities(spec, shape)
        given = checked_options(spec, "sweep", _options((*intensities, _NONE)), options)
        where = f"{spec.name}: {_METADATA}"
        optics, shifts = _optics(spec.files[_METADATA], where, shape)
        self._intensity = given.pop("intensity")
        self._channel = intensities.get(self._intensity)
        self._far = _FAR in (channel.name for channel in spec.channels)
        self._samples = EncodedSamples(spec)
        self._grid = grid = SweepGrid(optics, shifts, **given)
        self._shape = {
            "rows": grid.shape[0],
            "columns": grid.shape[1],
            "row_step": grid.row_step,
            "column_step": grid.column_step,
        }
        self.static: Drawing | None = Drawing(
            dict(self._shape),
            [("direction", grid.direction), ("origin", grid.origin)],
        )

    @staticmethod
    def is_offered(spec: StreamSpec) -> bool:
        """Check that the stream has ranges and the metadata of the sensor."""
        channels = {channel.name: channel for channel in spec.channels}
        found = channels.get(_RANGE)
        return (
            _METADATA in spec.files
            and found is not None
            and len(found.shape) == 2
            and found.np_dtype.kind == "u"
            and (_FAR not in channels or channels[_FAR].shape == found.shape)
        )

    def draw(self, messages: Sequence[Message]) -> Drawing | None:
        """Draw the newest sweep; see `recorder.viewers.live.views.View`."""
        message = messages[-1]
        self._samples.check(message)
        values, unit_m = pack_ranges(self._ranges(message))
        header = {**self._shape, "range_unit_m": unit_m, "intensity": self._intensity}
        drawing = Drawing(header, [("range", values)])
        if self._channel is not None:
            shown = self._grid.cut(self._samples.decoded(message, self._channel))
            brightness, header["intensity_white"] = pack_brightness(shown)
            drawing.arrays.append(("intensity", brightness))
        return drawing

    def _ranges(self, message: Message) -> npt.NDArray[Any]:
        """Return the ranges in mm of the rays that are shown."""
        ranges = self._grid.cut(self._samples.decoded(message, _RANGE))
        if not self._far:
            return ranges
        far = self._grid.cut(self._samples.decoded(message, _FAR))
        return np.add(ranges, far, dtype=np.uint32, casting="unsafe") if far.any() else ranges


def _intensities(spec: StreamSpec, shape: tuple[int, ...]) -> dict[str, str]:
    """Return the channels with the brightness of every ray, by name of the option."""
    fit = {c.name for c in spec.channels if c.shape == shape and c.np_dtype.kind == "u"}
    return {name: channel for name, channel in _INTENSITIES.items() if channel in fit}


def _options(intensities: Sequence[str]) -> OptionTable:
    count: Final = "largest number of {} that are shown; 0: all"
    limits = {"rows": 4096, "columns": 65_536, "points": 1 << 28}
    table = {
        name: Option("int", 0, count.format(name), minimum=0, maximum=most)
        for name, most in limits.items()
    }
    text = "what is shown as brightness"
    shown = Option("str", intensities[0], text, choices=tuple(intensities))
    return {**table, "intensity": shown}
