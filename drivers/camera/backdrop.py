"""A camera's view behind the targets: ground and sky, and the own vehicle's bonnet."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.camera.lens import Lens
from drivers.world import World
from drivers.world.ground import CELL_M, SHADES, SIDE
from drivers.world.mounts import Mount, rotate, rotate_back
from drivers.world.noise import bits, uniform

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint8]

_GROUND_M: Final = 220.0  # farther ground is the haze of the horizon
_PANORAMA: Final = 4096  # columns per turn, and rows per turn upwards
_ROWS: Final = 1024  # rows of the panorama, up to the zenith
_BAND: Final = 64  # rows are made by so many, so that cameras of a process share them
_CHUNK_ROWS: Final = 32
_TILT_ROWS: Final = 128  # rows of the panorama that come into view on a rough road
_SKY: Final = 128  # codes of the sky begin here
_BLUES: Final = 64
_CLOUD: Final = _SKY + _BLUES
_HILLS: Final = _CLOUD + 16
_HILL_SHADES: Final = 16

# blue, green, red of the kinds of ground, in their order
_GROUND_COLOURS: Final = (
    (62, 112, 84), (88, 86, 84), (150, 152, 155), (236, 238, 238),
    (48, 48, 50), (52, 52, 190), (180, 96, 40), (40, 190, 225),
)  # fmt: skip
_ZENITH, _HORIZON = (205, 150, 95), (235, 222, 208)

# The bonnet, from above: points of its edge in the rig, m
BONNET: Final = (
    (2.2, 0.80, 1.02), (2.9, 0.79, 0.98), (3.25, 0.72, 0.93), (3.5, 0.55, 0.88), (3.6, 0.3, 0.86),
    (3.62, 0.0, 0.85),
    (3.6, -0.3, 0.86), (3.5, -0.55, 0.88), (3.25, -0.72, 0.93), (2.9, -0.79, 0.98),
    (2.2, -0.80, 1.02),
)  # fmt: skip
BONNET_COLOUR: Final = (92, 58, 38)


class Backdrop:
    """Ground and sky of every picture, as codes of a palette of 256 colours.

    On a flat road, a pixel always shows the same point of the ground relative to the rig: each
    picture costs one rotation and one look-up per pixel.  On a rough road, rays are cast.

    >>> backdrop = Backdrop(World(), Lens.default(1280, 720), mounts.CAMERA)
    >>> codes = backdrop.codes(np.array([1.5]))          # u1 [height, width]

    Args:
        world, lens, mount: the world, the projection, and the camera's place.
    """

    def __init__(self, world: World, lens: Lens, mount: Mount) -> None:
        self._world = world
        self._shape = lens.height, lens.width
        v, u = np.mgrid[0 : lens.height, 0 : lens.width].astype(np.float64)
        x, y = lens.unproject(u, v)
        ray = rotate(mount.rotation, np.stack([x, y, np.ones_like(x)], axis=-1))
        level = np.sqrt(ray[..., 0] * ray[..., 0] + ray[..., 1] * ray[..., 1])
        tx, ty, tz = mount.translation
        down = ray[..., 2] < 0
        metres = np.where(down, -tz / np.where(down, ray[..., 2], -1.0), 0.0)
        self._down = down & (metres * level < _GROUND_M)
        metres = np.where(self._down, metres, 0.0)
        # In cells of the ground's tile.
        self._ahead = ((tx + metres * ray[..., 0]) / CELL_M).astype(np.float32)
        self._aside = ((ty + metres * ray[..., 1]) / CELL_M).astype(np.float32)
        per_rad = _PANORAMA / math.tau
        row = np.floor(np.arctan2(ray[..., 2], level) * per_rad)
        column = np.floor(np.arctan2(ray[..., 1], ray[..., 0]) * per_rad)
        row = np.clip(row, 0, _ROWS - 1).astype(np.int32)
        self._sky_at = row * (2 * _PANORAMA) + (column.astype(np.int32) & (_PANORAMA - 1))
        self._tilts = world.trajectory.ride is not None
        self._ray, self._translation = ray.transpose(2, 0, 1).astype(np.float32), mount.translation
        highest = min(int(row.max()) + _TILT_ROWS * self._tilts, _ROWS - 1)
        self._panorama = _panorama(world.seed, (highest // _BAND + 1) * _BAND)
        rows = np.arange(lens.height)
        self._sky_rows = int((rows * ~self._down.all(axis=1)).max()) + 1
        ground = np.flatnonzero(self._down.any(axis=1))
        self._ground_row = int(ground[0]) if len(ground) else lens.height
        self._sky_codes = np.zeros(self._shape, np.uint8)
        self._sky_key = b""

    def codes(self, t_s: Floats) -> Codes:
        """Return the pixels' codes, u1 [height, width]; row v at time t_s[v], or t_s[0]."""
        position, rotation = self._world.trajectory.pose(t_s)
        if self._tilts:
            return self._cast(position, rotation)
        cosine, sine = rotation[:, 0, 0], rotation[:, 1, 0]
        codes = self._sky(cosine, sine).copy()
        ground = self._world.ground
        # Shifted by whole tiles, so that cells are never below 0 and truncation is `floor`.
        shift_x, shift_y = (
            (((position[:, k] - ground.origin_m[k]) / CELL_M) % SIDE + 2 * SIDE) for k in (0, 1)
        )
        c, s, dx, dy = (v[:, None].astype(np.float32) for v in (cosine, sine, shift_x, shift_y))
        tile = ground.tile.reshape(-1)
        work = [np.empty((_CHUNK_ROWS, self._shape[1]), np.float32) for _ in range(2)]
        cells = [np.empty((_CHUNK_ROWS, self._shape[1]), np.int32) for _ in range(2)]
        for first in range(self._ground_row, self._shape[0], _CHUNK_ROWS):
            part = slice(first, min(first + _CHUNK_ROWS, self._shape[0]))
            when = part if len(cosine) > 1 else slice(0, 1)
            ahead, aside = self._ahead[part], self._aside[part]
            a, b = (array[: len(ahead)] for array in work)
            ix, iy = (array[: len(ahead)] for array in cells)
            np.multiply(ahead, c[when], a)
            np.multiply(aside, s[when], b)
            a -= b
            a += dx[when]
            np.copyto(ix, a, casting="unsafe")
            np.multiply(ahead, s[when], a)
            np.multiply(aside, c[when], b)
            a += b
            a += dy[when]
            np.copyto(iy, a, casting="unsafe")
            ix &= SIDE - 1
            iy &= SIDE - 1
            iy *= SIDE
            iy += ix
            down = self._down[part]
            if down.all():
                tile.take(iy, mode="clip", out=codes[part])
            else:
                codes[part] = np.where(down, tile.take(iy, mode="clip"), codes[part])
        return codes

    def _cast(self, position: Floats, rotation: Floats) -> Codes:
        """Return the pixels' codes of a tilted vehicle, whose poses are [1] or [height]."""
        eye = position + rotate(rotation, self._translation)
        axes = np.broadcast_to(rotation.astype(np.float32), (self._shape[0], 3, 3))
        x, y, z = np.einsum("vij,jvu->ivu", axes, self._ray)
        level = np.hypot(x, y)
        down = z < 0
        metres = eye[:, 2:].astype(np.float32) / np.where(down, -z, np.float32(1))
        down &= metres * level < _GROUND_M
        ground = self._world.ground
        shifts = ((eye[:, :2] - ground.origin_m) / CELL_M) % SIDE + 2 * SIDE
        # Shifted by whole tiles, so that cells are never below 0 and truncation is `floor`.
        cells = [
            (metres * way / np.float32(CELL_M) + shifts[:, k, None].astype(np.float32))[down]
            for k, way in enumerate((x, y))
        ]
        ix, iy = (cell.astype(np.int32) & (SIDE - 1) for cell in cells)
        codes = np.empty(self._shape, np.uint8)
        codes[down] = ground.tile.reshape(-1).take(iy * SIDE + ix)
        sky, per_rad = ~down, _PANORAMA / math.tau
        row = np.floor(np.arctan2(z[sky], level[sky]) * per_rad).astype(np.int32)
        column = np.floor(np.arctan2(y[sky], x[sky]) * per_rad).astype(np.int32)
        row = np.clip(row, 0, len(self._panorama) // (2 * _PANORAMA) - 1)
        codes[sky] = self._panorama.take(row * (2 * _PANORAMA) + (column & (_PANORAMA - 1)))
        return codes

    def _sky(self, cosine: Floats, sine: Floats) -> Codes:
        """Return the sky without ground; the latest one is cached for straight roads."""
        per_rad = _PANORAMA / math.tau
        turned = np.floor(np.arctan2(sine, cosine) * per_rad).astype(np.int32) & (_PANORAMA - 1)
        key = turned.tobytes()
        if key != self._sky_key:
            rows = slice(0, self._sky_rows)
            when = rows if len(turned) > 1 else slice(0, 1)
            at = self._sky_at[rows] + turned[when, None]
            self._panorama.take(at, mode="clip", out=self._sky_codes[rows])
            self._sky_key = key
        return self._sky_codes


def palette(gain: float) -> npt.NDArray[np.uint8]:
    """Return the codes' colours, u1 [256, 3], blue, green, red, `gain` times as bright."""
    colours = np.zeros((256, 3))
    for kind, colour in enumerate(_GROUND_COLOURS):
        for shade in range(SHADES):
            colours[kind * SHADES + shade] = np.array(colour) * (1.0 + 0.018 * (shade - 5))
    horizon, zenith = np.array(_HORIZON, np.float64), np.array(_ZENITH, np.float64)
    for k in range(_BLUES):
        share = k / (_BLUES - 1)
        colours[_SKY + k] = horizon + (zenith - horizon) * share
    for k in range(16):
        colours[_CLOUD + k] = horizon + (np.array([250, 250, 248]) - horizon) * (k / 15)
    for k in range(_HILL_SHADES):
        colours[_HILLS + k] = np.array([150, 150, 128]) - 4.0 * k
    return np.clip(np.floor(colours * gain + 0.5), 0, 255).astype(np.uint8)


def brighten(colour: tuple[int, int, int], gain: float) -> tuple[int, int, int]:
    """Return a colour `gain` times as bright."""
    b, g, r = (min(255, int(value * gain + 0.5)) for value in colour)
    return b, g, r


def bonnet(lens: Lens, mount: Mount) -> npt.NDArray[np.int32]:
    """Return the bonnet's outline in pixels times 16, int32 [n, 2]; empty if it is not in view."""
    points = rotate_back(mount.rotation, np.array(BONNET) - mount.translation)
    ahead = points[points[:, 2] > 0.3]
    if len(ahead) < 3:
        return np.empty((0, 2), np.int32)
    u, v = lens.project(ahead[:, 0] / ahead[:, 2], ahead[:, 1] / ahead[:, 2])
    # Points too near for the lens are projected below the picture.
    u, v = np.clip(u, -2 * lens.width, 3 * lens.width), np.clip(v, -lens.height, 3 * lens.height)
    return np.rint(np.stack([u, v], axis=-1) * 16).astype(np.int32)


@lru_cache(maxsize=4)
def _panorama(seed: int, rows: int) -> Codes:
    """Return the whole sky, u1 [rows * 2 * _PANORAMA]: row by row upwards, two turns per row."""
    columns = np.arange(_PANORAMA)
    up = np.arange(rows)
    blue = np.minimum(up * _BLUES // 420, _BLUES - 1) + _SKY
    sky = np.repeat(blue[:, None], _PANORAMA, axis=1).astype(np.uint8)
    sky_share = _noise(seed, "clouds", rows, 64, 16)
    # Clouds thin out towards the horizon and the zenith.
    veil = np.minimum(up, 300)[:, None] * np.clip(700 - up, 0, 400)[:, None] // 400
    cloud = (sky_share - 150) * veil // 900
    sky = np.where(cloud > 0, _CLOUD + np.minimum(cloud, 15), sky).astype(np.uint8)
    angle = columns * (math.tau / _PANORAMA)
    phases = uniform(seed, "hills", 0, 12) * math.tau
    for distance, base in ((0, 22.0), (1, 12.0)):
        height = np.full(_PANORAMA, base)
        for k, waves in enumerate((3, 7, 17, 41, 97, 211)):
            phase = phases[6 * distance + k]
            height = height + (9.0 / (1 + k)) * np.sin(waves * angle + phase)
        shade = _HILLS + 4 + 6 * distance + np.minimum(up // 8, 4)[:, None]
        sky = np.where(up[:, None] < height[None, :], shade, sky).astype(np.uint8)
    return np.concatenate([sky, sky], axis=1).reshape(-1)


def _noise(seed: int, purpose: str, height: int, across: int, down: int) -> Any:
    """Return periodic smooth noise 0 to 255, int32 [height, _PANORAMA], in whole numbers."""
    total = np.zeros((height, _PANORAMA), np.int32)
    for octave in range(3):
        nx, ny = across << octave, down << octave
        raw = bits(seed, purpose, octave, (ny + 1) * nx) >> np.uint64(56)
        grid = raw.astype(np.int32).reshape(ny + 1, nx)
        step_x, step_y = _PANORAMA // nx, _ROWS // ny
        ring = np.concatenate([grid, grid[:, :1]], axis=1)
        places, up = np.arange(_PANORAMA, dtype=np.int32), np.arange(height, dtype=np.int32)
        fx, fy = places % step_x, up % step_y
        ix, iy = places // step_x, up // step_y
        rows = ring[:, ix] * (step_x - fx) + ring[:, ix + 1] * fx
        value: Any = rows[iy] * (step_y - fy)[:, None] + rows[iy + 1] * fy[:, None]
        total += value // (step_x * step_y) >> octave
    return total * 4 // 7
