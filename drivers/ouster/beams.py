"""An Ouster's beams."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.world.raycast import Image

_DEGREE: Final = math.pi / 180.0


class Beams:
    """The rays of one sensor, in its sensor frame (ouster-sdk: `XYZLut` without extrinsics).

    The geometry is that of Ouster's "Lidar range to XYZ" (Software User Manual).  In the lidar's
    frame a beam starts on a circle around the axis, and a range counts from the axis along a path
    bent at the beam's origin.  The point of a range is
    ``origin + (range_m - offset_m) * direction``.

    >>> beams = Beams(info)
    >>> beams.direction.shape            # (3, beams, columns)

    Args:
        info: the sensor's SensorInfo of ouster-sdk.

    Attributes:
        direction: f4 [3, h, w], unit vectors.
        origin: f4 [3, h or 1, w], start of each ray, m.
        offset_m: the part of a range before the ray's start.
        columns: int64, the measured columns (the sensor's azimuth window).
        azimuth_rad: f8 [w], the middle of each column's rays, for a rough selection.
        spread_rad: largest deviation of a column's rays from it.
        slope: f8 [h], the z of each row's rays divided by their length along x and y.
        step_ns, period_ns: from column to column (not rounded) and from sweep to sweep.
    """

    def __init__(self, info: Any) -> None:
        h, w = int(info.h), int(info.w)
        altitude = np.asarray(info.beam_altitude_angles, np.float64).reshape(-1) * _DEGREE
        azimuth = np.asarray(info.beam_azimuth_angles, np.float64).reshape(-1) * _DEGREE
        spinning = altitude.size == h
        encoder = math.tau * (1.0 - np.arange(w) / w) if spinning else np.zeros(w)
        shape = (h, 1) if spinning else (h, w)
        altitude, azimuth = altitude.reshape(shape), azimuth.reshape(shape)
        # A solid-state sensor has an angle for every pixel, with the opposite sign.
        turned = encoder[None, :] - (azimuth if spinning else -azimuth)
        sin_turn, cos_turn = np.sin(turned), np.cos(turned)
        sin_up, cos_up = np.sin(altitude), np.cos(altitude)
        direction = np.stack(np.broadcast_arrays(cos_turn * cos_up, sin_turn * cos_up, sin_up))
        beam = np.asarray(info.beam_to_lidar_transform, np.float64) * 1e-3
        across, up = float(beam[0, 3]), float(beam[2, 3])
        sin_e, cos_e = np.sin(encoder), np.cos(encoder)
        origin = np.stack([across * cos_e, across * sin_e, np.full(w, up)])[:, None, :]
        to_sensor = np.asarray(info.lidar_to_sensor_transform, np.float64)
        rotation = to_sensor[:3, :3]
        direction, origin = _turn(rotation, direction), _turn(rotation, origin)
        origin += to_sensor[:3, 3, None, None] * 1e-3
        self.direction: Image = direction.astype(np.float32)
        self.origin: Image = origin.astype(np.float32)
        self.offset_m = float(np.sqrt(across * across + up * up))
        first, last = (int(column) for column in info.format.column_window)
        self.columns = np.arange(first, last + 1 + (w if last < first else 0)) % w
        self.columns.sort()
        # Only for a generous selection: these values may differ between machines.
        heading = np.arctan2(direction[1], direction[0])
        flat = direction[:2].mean(axis=1)
        self.azimuth_rad = np.arctan2(flat[1], flat[0])
        apart = np.remainder(heading - self.azimuth_rad + np.pi, 2 * np.pi) - np.pi
        self.spread_rad = float(np.abs(apart).max())
        level = np.hypot(direction[0], direction[1])
        self.slope = np.median(direction[2] / np.maximum(level, 1e-6), axis=1)
        self.period_ns = round(1e9 / (info.format.fps or 10))
        self.step_ns = self.period_ns / w


def _turn(
    rotation: npt.NDArray[np.float64], vector: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Multiply rotation [3, 3] and vectors [3, ...]."""
    return np.stack([r[0] * vector[0] + r[1] * vector[1] + r[2] * vector[2] for r in rotation])
