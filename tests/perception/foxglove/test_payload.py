"""Messages made without a copy have the bytes of the SDK's own encoding."""

from __future__ import annotations

from typing import Any

import pytest
from foxglove.messages import (
    CompressedImage,
    CompressedVideo,
    PackedElementField,
    PackedElementFieldNumericType,
    PointCloud,
    Pose,
    Quaternion,
    RawImage,
    Timestamp,
    Vector3,
)
from hypothesis import given
from hypothesis import strategies as st

from recorder.perception.foxglove.channels import with_bytes

POSE = Pose(position=Vector3(x=1.0, y=0.0, z=-2.0), orientation=Quaternion(w=1.0))
FIELDS = [
    PackedElementField(name=name, offset=at, type=PackedElementFieldNumericType.Float32)
    for at, name in enumerate(("x", "a" * 200))
]
KINDS: dict[Any, tuple[int, dict[str, Any]]] = {
    CompressedImage: (2, {"format": "jpeg"}),
    CompressedVideo: (3, {"format": "h264"}),
    RawImage: (6, {"width": 3, "height": 2, "step": 0, "encoding": "mono16"}),
    PointCloud: (6, {"pose": POSE, "point_stride": 16, "fields": FIELDS}),
}


@pytest.mark.parametrize("kind", KINDS)
@given(
    st.sampled_from([0, 1, 127, 128, 16383, 16384, 2_097_151, 2_097_152]),
    st.text(max_size=300),
    st.sampled_from([0, 5, 1_717_236_000_123_456_789]),
)
def test_the_bytes_are_those_of_the_sdk(kind: Any, size: int, frame: str, t_ns: int) -> None:
    number, values = KINDS[kind]
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    stamp = Timestamp(t_ns // 10**9, t_ns % 10**9)
    common = {"timestamp": stamp, "frame_id": frame, **values}
    wanted = kind(data=data, **common).encode()
    parts = with_bytes(kind(**common).encode(), number, data)
    assert b"".join(parts) == wanted
    assert len(data) == 0 or any(part is data for part in parts)
