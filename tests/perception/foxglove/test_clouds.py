"""Clouds have the bytes of the SDK's own encoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from foxglove.messages import (
    PackedElementField,
    PackedElementFieldNumericType,
    PointCloud,
    Pose,
    Quaternion,
    Vector3,
)

from recorder.perception.foxglove.channels import stamp
from recorder.perception.foxglove.clouds import cloud
from recorder.perception.lidar.points import POINT
from recorder.perception.radar.detections import DETECTION

T_NS = 1_717_236_000_123_456_789
_FLOAT = PackedElementFieldNumericType.Float32
_BYTE = PackedElementFieldNumericType.Uint8
FIELDS: dict[Any, list[tuple[str, int, Any]]] = {
    POINT: [
        ("x", 0, _FLOAT), ("y", 4, _FLOAT), ("z", 8, _FLOAT), ("intensity", 12, _BYTE),
        ("return", 13, _BYTE), ("ring", 14, PackedElementFieldNumericType.Uint16),
        ("t", 16, PackedElementFieldNumericType.Uint32),
    ],
    DETECTION: [
        ("x", 0, _FLOAT), ("y", 4, _FLOAT), ("z", 8, _FLOAT), ("velocity", 12, _FLOAT),
        ("power", 16, _FLOAT), ("snr", 20, _FLOAT), ("method", 24, _BYTE),
    ],
}  # fmt: skip


@pytest.mark.parametrize("dtype", FIELDS, ids=["points", "detections"])
@pytest.mark.parametrize("count", [0, 1, 5000])
def test_the_bytes_are_those_of_the_sdk(dtype: np.dtype[Any], count: int) -> None:
    raw = np.random.default_rng(1).integers(0, 256, count * dtype.itemsize).astype(np.uint8)
    points = raw.view(dtype)
    wanted = PointCloud(
        timestamp=stamp(T_NS),
        frame_id="lidar",
        pose=Pose(
            position=Vector3(x=0.0, y=0.0, z=0.0),
            orientation=Quaternion(x=0.0, y=0.0, z=0.0, w=1.0),
        ),
        point_stride=dtype.itemsize,
        fields=[
            PackedElementField(name=name, offset=offset, type=kind)
            for name, offset, kind in FIELDS[dtype]
        ],
        data=raw.tobytes(),
    )
    assert b"".join(cloud(T_NS, "lidar", points)) == wanted.encode()
