"""Schema of a topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema of a topic's messages.

    Attributes:
        name: name of the type, such as ``foxglove.PointCloud`` or ``sensor_msgs/msg/Imu``.
        encoding: ``protobuf`` (data: a FileDescriptorSet), ``jsonschema``, ``ros2msg`` ...
        data: the schema; empty with an empty encoding for messages without a schema.
    """

    name: str
    encoding: str
    data: bytes
