"""Description of a lidar's beams, ``beams.json``, for sweeps that are ranges in the packet's unit.

A sweep has the channels ``rng``, ``rng2``, ... u2 [channels, width] in `Beams.unit_mm`, ``azimuth``
u4 [width] (`Beams.turn` of them are a turn), and ``t_col`` u8 [width] ns, 0 where there is no
column.  Columns are in the order of their firing.  The azimuth grows clockwise, seen from above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from recorder.common.errors import FormatError

BEAMS: Final = "beams.json"
_MOST_RETURNS: Final = 3


class Beams(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a lidar's beams.

    Attributes:
        vendor, model: of the device.
        serial: of the device; empty if unknown.
        unit_mm: unit of the ranges, mm.
        turn: azimuths of a turn.
        zero: axis of azimuth 0; the other axis lies a quarter of a turn on, or back for ``x``.
        returns: names of the returns, in the order of the channels ``rng``, ``rng2``, ``rng3``.
        elevation_deg: [channels].
        azimuth_deg: [channels], added to a column's azimuth.
        firing_ns: by state of a column, time of each channel after the column's; None: does not
            fire.
        column_ns: interval of columns.
        turns_while_firing: a channel's azimuth lies ahead of the column's by its firing time.
        lens_mm: distance of the lens from the axis, along the column's azimuth, and its height.
        rise_mm: [channels], height of each beam's begin; empty: none.
        calibration: origin of the angles: ``default``, ``sensor``, or the name of a file.
        calibration_sha256: of that file's content; empty without one.
    """

    vendor: str
    model: str
    unit_mm: float
    turn: int
    zero: Literal["x", "y"]
    returns: list[str]
    elevation_deg: list[float]
    azimuth_deg: list[float]
    firing_ns: dict[str, list[int | None]]
    column_ns: float
    calibration: str
    serial: str = ""
    turns_while_firing: bool = False
    lens_mm: tuple[float, float] = (0.0, 0.0)
    rise_mm: list[float] = []
    calibration_sha256: str = ""

    @classmethod
    def of_text(cls, text: str, where: str) -> Beams:
        """Parse the content of ``beams.json``; FormatError, which begins with `where`."""
        try:
            beams = msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise FormatError(f"{where}: {error}") from None
        if fault := beams._find_own_fault():
            raise FormatError(f"{where}: {fault}")
        return beams

    def _find_own_fault(self) -> str | None:
        count = len(self.elevation_deg)
        sizes = {len(self.azimuth_deg), len(self.rise_mm or self.azimuth_deg)}
        sizes |= {len(row) for row in self.firing_ns.values()}
        if not count or sizes != {count}:
            return f"its lists are not of {count} channels each"
        if "0" not in self.firing_ns or not all(state.isdecimal() for state in self.firing_ns):
            return "firing_ns: needs the firing times of the state 0, and of other numbers"
        if not 1 <= len(self.returns) <= _MOST_RETURNS:
            return f"returns: has {len(self.returns)}, not 1 to {_MOST_RETURNS}"
        numbers = (*self.elevation_deg, *self.azimuth_deg, *self.rise_mm, *self.lens_mm)
        if not all(map(math.isfinite, numbers)):
            return "an angle or a distance is not finite"
        for name in ("unit_mm", "turn", "column_ns"):
            if not 0 < getattr(self, name) < math.inf:
                return f"{name}: is {getattr(self, name)}, not above 0"
        return None

    def find_fault(self, shapes: Mapping[str, Sequence[int]]) -> str | None:
        """Return why sweeps with channels of those shapes have other beams; None if they do not."""
        channels, width = shapes.get("rng", (0, 0))
        if channels != len(self.elevation_deg):
            return f"is of {len(self.elevation_deg)} channels, the sweeps have {channels}"
        marks = ["", "2", "3"][: len(self.returns)]
        wanted: dict[str, tuple[int, ...]]
        wanted = {f"{name}{mark}": (channels, width) for mark in marks for name in ("rng", "rfl")}
        wanted |= {"azimuth": (width,), "t_col": (width,)}
        for name, shape in wanted.items():
            if tuple(shapes.get(name, ())) != shape:
                return f"is of sweeps with {name} {list(shape)}, not {list(shapes.get(name, ()))}"
        return None

    def to_text(self) -> str:
        """Return the content of ``beams.json``."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()
