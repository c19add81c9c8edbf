"""Types of streams (VRS, StreamId.h): the recordable classes, which need a flavor.

Other numbers are legal, too; readers show unknown types by their number.
"""

from __future__ import annotations

from enum import IntEnum


class RecordableType(IntEnum):
    """Types of the sensors of vehicles and wearers."""

    FORWARD_CAMERA = 200
    UPWARD_CAMERA = 201
    DOWNWARD_CAMERA = 202
    BACKWARD_CAMERA = 203
    SIDEWARD_CAMERA = 204
    OUTWARD_CAMERA = 205
    INWARD_CAMERA = 206
    DEPTH_CAMERA = 209
    IR_CAMERA = 210
    EYE_CAMERA = 211
    FACE_CAMERA = 212
    RGB_CAMERA = 214
    MONO_AUDIO = 230
    STEREO_AUDIO = 231
    AMBIENT_AUDIO = 232
    SENSOR_DATA = 240
    IMU_DATA = 241
    ACCELEROMETER_DATA = 242
    MAGNETOMETER_DATA = 243
    GYROSCOPE_DATA = 244
    LIDAR_DATA = 245
    TEMPERATURE_DATA = 246
    BAROMETER_DATA = 247
    RADAR_DATA = 254
    CALIBRATION_DATA = 260
    SETUP_DATA = 262
    DIAGNOSTIC_DATA = 263
    PERFORMANCE_DATA = 264
    SYNC_DATA = 280
    GPS_DATA = 281
    EVENT_DATA = 320
    COMMAND_DATA = 321
    POSE_DATA = 371
    MOTION_DATA = 372
    POINT_CLOUD_DATA = 376
    ANNOTATION_DATA = 400
    SAMPLE = 998
    UNIT_TEST = 999
    SLAM_CAMERA = 1201
    SLAM_IMU = 1202
    SLAM_MAGNETOMETER = 1203


_SMALL_WORDS = ("IMU", "IR", "RGB", "GPS")
_OLD = {1201: "Camera Data (SLAM)", 1202: "IMU Data (SLAM)", 1203: "Magnetometer Data (SLAM)"}


def recordable_name(type_id: int) -> str:
    """Return the name in readers: ``RGB Camera Class``; with its number for unknown types."""
    if type_id in _OLD:
        return _OLD[type_id]
    try:
        words = RecordableType(type_id).name.split("_")
    except ValueError:
        return f"Recordable {type_id}"
    return " ".join([*(w if w in _SMALL_WORDS else w.title() for w in words), "Class"])
