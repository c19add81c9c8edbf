"""A road as a plane curve: straights and corners with continuous curvature.

A corner is a quintic without curvature at its ends.  The curve's parameter `u` is in metres
(exactly on straights, to a few percent in corners), and all derivatives are polynomials.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CORNER_LENGTH = 1.65  # length of a corner in `u` per metre of its size: keeps |dP/du| near 1
_ORDER = 6


@dataclass(frozen=True, slots=True)
class PathPoint:
    """The curve and its derivatives with respect to `u`, at n points.

    Attributes:
        position_m: f8 [n, 2].
        first, second: f8 [n, 2], derivatives.
        stretch: f8 [n], |first|: metres on the ground per unit of `u`.
        tangent: f8 [n, 2], unit vector forward; the normal to the left is (-ty, tx).
        turn: f8 [n], derivative of the heading in rad per unit of `u`.
        turn_change: f8 [n], its derivative.
    """

    position_m: Floats
    first: Floats
    second: Floats
    stretch: Floats
    tangent: Floats
    turn: Floats
    turn_change: Floats


class Path:
    """A sequence of straights and corners, periodic in `u`.

    >>> path = Path((0.0, 0.0), (Straight(100.0),))
    >>> path.at(np.array([30.0])).position_m
    array([[30.,  0.]])

    After a period the curve continues where it ended: a closed road begins again, a straight road
    is endless.

    Args:
        start_m: the point of `u` = 0; the heading there is east.
        pieces: in order.

    Attributes:
        length: period of `u`.
        bounds: f8 [pieces + 1], `u` at the joints.
        straight: whether piece k is straight.
    """

    def __init__(self, start_m: tuple[float, float], pieces: tuple[Piece, ...]) -> None:
        coefficients = np.zeros((len(pieces), _ORDER, 2))
        bounds = [0.0]
        at, heading = complex(*start_m), complex(1, 0)
        for row, piece in zip(coefficients, pieces, strict=True):
            local = piece.polynomial()
            # Headings are quarter turns, so this rotation is exact.
            row[:, 0] = local[:, 0] * heading.real - local[:, 1] * heading.imag
            row[:, 1] = local[:, 0] * heading.imag + local[:, 1] * heading.real
            row[0] += (at.real, at.imag)
            end = row[-1]
            for k in range(_ORDER - 2, -1, -1):
                end = row[k] + piece.length * end
            at, heading = complex(float(end[0]), float(end[1])), heading * piece.turns
            bounds.append(bounds[-1] + piece.length)
        self._coefficients = coefficients
        self._starts = np.array(bounds[:-1])
        self.bounds = np.array(bounds)
        self.straight = tuple(isinstance(piece, Straight) for piece in pieces)
        self.length = bounds[-1]
        advance = at - complex(*start_m)
        self._advance = np.array([round(advance.real, 6), round(advance.imag, 6)])

    def at(self, u: Floats) -> PathPoint:
        """Return the curve at any parameters `u`, f8 [n]."""
        lap = np.floor(u / self.length)
        u = u - lap * self.length
        piece = np.clip(np.searchsorted(self._starts, u, "right") - 1, 0, len(self._starts) - 1)
        w = (u - self._starts[piece])[:, None]
        c = self._coefficients[piece]
        c0, c1, c2, c3, c4, c5 = (c[:, k] for k in range(_ORDER))
        position = c0 + w * (c1 + w * (c2 + w * (c3 + w * (c4 + w * c5))))
        first = c1 + w * (2 * c2 + w * (3 * c3 + w * (4 * c4 + w * (5 * c5))))
        second = 2 * c2 + w * (6 * c3 + w * (12 * c4 + w * (20 * c5)))
        third = 6 * c3 + w * (24 * c4 + w * (60 * c5))
        dx, dy = first[:, 0], first[:, 1]
        square = dx * dx + dy * dy
        stretch = np.sqrt(square)
        bend = dx * second[:, 1] - dy * second[:, 0]
        bend_change = dx * third[:, 1] - dy * third[:, 0]
        square_change = 2.0 * (dx * second[:, 0] + dy * second[:, 1])
        return PathPoint(
            position + lap[:, None] * self._advance,
            first,
            second,
            stretch,
            first / stretch[:, None],
            bend / square,
            (bend_change * square - bend * square_change) / (square * square),
        )


@dataclass(frozen=True, slots=True)
class Straight:
    """A straight of `length` m."""

    length: float
    turns: complex = complex(1, 0)

    def polynomial(self) -> Floats:
        """Return coefficients f8 [6, 2] of (x forward, y left) in `u`."""
        c = np.zeros((_ORDER, 2))
        c[1, 0] = 1.0
        return c


@dataclass(frozen=True, slots=True)
class Corner:
    """A quarter turn that ends `size` m forward and `size` m aside.

    Attributes:
        size: in m.
        left: turns to the left, otherwise to the right.
    """

    size: float
    left: bool = True

    @property
    def length(self) -> float:
        return self.size * CORNER_LENGTH

    @property
    def turns(self) -> complex:
        return complex(0, 1 if self.left else -1)

    def polynomial(self) -> Floats:
        """Return coefficients f8 [6, 2] of (x forward, y left) in `u`."""
        long, end = self.length, self.size
        c = np.zeros((_ORDER, 2))
        # Quintic Hermite: given value and slope at both ends, with zero second derivatives.
        c[1, 0] = long
        c[3:, 0] = [10 * end - 6 * long, 8 * long - 15 * end, 6 * end - 3 * long]
        c[3:, 1] = [10 * end - 4 * long, 7 * long - 15 * end, 6 * end - 3 * long]
        c[:, 1] *= 1.0 if self.left else -1.0
        scale = 1.0
        for power in range(1, _ORDER):
            scale *= long  # not **, because a library's pow() may differ in the last bit
            c[power] /= scale
        return c


Piece = Straight | Corner
