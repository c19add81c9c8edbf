"""The painting of a target's box: its sides, with windows, wheels and lamps on them.

All painting lies on the box itself: a target's outline is the outline of its box.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.world import Target

Floats = npt.NDArray[np.float64]
Colour = tuple[int, int, int]

# Sides of the unit box: outward normal, and the directions of their pictures' right and up.
_SIDES: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]] = {
    "front": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "back": ((-1, 0, 0), (0, -1, 0), (0, 0, 1)),
    "left": ((0, 1, 0), (-1, 0, 0), (0, 0, 1)),
    "right": ((0, -1, 0), (1, 0, 0), (0, 0, 1)),
    "top": ((0, 0, 1), (0, -1, 0), (1, 0, 0)),
}
_GLASS: Final = (70, 60, 50)
_TYRE: Final = (25, 25, 25)
_WHITE: Final = (235, 245, 250)
_RED: Final = (30, 30, 215)
_SKIN: Final = (140, 170, 215)
_TROUSERS: Final = (70, 55, 45)

# (left, bottom, right, top) in shares of the side, colour
Patch = tuple[tuple[float, float, float, float], Colour]


@dataclass(frozen=True, slots=True)
class Paint:
    """Quads in the targets' own axes, each side before the details on it.

    Attributes:
        owner: i8 [q], number of the target.
        quads: f8 [q, 4, 3], corners in m from the box's middle, counter-clockwise from outside.
        normal: f8 [q, 3], outward.
        colour: f8 [q, 3], blue, green, red.
        detail: bool [q], not a whole side.
    """

    owner: npt.NDArray[np.int64]
    quads: Floats
    normal: Floats
    colour: Floats
    detail: npt.NDArray[np.bool_]

    @classmethod
    def join(cls, paints: Iterable[Paint]) -> Paint:
        """Concatenate paints."""
        all_ = list(paints)
        columns = ([getattr(paint, f.name) for paint in all_] for f in fields(cls))
        return cls(*map(np.concatenate, columns))


def make_paint(target: Target) -> Paint:
    """Make the quads of one target."""
    patches = _patches(target)
    whole: Patch = ((0.0, 0.0, 1.0, 1.0), target.colour)
    sides = [(side, patch) for side in _SIDES for patch in (whole, *patches.get(side, ()))]
    normal, right, up = np.array([_SIDES[side] for side, _ in sides], np.float64).swapaxes(0, 1)
    left, bottom, end, top = np.array([place for _, (place, _) in sides]).T
    x = np.stack([left, end, end, left], axis=1)[..., None]
    y = np.stack([bottom, bottom, top, top], axis=1)[..., None]
    corners = normal[:, None] + (2 * x - 1) * right[:, None] + (2 * y - 1) * up[:, None]
    return Paint(
        np.full(len(sides), target.number),
        corners * (0.5 * np.array(target.size_m)),
        normal,
        np.array([colour for _, (_, colour) in sides], np.float64),
        np.array([place != whole[0] for _, (place, _) in sides]),
    )


def _patches(target: Target) -> dict[str, tuple[Patch, ...]]:
    match target.kind:
        case "car":
            return _car(wheel=0.16, glass=(0.55, 0.92))
        case "truck":
            return _car(wheel=0.13, glass=(0.55, 0.85))
        case "cyclist":
            return _around(((0.0, 0.0, 1.0, 0.4), _TYRE), ((0.3, 0.82, 0.7, 1.0), _SKIN))
        case "pedestrian":
            return _around(((0.0, 0.0, 1.0, 0.45), _TROUSERS), ((0.0, 0.86, 1.0, 1.0), _SKIN))
        case "pole" if target.size_m[2] <= 2:
            return _around(((0.0, 0.7, 1.0, 0.85), _WHITE))
        case "building":
            return _building(target)
        case _:
            return {}


def _around(*patches: Patch) -> dict[str, tuple[Patch, ...]]:
    return dict.fromkeys(("front", "back", "left", "right"), patches)


def _car(wheel: float, glass: tuple[float, float]) -> dict[str, tuple[Patch, ...]]:
    low, high = glass
    side: tuple[Patch, ...] = (
        ((0.2, low, 0.48, high), _GLASS),
        ((0.52, low, 0.8, high), _GLASS),
        ((0.12, 0.0, 0.12 + wheel, 0.32), _TYRE),
        ((0.88 - wheel, 0.0, 0.88, 0.32), _TYRE),
    )
    return {
        "left": side,
        "right": side,
        "front": (
            ((0.08, low, 0.92, high), _GLASS),
            ((0.06, 0.3, 0.26, 0.42), _WHITE),
            ((0.74, 0.3, 0.94, 0.42), _WHITE),
            ((0.0, 0.0, 1.0, 0.14), _TYRE),
        ),
        "back": (
            ((0.1, low, 0.9, high), _GLASS),
            ((0.05, 0.34, 0.22, 0.48), _RED),
            ((0.78, 0.34, 0.95, 0.48), _RED),
            ((0.36, 0.2, 0.64, 0.3), _WHITE),
            ((0.0, 0.0, 1.0, 0.14), _TYRE),
        ),
    }


def _building(target: Target) -> dict[str, tuple[Patch, ...]]:
    floors = max(2, int(target.size_m[2] / 3.0))
    sides = {}
    for side, width in (("left", 0), ("right", 0), ("front", 1), ("back", 1)):
        windows = max(2, int(target.size_m[width] / 2.8))
        sides[side] = tuple(
            (
                (
                    (k + 0.25) / windows,
                    (floor + 0.35) / floors,
                    (k + 0.75) / windows,
                    (floor + 0.8) / floors,
                ),
                _GLASS,
            )
            for floor in range(floors)
            for k in range(windows)
        )
    return sides
