"""Names of topics and frames in ROS 2.

A topic begins with the stream's name: ``/lidar/points``.  Frames follow REP-105: the rig is
``base_link``, the world is ``map`` if poses come from positions on Earth, else ``odom``.  A
sensor's frame has its name; a camera's frame, with z forward, has the suffix of REP-103:
``camera_optical_frame``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from recorder.archives.context import PackingContext
from recorder.archives.mcap.topics import Topic
from recorder.formats.mcap import Schema
from recorder.formats.ros2.bag import qos
from recorder.formats.ros2.definitions import ENCODING, definition
from recorder.perception.frames import kind_of
from recorder.session.vrs.records import as_text

RIG: Final = "base_link"
MAP: Final = "map"
ODOM: Final = "odom"
_RESERVED: Final = ("labels", "recorder", "tf", "tf_static", "rosout")
_DEPTH: Final = 10


def ros_topic(
    name: str,
    type_name: str,
    *,
    depth: int = _DEPTH,
    latched: bool = False,
    compress: bool = True,
) -> Topic:
    """Return a topic with a type of ROS 2.

    Args:
        name: such as ``/lidar/points``.
        type_name: such as ``sensor_msgs/msg/PointCloud2``.
        depth: number of messages that a publisher keeps.
        latched: whether late subscribers get the kept messages.
        compress: False for JPEG and other data that do not compress.
    """
    schema = Schema(type_name, ENCODING, definition(type_name))
    metadata = {"offered_qos_profiles": qos(depth, latched=latched)}
    return Topic(name, schema, compress, metadata)


def tokens(names: Iterable[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """Return unique parts of topics by name: letters, digits and single underscores.

    A part begins with a letter; one that begins with an underscore would be hidden.

    Args:
        names: names of streams or files.
        taken: parts that are not used.
    """
    given: dict[str, str] = {}
    used = set(taken)
    for name in sorted(names):
        token = re.sub("[^A-Za-z0-9]+", "_", name).strip("_") or "unnamed"
        token = token if token[0].isalpha() else f"n{token}"
        unique, number = token, 2
        while unique in used:
            unique, number = f"{token}_{number}", number + 1
        used.add(unique)
        given[name] = unique
    return given


def ros_text(text: str) -> str:
    """Return a text without zeros and lone surrogates, which a string of ROS 2 cannot hold."""
    return as_text(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


class Names:
    """Names of one session's topics and frames.

    Attributes:
        world: frame of the world.
    """

    def __init__(self, context: PackingContext, world: str = ODOM) -> None:
        session, calibrated = context.session, context.calibration.sensors
        streams = {stream.name: stream for stream in context.streams}
        self._tokens = tokens({*streams, *session.declared, *calibrated}, _RESERVED)
        cameras = {name for name, stream in streams.items() if kind_of(stream) == "camera"}
        cameras |= {name for name, sensor in calibrated.items() if sensor.model is not None}
        self._frames: Mapping[str, str] = {
            name: f"{token}_optical_frame" if name in cameras else token
            for name, token in self._tokens.items()
        } | {"rig": RIG, "world": world}
        self.world = world

    def topic(self, stream: str, name: str) -> str:
        """Return a topic of a stream, such as ``/lidar/points``."""
        return f"/{self._tokens[stream]}/{name}"

    def frame(self, name: str) -> str:
        """Return the frame of a sensor, of the ``rig`` or of the ``world``."""
        return self._frames.get(name) or tokens([name])[name]
