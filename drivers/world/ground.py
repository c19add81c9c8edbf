"""The ground, z = 0: a road with its markings, landmarks on it, and grass around it.

The ground is a square tile of cells that repeats in both directions, so every point has a value.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from drivers.world.noise import bits, uniform
from drivers.world.path import Path

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint8]

CELL_M: Final = 0.05
SIDE: Final = 4096
"""Cells along a side of the tile; the tile repeats after 204.8 m."""
PERIOD_M: Final = SIDE * CELL_M
SHADES: Final = 16

GRASS, ASPHALT, SIDEWALK, MARK, DARK, RED, BLUE, YELLOW = range(8)
_REFLECTIVITY: Final = (0.45, 0.14, 0.28, 0.85, 0.06, 0.35, 0.30, 0.60)
_CELLS_PER_M: Final = 20.0
_EDGE_M: Final = (-7.3, 8.0)  # edges of the built area, to the right and left of the path
_LANDMARK_M: Final = 11.0  # distance between landmarks, on the road and beside it


class Ground:
    """The tile of ground codes: ``kind * SHADES + shade``; the kinds are GRASS, ... .

    >>> ground.codes(np.array([3.0]), np.array([0.5]))    # u1 [1]
    >>> ground.reflectivity(x_m, y_m)                     # f4, 0 to 1

    Args:
        path: the road; the vehicle drives on it, oncoming traffic 3.5 m to its left.
        origin_m: the tile's corner with the lowest x and y.
        seed: of shades and landmarks.

    Attributes:
        tile: u1 [SIDE, SIDE], first index y, second x.
        origin_m: the corner of cell (0, 0).
    """

    def __init__(self, path: Path, origin_m: tuple[float, float], seed: int) -> None:
        self.origin_m = origin_m
        noise = bits(seed, "ground", 0, SIDE * SIDE // 8).view(np.uint8)
        # Shades of groups of four cells and of single cells: texture at both distances.
        fine = noise.reshape(SIDE, SIDE) & 3
        coarse = (noise[: SIDE * SIDE // 64].reshape(SIDE // 8, SIDE // 8) >> 5) & 7
        self.tile = fine + coarse.repeat(8, axis=0).repeat(8, axis=1)
        for piece, straight in enumerate(path.straight):
            if straight:
                self._draw_straight(path, piece)
            else:
                self._draw_corner(path, piece)
        self._draw_landmarks(path, seed)
        shades = 1.0 + (np.arange(SHADES) - 5) * 0.02
        self._reflectivity = np.ones(256, np.float32)
        for kind, value in enumerate(_REFLECTIVITY):
            self._reflectivity[kind * SHADES : (kind + 1) * SHADES] = value * shades

    def codes(self, x_m: npt.NDArray[np.floating], y_m: npt.NDArray[np.floating]) -> Codes:
        """Return codes of the points, u1 of their shape."""
        ix = np.floor((x_m - self.origin_m[0]) * _CELLS_PER_M).astype(np.int64) & (SIDE - 1)
        iy = np.floor((y_m - self.origin_m[1]) * _CELLS_PER_M).astype(np.int64) & (SIDE - 1)
        return np.asarray(self.tile.reshape(-1)[iy * SIDE + ix])

    def reflectivity(
        self, x_m: npt.NDArray[np.floating], y_m: npt.NDArray[np.floating]
    ) -> npt.NDArray[np.float32]:
        """Return reflectivity of the points at a lidar's wavelength, f4, 0 to 1."""
        return self._reflectivity[self.codes(x_m, y_m)]

    def _draw_straight(self, path: Path, piece: int) -> None:
        start, end = path.bounds[piece], path.bounds[piece + 1]
        ends = path.at(np.array([start, end]) + np.array([1e-9, -1e-9]))
        (x0, y0), (x1, y1) = ends.position_m
        tx, ty = np.rint(ends.tangent[0])
        # The road runs along an axis: its cells are a rectangle, each row at one lateral offset.
        right, left = _EDGE_M
        xs = sorted((x0 - ty * right, x0 - ty * left, x1 - ty * right, x1 - ty * left))
        ys = sorted((y0 + tx * right, y0 + tx * left, y1 + tx * right, y1 + tx * left))
        ix, iy = self._cells(xs[0], xs[-1], 0), self._cells(ys[0], ys[-1], 1)
        x = self.origin_m[0] + (ix + 0.5) * CELL_M
        y = self.origin_m[1] + (iy + 0.5) * CELL_M
        dx, dy = x[None, :] - x0, y[:, None] - y0
        kind = road_kind(start + tx * dx + ty * dy, tx * dy - ty * dx)
        where = np.ix_(iy & (SIDE - 1), ix & (SIDE - 1))
        self.tile[where] = np.where(kind, kind * SHADES + self.tile[where] % SHADES,
                                    self.tile[where])  # fmt: skip

    def _cells(self, low: float, high: float, axis: int) -> npt.NDArray[np.int64]:
        first = int(np.rint((low - self.origin_m[axis]) * _CELLS_PER_M))
        last = int(np.rint((high - self.origin_m[axis]) * _CELLS_PER_M))
        return np.arange(first, last, dtype=np.int64)

    def _draw_corner(self, path: Path, piece: int) -> None:
        start, end = path.bounds[piece], path.bounds[piece + 1]
        step = CELL_M * 0.6  # finer than a cell, so that no cell is missed
        u = start + (np.arange(int((end - start) / step)) + 0.5) * step
        d = np.arange(int(_EDGE_M[0] / step), int(_EDGE_M[1] / step) + 1) * step
        place = path.at(u)
        x = place.position_m[:, :1] - d * place.tangent[:, 1:]
        y = place.position_m[:, 1:] + d * place.tangent[:, :1]
        kind = road_kind(u[:, None], np.broadcast_to(d, x.shape))
        self._put(x, y, kind)

    def _put(self, x: Floats, y: Floats, kind: Codes) -> None:
        cells = self.tile.reshape(-1)
        ix = np.floor((x - self.origin_m[0]) * _CELLS_PER_M).astype(np.int64) & (SIDE - 1)
        iy = np.floor((y - self.origin_m[1]) * _CELLS_PER_M).astype(np.int64) & (SIDE - 1)
        inside = kind > 0
        at = (iy * SIDE + ix)[inside]
        cells[at] = kind[inside] * SHADES + cells[at] % SHADES

    def _draw_landmarks(self, path: Path, seed: int) -> None:
        """Draw manhole covers and patches on the road, coloured plates beside it."""
        count = int(path.length / _LANDMARK_M)
        random = uniform(seed, "landmark", 0, 6 * count).reshape(count, 6)
        grid = np.arange(-1.2, 1.2, CELL_M * 0.6)
        for k, (along, across, beside, kind, size, side) in enumerate(random.tolist()):
            u = (k + along) * _LANDMARK_M
            if kind < 0.5:
                self._plate(path, u, -1.2 + 5.9 * across, grid, DARK, 0.34, disc=True)
            elif kind < 0.7:
                self._plate(path, u, -0.6 + 4.7 * across, grid, DARK, 0.4 + 0.7 * size, disc=False)
            lateral = 9.0 + 2.5 * beside if side < 0.5 else -8.3 - 2.5 * beside
            colour = (RED, BLUE, YELLOW, MARK)[k % 4]
            self._plate(path, u, lateral, grid, colour, 0.35 + 0.3 * size, disc=k % 3 == 0)

    def _plate(
        self, path: Path, u: float, lateral: float, grid: Floats, kind: int, half: float, disc: bool
    ) -> None:
        place = path.at(np.array([u]))
        (tx, ty), (x0, y0) = place.tangent[0], place.position_m[0]
        a, b = grid[:, None], grid[None, :]
        inside = a * a + b * b < half * half if disc else (np.abs(a) < half) & (np.abs(b) < half)
        d = lateral + b
        x, y = x0 + a * tx - d * ty, y0 + a * ty + d * tx
        self._put(x, y, np.where(inside, kind, 0).astype(np.uint8))


def road_kind(u: Floats, d: Floats) -> Codes:
    """Return the kind of road `u` along and `d` m to the left of the path; 0 beside the road."""
    along = u - 9.0 * np.floor(u / 9.0)
    kind = np.zeros(np.broadcast_shapes(u.shape, d.shape), np.uint8)
    kind[np.broadcast_to((d > -7.2) & (d < 7.6), kind.shape)] = SIDEWALK
    kind[np.broadcast_to((d > -5.1) & (d < 5.7), kind.shape)] = ASPHALT
    lines = ((d > -1.98) & (d < -1.83)) | ((d > 5.33) & (d < 5.48))
    dashes = (d > 1.68) & (d < 1.83) & (along < 3.0)
    bays = (d > -5.1) & (d < -1.98) & (u - 6.0 * np.floor(u / 6.0) < 0.1)
    kind[np.broadcast_to(lines | dashes | bays, kind.shape)] = MARK
    return kind
