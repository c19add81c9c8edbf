"""Table of RoboSense's models: layouts of their packets, and firing times.

Source: RoboSense's rs_driver.  No recording of any of these models was tried.  A further spinning
model is one more row of `MODELS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PACKET_BYTES: Final = 1248
YMD, UTC = "ymd", "utc"
LITTLE, BIG = "little", "big"
_OLD_ID: Final = bytes.fromhex("55aa050a5aa550a0")
_NEW_ID: Final = bytes.fromhex("55aa055a")
_NAMES_OLD: Final = ((1, "strongest"), (2, "last"))
_NAMES_NEW: Final = ((4, "strongest"), (5, "last"), (6, "nearest"))


@dataclass(frozen=True, slots=True)
class Model:
    """Layout of a spinning model's packets.

    Attributes:
        name: name of the model in configs and in ``beams.json``.
        id: first bytes of its packets.
        header: length of the header, bytes.
        mark: first byte of a block.
        blocks, lasers: blocks of a packet, measurements of a block.
        channels: lasers of a column.
        time_at: place of the time in the header.
        time: `YMD`: year, month, day, hour, minute, second, ms and us; `UTC`: 6 bytes of seconds
            and 4 of us.
        unit_mm: unit of the distances, mm.
        column_us: interval of columns, us.
        firing_us: time of each laser after its column, us.
        lens_mm: horizontal and vertical distance of the lens from the axis, mm.
        range_m: least and most distance by the manual, m.
        angles_at: places of the vertical and the horizontal angles in the device's description.
        angle_deg: unit of these angles, deg.
        dual: return modes in the device's description that mean two returns.
        single: names of the return, by the return mode, where there is one.
        temperature: place of the temperature in the header, and its byte order.
        view_deg: lowest and highest elevation by the manual.
        number_at: place of the packet's number, u4; 0: it has none.
        feature_bits: highest bits of a distance that tell something else.
        boards: the description has the temperatures of the boards, as Helios has them.
        fixed: places of header bytes that all its packets have, and their values.
        mode_at: place of the return mode in the header; 0: only the description tells it.
        mountings: firing times by the mounting that the description tells, where they depend on it.
    """

    name: str
    id: bytes
    header: int
    mark: int
    blocks: int
    lasers: int
    channels: int
    time_at: int
    time: str
    unit_mm: float
    column_us: float
    firing_us: tuple[float, ...]
    lens_mm: tuple[float, float]
    range_m: tuple[float, float]
    angles_at: tuple[int, int]
    angle_deg: float
    dual: tuple[int, ...]
    single: tuple[tuple[int, str], ...]
    temperature: tuple[int, str]
    view_deg: tuple[float, float]
    number_at: int = 0
    feature_bits: int = 0
    boards: bool = False
    fixed: tuple[tuple[int, int], ...] = ()
    mode_at: int = 0
    mountings: tuple[tuple[float, ...], ...] = ()

    @property
    def block_bytes(self) -> int:
        """Length of a block."""
        return 4 + 3 * self.lasers

    @property
    def firings(self) -> int:
        """Firings that a block has room for: 2 of RS-16."""
        return max(1, self.lasers // self.channels)


_RS32: Final = (
    *(0.0, 2.88, 5.76, 8.64, 11.52, 14.4, 17.28, 20.16),
    *(23.04, 25.92, 28.8, 31.68, 34.56, 37.44, 40.32, 44.64),
    *(1.44, 4.32, 7.2, 10.08, 12.96, 15.84, 18.72, 21.6),
    *(24.48, 27.36, 30.24, 33.12, 36.0, 38.88, 41.76, 46.08),
)
_RUBY_STEPS: Final = (
    *((0.0, 4), (1.13, 4), (2.13, 4), (3.26, 4), (4.26, 4), (5.38, 4), (6.38, 4), (7.51, 4)),
    *((8.51, 4), (10.01, 4), (11.38, 4), (13.31, 4), (15.11, 4), (17.04, 4), (18.85, 4)),
    *((21.14, 5), (23.31, 4), (25.61, 4), (27.78, 4), (30.07, 4), (32.24, 4), (34.54, 4)),
    *((36.7, 4), (38.64, 4), (40.44, 4), (41.94, 4), (43.3, 4), (44.8, 4), (46.17, 4)),
    *((47.66, 4), (49.03, 4), (50.53, 2), (53.771, 1)),
)
_AIRY_STEPS: Final = (
    *((0.0, 5.712, 12.376, 19.04, 25.704, 33.32), (41.888, 50.456, 59.024, 70.448, 81.872, 93.296)),
    *((0.0, 11.424, 22.848, 34.272, 45.696, 54.264), (62.832, 71.4, 79.016, 85.68, 92.344, 99.008)),
    *((0.0, 7.616, 16.184, 24.752, 33.32, 42.84), (52.36, 61.88, 71.4, 79.968, 88.536, 97.104)),
)
"""Times of groups of 8, upright, on its side, and neither: two rows each."""


def _expand(steps: tuple[tuple[float, int], ...]) -> tuple[float, ...]:
    return tuple(time for time, count in steps for _ in range(count))


_AIRY: Final = tuple(
    _expand(tuple((time, 8) for row in _AIRY_STEPS[at : at + 2] for time in row))
    for at in (0, 2, 4)
)


MODELS: Final[Mapping[str, Model]] = {
    model.name: model
    for model in (
        Model(
            *("RS-16", _OLD_ID, 42, 0xFF, 12, 32, 16, 20, YMD, 5.0, 55.5),
            tuple(2.8 * laser for laser in range(16)),
            *((38.25, 0.0), (0.4, 230.0), (1165, -1), 0.0001, (0,), _NAMES_OLD),
            *((38, LITTLE), (-15.0, 15.0)),
        ),
        Model(
            *("RS-32", _OLD_ID, 42, 0xFF, 12, 32, 32, 20, YMD, 5.0, 55.52, _RS32),
            *((39.97, 0.0), (0.4, 230.0), (468, 564), 0.001, (0,), _NAMES_OLD),
            *((38, LITTLE), (-25.0, 15.0)),
        ),
        Model(
            *("Helios", _NEW_ID, 42, 0xFF, 12, 32, 32, 20, UTC, 2.5, 55.56),
            tuple(1.73 * laser for laser in range(32)),
            *((34.98, 0.0), (0.1, 180.0), (468, 564), 0.01, (0,), _NAMES_NEW),
            *((38, LITTLE), (-55.0, 15.0)),
            boards=True,
        ),
        Model(
            *("Ruby Plus", _NEW_ID, 80, 0xFE, 3, 128, 128, 10, UTC, 5.0, 55.56),
            _expand(_RUBY_STEPS),
            *((28.92, 0.0), (0.4, 250.0), (468, 852), 0.01, (3, 4, 5), ()),
            *((8, BIG), (-25.0, 15.0)),
        ),
        Model(
            *("Airy-48", _NEW_ID, 42, 0xFF, 8, 48, 48, 20, UTC, 5.0, 111.08),
            _AIRY[2][::2],
            *((10.02, 45.32), (0.1, 60.0), (468, 756), 0.01, (3,), ()),
            *((38, LITTLE), (0.0, 90.0)),
            number_at=8,
            feature_bits=2,
            fixed=((16, 0), (32, 1)),
            mode_at=17,
        ),
        Model(
            *("Airy", _NEW_ID, 42, 0xFF, 8, 48, 96, 20, UTC, 5.0, 111.08, _AIRY[2]),
            *((10.02, 45.32), (0.1, 60.0), (468, 756), 0.01, (3,), ()),
            *((38, LITTLE), (0.0, 90.0)),
            number_at=8,
            feature_bits=2,
            fixed=((16, 0), (32, 2)),  # ranges, of 96 channels
            mode_at=17,
            mountings=_AIRY,
        ),
    )
}
"""Spinning models."""
WITH_IMU: Final = ("Airy", "Airy-48")
IMU_PORT: Final = 6688
