"""Projection of points into a camera's pictures, by its calibrated model.

Pixel (0, 0) is the centre of the upper left pixel.  The document "Camera Calibration and 3D
Reconstruction" of OpenCV defines OpenCV's models.  An F-theta camera maps the angle from its axis
to a distance from its centre by a polynomial.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.polynomial.polynomial import polyval

from recorder.perception.calibration import Calibration
from recorder.perception.geometry import Floats

_NEAREST_M = 0.05
_MARGIN = 1.3  # of the picture's extent; beyond it the lens model is not valid
_TABLE = 512


class Projection:
    """Projection by a camera's model.

    Args:
        calibration: a calibration with a model of the camera.
        name: name of the camera.

    Raises:
        ConfigError: a parameter is missing or not a number; the message names file and key.
    """

    def __init__(self, calibration: Calibration, name: str) -> None:
        sensor = calibration.of(name)
        assert sensor.model is not None
        assert sensor.resolution is not None
        self._calibration, self._key = calibration, f"sensors.{name}.parameters"
        self._parameters: Mapping[str, Any] = sensor.parameters
        self.model, self.size = sensor.model, sensor.resolution
        needed = ("cx", "cy") if self.model == "ftheta" else ("fx", "fy", "cx", "cy")
        self._lens = {key: self._number(key, None) for key in needed}
        for key in ("fx", "fy"):
            if self._lens.get(key, 1.0) <= 0:
                raise calibration.error(f"{self._key}.{key}", "needs a number above 0")
        self._distortion = {
            key: self._number(key, 0.0)
            for key in ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4")
        }
        most = self._number("max_angle", np.pi / 2 if self.model == "opencv-pinhole" else np.pi)
        self._max_angle = most
        self._table = self._ftheta_table() if self.model == "ftheta" else None

    @property
    def focal_px(self) -> float:
        """Focal length in pixels, at the picture's centre."""
        if self._table is not None:
            angles, distances = self._table
            return float((distances[1] - distances[0]) / (angles[1] - angles[0]))
        return self._lens["fx"]

    def pixels(self, points: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the pixels of points of the camera's frame (z forward).

        Args:
            points: f8 [n, 3], m.

        Returns:
            f8 [n, 2], the pixels; bool [n], True for points before the camera and within its
                picture.
        """
        depth, radius = points[:, 2], np.hypot(points[:, 0], points[:, 1])
        seen = (depth > _NEAREST_M) & (np.arctan2(radius, depth) <= self._max_angle)
        places = np.full((len(points), 2), np.nan)
        at = np.flatnonzero(seen)
        find = {"opencv-pinhole": self._pinhole, "opencv-fisheye": self._fisheye}
        places[at], good = find.get(self.model, self._ftheta)(points[at])
        seen[at[~good]] = False
        width, height = self.size
        with np.errstate(invalid="ignore"):
            seen &= (places >= -0.5).all(axis=1)
            seen &= (places[:, 0] < width - 0.5) & (places[:, 1] < height - 0.5)
        return places, seen

    def _pinhole(self, points: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        lens, k = self._lens, self._distortion
        x, y = points[:, 0] / points[:, 2], points[:, 1] / points[:, 2]
        width, height = self.size
        # A polynomial that bends back far outside of the picture must not move points into it.
        good = np.abs(x) <= _MARGIN * max(lens["cx"], width - lens["cx"]) / lens["fx"]
        good &= np.abs(y) <= _MARGIN * max(lens["cy"], height - lens["cy"]) / lens["fy"]
        r2 = x * x + y * y
        radial = 1 + r2 * (k["k1"] + r2 * (k["k2"] + r2 * k["k3"]))
        radial /= 1 + r2 * (k["k4"] + r2 * (k["k5"] + r2 * k["k6"]))
        p1, p2 = k["p1"], k["p2"]
        u = x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + r2 * (k["s1"] + r2 * k["s2"])
        v = y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y + r2 * (k["s3"] + r2 * k["s4"])
        places = np.stack([lens["fx"] * u + lens["cx"], lens["fy"] * v + lens["cy"]], axis=1)
        return places, good & (radial > 0)

    def _fisheye(self, points: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        lens, k = self._lens, self._distortion
        radius = np.hypot(points[:, 0], points[:, 1])
        angle = np.arctan2(radius, points[:, 2])
        a2 = angle * angle
        bent = angle * (1 + a2 * (k["k1"] + a2 * (k["k2"] + a2 * (k["k3"] + a2 * k["k4"]))))
        share = bent / np.maximum(radius, 1e-12)
        places = np.stack(
            [
                lens["fx"] * share * points[:, 0] + lens["cx"],
                lens["fy"] * share * points[:, 1] + lens["cy"],
            ],
            axis=1,
        )
        return places, bent >= 0

    def _ftheta(self, points: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        assert self._table is not None
        radius = np.hypot(points[:, 0], points[:, 1])
        angle = np.arctan2(radius, points[:, 2])
        distance = np.interp(angle, *self._table, right=np.nan)
        share = distance / np.maximum(radius, 1e-12)
        x, y = share * points[:, 0], share * points[:, 1]
        c, d, e = self._list("linear_cde") or (1.0, 0.0, 0.0)
        places = np.stack([c * x + d * y + self._lens["cx"], e * x + y + self._lens["cy"]], axis=1)
        return places, np.isfinite(distance)

    def _ftheta_table(self) -> tuple[Floats, Floats]:
        """Return rising angles and their distances from the centre in pixels."""
        forward, back = self._list("angle_to_pixel"), self._list("pixel_to_angle")
        if forward and (not back or self._parameters.get("reference") == "angle_to_pixel"):
            angles = np.linspace(0.0, self._max_angle, _TABLE)
            return angles, polyval(angles, forward).astype(np.float64)
        if not back:
            raise self._calibration.error(self._key, "needs angle_to_pixel or pixel_to_angle")
        farthest = float(np.hypot(*self.size))
        distances = np.linspace(0.0, farthest, _TABLE)
        angles = polyval(distances, back).astype(np.float64)
        rising = int(np.argmin(np.diff(angles, append=-np.inf) > 0)) + 1
        if rising < 2:
            raise self._calibration.error(f"{self._key}.pixel_to_angle", "does not rise")
        return angles[:rising], distances[:rising]

    def _list(self, key: str) -> list[float]:
        values = self._parameters.get(key) or []
        if not isinstance(values, list | tuple):
            raise self._calibration.error(f"{self._key}.{key}", f"needs numbers, not {values!r}")
        return [self._check_number(key, value) for value in values]

    def _number(self, key: str, default: float | None) -> float:
        value = self._parameters.get(key)
        if value is None:
            if default is None:
                raise self._calibration.error(f"{self._key}.{key}", "missing")
            return default
        return self._check_number(key, value)

    def _check_number(self, key: str, value: Any) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not abs(value) <= sys.float_info.max:
            raise self._calibration.error(f"{self._key}.{key}", f"needs a number, not {value!r}")
        return float(value)


def draw_depth(places: Floats, depth_m: Floats, size: tuple[int, int]) -> Floats:
    """Return the depth of the nearest point of each pixel, f8 [height, width], m; 0: no point.

    Args:
        places: f8 [n, 2], pixels, as of `Projection.pixels`.
        depth_m: f8 [n], along the axis.
        size: width and height.
    """
    width, height = size
    order = np.argsort(-depth_m, kind="stable")
    column, row = np.rint(places[order]).astype(np.intp).T
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    picture = np.zeros((height, width))
    picture[row[inside], column[inside]] = depth_m[order][inside]
    return picture
