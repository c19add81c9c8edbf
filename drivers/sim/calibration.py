"""The calibration of the simulated rig as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from drivers.camera.lens import Lens
from drivers.camera.model import SIM_SIZE
from drivers.world import mounts

CALIBRATED_AT: Final = "2026-01-01"
_DEFAULTS: Final = """\
# Calibration of the simulated sensors at their default mounts; printed by
# `python -m drivers.sim calibration`.
"""
OF_SESSION: Final = """\
# Calibration of the simulated sensors of this session; written after the recording.
"""
_AXES: Final = """\
# T_sensor_rig: a point in the rig's frame = rotation * point in the sensor's frame + translation.
# rig: x forward, y left, z up, origin on the ground below the middle of the rear axle.
# camera: z forward, x right, y down; lidar, radar, imu: x forward, y left, z up.
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """A simulated sensor: its name, its mount, and a camera's lens and kind of shutter."""

    name: str
    mount: mounts.Mount
    lens: Lens | None = None
    rolling: bool = False


DEFAULTS: Final = (
    Placed("camera", mounts.CAMERA, Lens.default(*SIM_SIZE)),
    Placed("lidar", mounts.LIDAR),
    Placed("radar", mounts.RADAR),
    Placed("imu", mounts.IMU),
)
"""The sensors of a rig whose sensors have no options."""


def calibration_text(sensors: Sequence[Placed] | None = None) -> str:
    """Return the text of a ``calibration.yaml``; by default for camera, lidar, radar and imu."""
    header = _DEFAULTS if sensors is None else OF_SESSION
    placed = DEFAULTS if sensors is None else sensors
    lines = [header + _AXES + ("sensors:" if placed else "sensors: {}")]
    for sensor in placed:
        mount = sensor.mount.to_mapping()
        lines += [
            f"  {sensor.name}:",
            "    T_sensor_rig:",
            f"      translation_m: {_flow(mount['translation_m'])}",
            f"      quaternion_xyzw: {_flow(mount['quaternion_xyzw'])}",
        ]
        if (lens := sensor.lens) is not None:
            values = [f"{key}: {value!r}" for key, value in lens.parameters().items()]
            values += ["shutter: rolling-top-to-bottom"] if sensor.rolling else []
            parameters = ", ".join(values)
            lines += [
                "    model: opencv-pinhole",
                f"    parameters: {{{parameters}}}",
                f"    resolution: [{lens.width}, {lens.height}]",
            ]
        lines.append(f'    calibrated_at: "{CALIBRATED_AT}"')
    return "\n".join(lines) + "\n"


def _flow(values: list[float]) -> str:
    return "[" + ", ".join(repr(float(value)) for value in values) + "]"
