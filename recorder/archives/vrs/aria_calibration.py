"""Mounts of Project Aria's sensors, from the tag ``calib_json`` of its VRS files.

The rig is the frame of the device, which is that of the left SLAM camera.  The streams of the
labels are those of ``projectaria_tools`` (``RecordableTypeId``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from recorder.common.errors import FormatError

TAG: Final = "calib_json"
STREAMS: Final[Mapping[str, str]] = {
    "camera-slam-left": "1201-1",
    "camera-slam-right": "1201-2",
    "camera-rgb": "214-1",
    "imu-right": "1202-1",
    "imu-left": "1202-2",
}
"""Streams by the labels of their sensors; without the two eye cameras, which share one picture."""
_KINDS: Final = (("CameraCalibrations", "T_Device_Camera"), ("ImuCalibrations", "T_Device_Imu"))


def read_mounts(text: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the stream of each sensor, its entry in a calibration, and the name of its lens model.

    The name is "" for a sensor without a lens.

    Raises:
        FormatError: the text is no such calibration.
    """
    try:
        values = json.loads(text)
        for kind, key in _KINDS:
            for sensor in values.get(kind) or ():
                stream = STREAMS.get(sensor["Label"])
                if stream is not None and key in sensor:
                    model = str(sensor.get("Projection", {}).get("Name", ""))
                    yield stream, {"T_sensor_rig": _read_pose(sensor[key])}, model
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(f"{TAG}: is no calibration of Aria: {error!r:.100}") from None


def _read_pose(pose: Mapping[str, Any]) -> dict[str, list[float]]:
    real, imaginary = pose["UnitQuaternion"]
    quaternion = np.array([*imaginary, real], np.float64)
    translation = np.array(pose["Translation"], np.float64)
    length = float(np.linalg.norm(quaternion))
    if translation.shape != (3,) or quaternion.shape != (4,) or not abs(length - 1) < 1e-3:
        raise ValueError(f"no pose: {pose!r:.60}")
    if not np.isfinite(translation).all():
        raise ValueError("a translation that is not finite")
    return {
        "translation_m": translation.tolist(),
        "quaternion_xyzw": (quaternion / length).tolist(),
    }
