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
from recorder.common.struct_codec import prepare_type

BEAMS: Final = "beams.json"
PACKETS: Final = "packets.bin"
"""Channel with the packets of a sweep, of the format ``points``: a row is a packet."""
_MOST_RETURNS: Final = 3


class TwoPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Corrections of the ranges at two distances, as an HDL-64E's file has them.

    The corrections of x and y go evenly from those at 2.4 and 1.93 m to `distance_mm` at 25.04 m;
    that of y is also z's (manual of the HDL-64E S3, appendix).

    Attributes:
        distance_mm: [channels], added to ranges from 25.04 m on.
        near_x_mm, near_y_mm: [channels], added near by, across and along azimuth 0; 0 and 0: the
            channel has `distance_mm` everywhere.
        side_mm: [channels], distance of the beam from the axis, to the left of its direction.
    """

    distance_mm: list[float]
    near_x_mm: list[float]
    near_y_mm: list[float]
    side_mm: list[float]


class Mirrors(msgspec.Struct, frozen=True, kw_only=True):
    """Mirrors that turn instead of the lidar, as an AT128's file has them.

    A measurement's azimuth is twice what its column's lies behind the begin of its mirror's field,
    plus the channel's azimuth and its adjustment there.

    Attributes:
        begins, ends: [mirrors], azimuths of the columns' fields.
        step: azimuths between two adjustments, between which they are interpolated.
        azimuth_adjust, elevation_adjust: i1 [channels, adjustments], in 0.01 deg.
        view_deg: first and last azimuth of the measurements, about; None: of the whole fields.
    """

    begins: list[int]
    ends: list[int]
    step: int
    azimuth_adjust: bytes
    elevation_adjust: bytes
    view_deg: tuple[float, float] | None = None

    def find_fault(self, channels: int, turn: int) -> str | None:
        """Return what is wrong for so many channels and azimuths of a turn; None if nothing is."""
        if not self.begins or len(self.begins) != len(self.ends):
            return f"has {len(self.begins)} begins and {len(self.ends)} ends"
        if not all(0 <= azimuth <= turn for azimuth in (*self.begins, *self.ends)):
            return f"a field lies outside the turn of {turn}"
        if not 0 < self.step <= turn:
            return f"step: is {self.step}, not above 0"
        if self.view_deg is not None and not -360 < self.view_deg[0] < self.view_deg[1] < 720:
            return f"view_deg: is {self.view_deg[0]} to {self.view_deg[1]}"
        wanted = channels * -(-turn // self.step)
        for name in ("azimuth_adjust", "elevation_adjust"):
            if len(getattr(self, name)) != wanted:
                return f"{name}: has {len(getattr(self, name))} values, not {wanted}"
        return None


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
        two_point: corrections of the ranges; None: none.
        mirrors: a sensor's with turning mirrors; None: the sensor itself turns.
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
    two_point: TwoPoint | None = None
    mirrors: Mirrors | None = None
    calibration_sha256: str = ""

    @classmethod
    def of_text(cls, text: str, where: str) -> Beams:
        """Parse the content of ``beams.json``; FormatError, which begins with `where`."""
        try:
            beams = msgspec.json.decode(text, type=prepare_type(cls))
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
        if self.two_point is not None:
            rows = msgspec.structs.astuple(self.two_point)
            if {len(row) for row in rows} != {count}:
                return f"two_point: its lists are not of {count} channels each"
            if not all(math.isfinite(value) for row in rows for value in row):
                return "two_point: a distance is not finite"
        if self.mirrors is not None and (fault := self.mirrors.find_fault(count, self.turn)):
            return f"mirrors: {fault}"
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
