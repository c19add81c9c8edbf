"""The points of solid-state lidars, whose clouds are recorded with the device's integers.

A point is ``xyz`` i2 or i4 [3]; or ``depth``, ``theta`` (from the z axis) and ``phi`` (from the x
axis); or ``range``, ``pitch`` and ``yaw``, both counted from 32768.  The columns' units tell what
one is: ``mm``, ``5 mm``, ``0.01 deg``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from recorder.codecs.points import Column
from recorder.common.errors import FormatError
from recorder.perception.lidar.points import Values

_METRES: Final = {"mm": 0.001, "cm": 0.01, "m": 1.0}
_ZERO: Final = 32768
_SPHERES: Final = (("depth", "theta", "phi"), ("range", "pitch", "yaw"))
_TIMES: Final = "t_offset"


def has_device_units(columns: Sequence[Column]) -> bool:
    """Return whether a cloud's positions are the integers of a device."""
    names = {column.name for column in columns}
    whole = any(c.name == "xyz" and c.type[0] == "i" and c.unit for c in columns)
    return whole or any(set(sphere) <= names for sphere in _SPHERES)


class DeviceCloud:
    """Conversion of such points to metres.

    Args:
        columns: of the cloud.
        where: begins errors.

    Attributes:
        point: dtype of the converted points: x, y, z f4 in m, all other columns, and ``t`` for
            ``t_offset``.

    Raises:
        FormatError: the columns' units are not known.
    """

    def __init__(self, columns: Sequence[Column], where: str) -> None:
        by_name = {column.name: column for column in columns}
        self._sphere = next((s for s in _SPHERES if set(s) <= by_name.keys()), ())
        places = self._sphere or ("xyz",)
        self._unit_m = _read_unit(by_name[places[0]], where)
        if self._sphere and {by_name[name].unit for name in self._sphere[1:]} != {"0.01 deg"}:
            raise FormatError(f"{where}: the unit of its angles is not 0.01 deg")
        self._rest = [c for c in columns if c.name not in places]
        fields = [(axis, "<f4") for axis in "xyz"]
        fields += [("t" if c.name == _TIMES else c.name, "<" + c.type) for c in self._rest]
        self.point = np.dtype(fields)

    def convert(self, recorded: Values) -> Values:
        """Return the points of a recorded cloud; those without a return are at 0, 0, 0."""
        points = np.zeros(len(recorded), self.point)
        for axis, values in zip("xyz", self._place(recorded), strict=True):
            points[axis] = values
        for column in self._rest:
            points["t" if column.name == _TIMES else column.name] = recorded[column.name]
        return points

    def _place(self, recorded: Values) -> Sequence[Values]:
        if not self._sphere:
            return list((recorded["xyz"] * self._unit_m).T)
        distance, first, second = (recorded[name].astype(np.float64) for name in self._sphere)
        distance *= self._unit_m
        if self._sphere[0] == "depth":
            zenith, azimuth = np.radians(first / 100), np.radians(second / 100)
            level, up = distance * np.sin(zenith), distance * np.cos(zenith)
        else:
            pitch, azimuth = (np.radians((each - _ZERO) / 100) for each in (first, second))
            level, up = distance * np.cos(pitch), distance * np.sin(pitch)
        return level * np.cos(azimuth), level * np.sin(azimuth), up


def _read_unit(column: Column, where: str) -> float:
    """Return a column's unit in m, of a text such as ``5 mm``."""
    number, _, unit = column.unit.rpartition(" ")
    try:
        return float(number or 1) * _METRES[unit]
    except (KeyError, ValueError):
        raise FormatError(f"{where}: {column.name}: the unit {column.unit!r} is unknown") from None
