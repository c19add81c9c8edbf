"""Places of the simulated sensors on the vehicle (T_sensor_rig), and rotations of vectors.

rig: x forward, y left, z up; its origin lies on the ground below the middle of the rear axle.
camera: z forward, x right, y down.  lidar, radar and IMU: x forward, y left, z up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import SourceError
from recorder.config.options import Option

Floats = npt.NDArray[np.float64]


def rotate(rotation: Floats, vector: Floats) -> Floats:
    """Rotate vectors [..., 3] by matrices [..., 3, 3], broadcast against each other."""
    return np.asarray(np.einsum("...ij,...j->...i", rotation, vector))


def rotate_back(rotation: Floats, vector: Floats) -> Floats:
    """Rotate vectors [..., 3] by the transposes of matrices [..., 3, 3]."""
    return np.asarray(np.einsum("...ji,...j->...i", rotation, vector))


def about_z(cosine: Floats, sine: Floats) -> Floats:
    """Return rotations about z, f8 [n, 3, 3], from cosines and sines of their angles, [n]."""
    zero, one = np.zeros_like(cosine), np.ones_like(cosine)
    rows = [[cosine, -sine, zero], [sine, cosine, zero], [zero, zero, one]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


@dataclass(frozen=True, slots=True)
class Mount:
    """A sensor's place: point in rig = rotation @ point in sensor + translation.

    Attributes:
        translation_m: (x, y, z) of the sensor's origin in the rig.
        quaternion_xyzw: the sensor's axes in the rig, of unit length.
    """

    translation_m: tuple[float, float, float]
    quaternion_xyzw: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)

    @property
    def translation(self) -> Floats:
        """f8 [3] in m."""
        return np.array(self.translation_m)

    @property
    def rotation(self) -> Floats:
        """f8 [3, 3], sensor to rig."""
        x, y, z, w = self.quaternion_xyzw
        scale = 2.0 / (x * x + y * y + z * z + w * w)
        return np.array(
            [
                [1 - scale * (y * y + z * z), scale * (x * y - z * w), scale * (x * z + y * w)],
                [scale * (x * y + z * w), 1 - scale * (x * x + z * z), scale * (y * z - x * w)],
                [scale * (x * z - y * w), scale * (y * z + x * w), 1 - scale * (x * x + y * y)],
            ]
        )

    def to_mapping(self) -> dict[str, list[float]]:
        """Return the value of ``T_sensor_rig`` in a calibration file."""
        return {
            "translation_m": list(self.translation_m),
            "quaternion_xyzw": list(self.quaternion_xyzw),
        }


CAMERA = Mount((1.7, 0.0, 1.45), (-0.5, 0.5, -0.5, 0.5))
LIDAR = Mount((1.0, 0.0, 1.95))
RADAR = Mount((3.7, 0.0, 0.6))
IMU = Mount((0.25, 0.12, 0.45))

MOUNT_OPTION = Option(
    "map",
    description="sim: the sensor's place in the rig, T_sensor_rig",
    keys={
        "translation_m": Option("list", None, "x, y, z in the rig, in m", items="float"),
        "quaternion_xyzw": Option("list", None, "sensor's axes in the rig", items="float"),
    },
)
"""The option ``mount`` of every simulated sensor."""


def make_mount(name: str, option: Mapping[str, Any] | None, default: Mount) -> Mount:
    """Make the mount of the option ``mount``; absent keys are taken from `default`.

    Raises:
        SourceError: a list of a wrong length, or an invalid quaternion.
    """
    option = option or {}
    translation = _numbers(name, option, "translation_m", default.translation_m)
    quaternion = _numbers(name, option, "quaternion_xyzw", default.quaternion_xyzw)
    x, y, z, w = quaternion
    norm = float(np.sqrt(x * x + y * y + z * z + w * w))
    if not abs(norm - 1.0) < 1e-3:
        raise SourceError(f"{name}: mount.quaternion_xyzw: of length {norm:g} instead of 1")
    return Mount((translation[0], translation[1], translation[2]), (x, y, z, w))


def _numbers(
    name: str, option: Mapping[str, Any], key: str, default: tuple[float, ...]
) -> tuple[float, ...]:
    values = option.get(key)
    if values is None:
        return default
    if len(values) != len(default):
        raise SourceError(f"{name}: mount.{key}: {len(values)} numbers instead of {len(default)}")
    return tuple(float(value) for value in values)
