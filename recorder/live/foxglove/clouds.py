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

from recorder.contract.errors import FormatError
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Message
from recorder.live.foxglove.channels import Channel, Encoded, schema_of, stamp, times_ns
from recorder.processing.encoded import EncodedSamples
from recorder.processing.lidar import OusterOptics

MOST_HZ: Final = 10.0
POINT: Final = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "u1"), ("return", "u1"),
     ("ring", "<u2")]
)  # fmt: skip
"""A lidar's point: m; reflectivity; 0 for the first return; row of the sweep."""
_METADATA: Final = "lidar.json"
_RETURNS: Final = (("rng", "rng_far", "rfl"), ("rng2", "rng2_far", "rfl2"))
_TYPES: Final = {
    "u1": PackedElementFieldNumericType.Uint8,
    "u2": PackedElementFieldNumericType.Uint16,
    "f4": PackedElementFieldNumericType.Float32,
}
_ORIGIN: Final = Pose(
    position=Vector3(x=0.0, y=0.0, z=0.0), orientation=Quaternion(x=0.0, y=0.0, z=0.0, w=1.0)
)


def cloud(t_ns: int, frame: str, points: npt.NDArray[Any]) -> bytes:
    """An encoded PointCloud of a structured array [n]."""
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
        data=points.tobytes(),
    )
    return message.encode()


def lidar_channel(spec: StreamSpec) -> Channel:
    """``/NAME/points``: the returns of a sweep, in the sensor's frame.

    Raises:
        FormatError: ``lidar.json`` is missing or wrong, or does not fit the sweeps.
    """
    where = f"{spec.name}: {_METADATA}"
    optics = OusterOptics.of_metadata(spec.files.get(_METADATA, ""), where)
    if spec.channel("rng").shape != (optics.beams, optics.columns):
        raise FormatError(f"{where}: is not of sweeps {list(spec.channel('rng').shape)}")
    names = {channel.name for channel in spec.channels}
    samples = EncodedSamples(spec)
    direction, start = optics.lines
    ring = np.repeat(np.arange(optics.beams, dtype=np.uint16), optics.columns)

    def flat(message: Message, channel: str) -> npt.NDArray[Any]:
        return samples.decoded(message, channel).reshape(-1)

    def encode(message: Message, offset_ns: int) -> Encoded:
        samples.check(message)
        parts = []
        for number, (near, far, reflectivity) in enumerate(_RETURNS):
            if near not in names:
                continue
            range_mm = flat(message, near)
            if far in names:
                range_mm = range_mm + flat(message, far)
            at = np.flatnonzero(range_mm)
            range_m = range_mm[at].astype(np.float32) * np.float32(1e-3)
            points = np.empty(len(at), POINT)
            for axis, name in enumerate("xyz"):
                points[name] = start[axis, at] + direction[axis, at] * range_m
            some = reflectivity in names
            points["intensity"] = flat(message, reflectivity)[at] if some else 0
            points["return"], points["ring"] = number, ring[at]
            parts.append(points)
        t_ns = times_ns(message, offset_ns)[-1]
        return [(t_ns, cloud(t_ns, spec.name, np.concatenate(parts)))]

    topic = f"/{spec.name}/points"
    return Channel(topic, schema_of(PointCloud), spec.name, encode, most_hz=MOST_HZ)
