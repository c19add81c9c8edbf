"""Calibration of one sensor: its place in the rig, and a camera's model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recorder.common.errors import SessionError
from recorder.perception.calibration import Calibration as CalibrationFile
from recorder.perception.geometry import apply, invert
from recorder.perception.projection import Projection


@dataclass(frozen=True)
class Calibration:
    """Calibration of a sensor, from the session's ``calibration.yaml``.

    ::

        pixels = session.calibration("camera").project(points)   # float64 [n, 2]

    Attributes:
        sensor: name of the sensor.
        T_sensor_rig: float64 [4, 4], maps points of the sensor's frame to the rig's, in m; None
            where the file has none.
        model: ``opencv-pinhole``, ``opencv-fisheye`` or ``ftheta``; None where the file has none.
        parameters: parameters of the model, as in the file.
        resolution: width and height in pixels for which the model is valid.
        calibrated_at: date of the calibration.
    """

    sensor: str
    T_sensor_rig: npt.NDArray[np.float64] | None
    model: str | None
    parameters: Mapping[str, Any]
    resolution: tuple[int, int] | None
    calibrated_at: str | None
    _file: CalibrationFile = field(repr=False, compare=False)

    @classmethod
    def _of(cls, file: CalibrationFile, sensor: str) -> Calibration:
        known = file.of(sensor)
        return cls(
            sensor, known.pose, known.model, known.parameters, known.resolution,
            known.calibrated_at, file,
        )  # fmt: skip

    def project(
        self, xyz: npt.ArrayLike, frame: Literal["rig", "sensor"] = "rig"
    ) -> npt.NDArray[np.float64]:
        """Project points into the camera's picture.

        Args:
            xyz: float [n, 3], m.
            frame: frame of the points: ``rig`` (x forward, y left, z up), or ``sensor``, the
                camera's own (x right, y down, z forward).

        Returns:
            float64 [n, 2], column and row in pixels; (0, 0) is the centre of the upper left pixel.
            NaN for points behind the camera or outside of the picture.

        Raises:
            SessionError: the calibration lacks the camera's model or its place in the rig.
            ValueError: the points have another shape, or there is no such frame.
        """
        points = np.asarray(xyz, np.float64)
        if points.ndim != 2 or points.shape[1] != 3:
            raise ValueError(f"xyz: needs the shape [n, 3], not {list(points.shape)}")
        if check_frame(frame) == "rig":
            points = apply(invert(self._require_place()), points)
        pixels, seen = self._projection.pixels(points)
        pixels[~seen] = np.nan
        return pixels

    def _require_place(self) -> npt.NDArray[np.float64]:
        """Return `T_sensor_rig`.

        Raises:
            SessionError: the calibration has none.
        """
        if self.T_sensor_rig is None:
            raise SessionError(
                f"{self.sensor}: its place in the rig is not known: the session has no "
                f"calibration.yaml with sensors.{self.sensor}.T_sensor_rig"
            )
        return self.T_sensor_rig

    @cached_property
    def _projection(self) -> Projection:
        if self.model is None:
            raise SessionError(
                f"{self.sensor}: has no camera model: the session has no calibration.yaml with "
                f"sensors.{self.sensor}.model"
            )
        return Projection(self._file, self.sensor)


def check_frame(frame: str) -> str:
    """Return the name of a frame; ValueError for another one."""
    if frame not in ("rig", "sensor"):
        raise ValueError(f"frame: needs 'rig' or 'sensor', not {frame!r}")
    return frame
