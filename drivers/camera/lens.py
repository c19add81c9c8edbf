"""A pinhole camera with the lens distortion of OpenCV (k1, k2, p1, p2, k3), both ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

DISTORTION: Final = (-0.12, 0.03, 0.0006, -0.0004, 0.0)
FOCAL_PER_SIDE: Final = 0.75
_NEWTON_STEPS: Final = 12
_EXACT: Final = 1e-13


@dataclass(frozen=True, slots=True)
class Lens:
    """Mapping of directions to pixels; (0, 0) is the middle of the first pixel, as in OpenCV.

    A point (X, Y, Z) in the camera's axes (z forward, x right, y down) has x = X / Z, y = Y / Z,
    r2 = x^2 + y^2, and with D = 1 + k1 r2 + k2 r2^2 + k3 r2^3 the pixel::

        u = fx (x D + 2 p1 x y + p2 (r2 + 2 x^2)) + cx
        v = fy (y D + p1 (r2 + 2 y^2) + 2 p2 x y) + cy

    Attributes:
        width, height: in pixels.
        focal_px: fx and fy.
        centre_px: (cx, cy).
        distortion: (k1, k2, p1, p2, k3).
    """

    width: int
    height: int
    focal_px: float
    centre_px: tuple[float, float]
    distortion: tuple[float, float, float, float, float] = DISTORTION

    @classmethod
    def default(
        cls,
        width: int,
        height: int,
        focal_px: float | None = None,
        distortion: tuple[float, float, float, float, float] = DISTORTION,
    ) -> Lens:
        """Make a centred lens; default: 67 degrees along the picture's longer side."""
        focal_px = focal_px or FOCAL_PER_SIDE * max(width, height)
        return cls(width, height, focal_px, ((width - 1) / 2, (height - 1) / 2), distortion)

    def project(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return pixel coordinates (u, v) of directions x = X / Z, y = Y / Z, of any shape."""
        dx, dy = self._distort(x, y)
        return self.focal_px * dx + self.centre_px[0], self.focal_px * dy + self.centre_px[1]

    def unproject(self, u: Floats, v: Floats) -> tuple[Floats, Floats]:
        """Return directions (x, y) of pixels, by Newton's method; the inverse of `project`.

        Raises:
            ValueError: the distortion folds the picture, so that some pixels have no direction.
        """
        target_x = (u - self.centre_px[0]) / self.focal_px
        target_y = (v - self.centre_px[1]) / self.focal_px
        k1, k2, p1, p2, k3 = self.distortion
        x, y = target_x.copy(), target_y.copy()
        with np.errstate(all="ignore"):
            determinant = np.ones_like(x)
            for _ in range(_NEWTON_STEPS):
                r2 = x * x + y * y
                d = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
                slope = k1 + r2 * (2.0 * k2 + r2 * (3.0 * k3))  # of d, in r2
                at_x, at_y = self._distort(x, y)
                ex, ey = target_x - at_x, target_y - at_y
                if np.abs(ex).max(initial=0) + np.abs(ey).max(initial=0) < _EXACT:
                    break
                xx = d + 2.0 * x * x * slope + 2.0 * p1 * y + 6.0 * p2 * x
                yy = d + 2.0 * y * y * slope + 6.0 * p1 * y + 2.0 * p2 * x
                xy = 2.0 * x * y * slope + 2.0 * p1 * x + 2.0 * p2 * y
                determinant = xx * yy - xy * xy
                x = x + (yy * ex - xy * ey) / determinant
                y = y + (xx * ey - xy * ex) / determinant
            good = (np.abs(ex) + np.abs(ey) < 1e-9) & (determinant > 0)
        if not good.all():
            raise ValueError(f"the distortion {list(self.distortion)} folds the picture")
        return x, y

    def parameters(self) -> dict[str, Any]:
        """Return the ``parameters`` of an ``opencv-pinhole`` in a calibration file."""
        names = ("k1", "k2", "p1", "p2", "k3")
        return {
            "fx": self.focal_px,
            "fy": self.focal_px,
            "cx": self.centre_px[0],
            "cy": self.centre_px[1],
            **dict(zip(names, self.distortion, strict=True)),
        }

    def _distort(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        k1, k2, p1, p2, k3 = self.distortion
        r2 = x * x + y * y
        d = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
        xy = 2.0 * x * y
        return (
            x * d + p1 * xy + p2 * (r2 + 2.0 * x * x),
            y * d + p1 * (r2 + 2.0 * y * y) + p2 * xy,
        )
