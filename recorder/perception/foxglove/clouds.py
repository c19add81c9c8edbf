"""Point clouds: structured arrays as PointCloud, and the sweeps of lidars."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from foxglove.messages import (
    PackedElementField,
    PackedElementFieldNumericType,
    PointCloud,
    Pose,
    Quaternion,
    Vector3,
)

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.perception.encoded import EncodedSamples
from recorder.perception.foxglove.channels import (
    Encoded,
    Parts,
    SampleChannel,
    schema_of,
    stamp,
    times_ns,
    with_bytes,
)
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.points import convert_points, without_wide_integers

MOST_HZ: Final = 10.0
POINT_CLOUD: Final = schema_of(PointCloud)
_TYPES: Final = {
    "u1": PackedElementFieldNumericType.Uint8,
    "u2": PackedElementFieldNumericType.Uint16,
    "u4": PackedElementFieldNumericType.Uint32,
    "i1": PackedElementFieldNumericType.Int8,
    "i2": PackedElementFieldNumericType.Int16,
    "i4": PackedElementFieldNumericType.Int32,
    "f4": PackedElementFieldNumericType.Float32,
    "f8": PackedElementFieldNumericType.Float64,
}
_DATA: Final = 6  # field of PointCloud
_ORIGIN: Final = Pose(
    position=Vector3(x=0.0, y=0.0, z=0.0), orientation=Quaternion(x=0.0, y=0.0, z=0.0, w=1.0)
)


def cloud(t_ns: int, frame: str, points: npt.NDArray[Any]) -> Parts:
    """Encode a PointCloud of a contiguous structured array [n], which must not change later."""
    fields = [
        PackedElementField(name=name, offset=offset, type=_TYPES[dtype.str[1:]])
        for name, (dtype, offset, *_) in (points.dtype.fields or {}).items()
    ]
    message = PointCloud(
        timestamp=stamp(t_ns),
        frame_id=frame,
        pose=_ORIGIN,
        point_stride=points.dtype.itemsize,
        fields=fields,
    )
    return with_bytes(message.encode(), _DATA, points.view(np.uint8).data)


def lidar_channel(spec: StreamSpec) -> SampleChannel:
    """Return the topic ``/NAME/points``: the returns of a sweep, in the sensor's frame.

    A message's log time is the sweep's stamp, the time of its last column or point.  Its
    ``timestamp`` is the time of the earliest one, from which the points' field ``t`` counts.

    Raises:
        FormatError: ``lidar.json`` is missing or wrong, or does not fit the sweeps.
    """
    source = make_point_source(spec)
    samples = EncodedSamples(spec)
    packed = np.dtype(without_wide_integers(source.point))

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        t_ns = times_ns(message, offset_ns)[-1]
        start_ns, points = source.points(source.decode_sample(samples, message), t_ns)
        return [(t_ns, cloud(start_ns, spec.name, convert_points(points, packed)))]

    topic = f"/{spec.name}/points"
    return SampleChannel(topic, POINT_CLOUD, spec.name, encode, most_hz=MOST_HZ)
