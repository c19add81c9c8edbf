"""The calibration of the simulated rig as a file (DESIGN, section 5)."""

from __future__ import annotations

from typing import Final

from drivers.sim.lens import Lens
from drivers.sim.rig import SIM_SIZE
from drivers.sim.world import mounts

CALIBRATED_AT: Final = "2026-01-01"
_HEADER: Final = """\
# Calibration of the simulated sensors at their default mounts; printed by
# `python -m drivers.sim calibration`.
# T_sensor_rig: a point in the rig's frame = rotation * point in the sensor's frame + translation.
# rig: x forward, y left, z up, origin on the ground below the middle of the rear axle.
# camera: z forward, x right, y down; lidar, radar, imu: x forward, y left, z up.
"""


def calibration_text() -> str:
    """Return the text of a ``calibration.yaml`` for the sensors camera, lidar, radar and imu."""
    lines = [_HEADER + "sensors:"]
    places = {
        "camera": mounts.CAMERA,
        "lidar": mounts.LIDAR,
        "radar": mounts.RADAR,
        "imu": mounts.IMU,
    }
    for name, mount in places.items():
        values = mount.to_mapping()
        lines += [
            f"  {name}:",
            "    T_sensor_rig:",
            f"      translation_m: {_flow(values['translation_m'])}",
            f"      quaternion_xyzw: {_flow(values['quaternion_xyzw'])}",
        ]
        if name == "camera":
            lens = Lens.default(*SIM_SIZE)
            parameters = ", ".join(f"{key}: {value!r}" for key, value in lens.parameters().items())
            lines += [
                "    model: opencv-pinhole",
                f"    parameters: {{{parameters}}}",
                f"    resolution: [{lens.width}, {lens.height}]",
            ]
        lines.append(f'    calibrated_at: "{CALIBRATED_AT}"')
    return "\n".join(lines) + "\n"


def _flow(values: list[float]) -> str:
    return "[" + ", ".join(repr(float(value)) for value in values) + "]"
