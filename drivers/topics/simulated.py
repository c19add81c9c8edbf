"""Nodes of the simulated vehicle: their topics, with messages in CDR as ROS 2 sends them.

``/tf_static`` comes once, ``/tf`` has the vehicle's pose 50 times a second, and ``/status`` is a
topic that appears only after the first second.  All times and numbers follow from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from drivers.kit.driver import Item, NewStream, SensorConfig
from drivers.topics.selection import RateLimit, Selection, name_stream
from drivers.topics.stream import Messages
from drivers.world import World
from recorder.codecs.streams import StreamSpec
from recorder.formats.recorded_topic import RecordedTopic, topic_spec
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import ENCODING, STRING, TRANSFORMS, definition
from recorder.formats.ros2.messages import Header, TransformStamped

_PERIOD_NS: Final = 20_000_000
_LATER_NS: Final = 1_000_000_000
_TYPES: Final = {"/tf": TRANSFORMS, "/tf_static": TRANSFORMS, "/status": STRING}
_CALIBRATED: Final = TransformStamped(
    Header(0, "base_link"), "lidar_top", (0.0, 0.0, 1.8), (0.0, 0.0, 0.0, 1.0)
)


class SimulatedTopics:
    """Source of the simulated topics.

    Args:
        sensor: the sensor's entry, of scheme ``sim``.
        selection: of the topics.

    Raises:
        SourceError: no topic is chosen.
    """

    def __init__(self, sensor: SensorConfig, selection: Selection) -> None:
        self._sensor = sensor
        options = sensor.options
        self._world = World.of(options)
        self._topics: dict[str, str] = {}
        streams: dict[str, str] = {}
        for topic in filter(selection.takes, sorted(_TYPES)):
            self._topics[topic] = name_stream(sensor.name, topic, streams)
            streams[self._topics[topic]] = topic
        if not self._topics:
            known = ", ".join(sorted(_TYPES))
            raise sensor.fault(f"has no topic to record; its topics: {known}")
        self._limits = {
            topic: RateLimit(selection.least_interval_ns(topic)) for topic in self._topics
        }

    def open(self) -> list[StreamSpec]:
        """Declare the topics that are there from the start, or the only one."""
        early = [topic for topic in self._topics if topic != "/status"]
        return [self._declare(topic) for topic in early or self._topics]

    def _declare(self, topic: str) -> StreamSpec:
        text = definition(_TYPES[topic])
        about = RecordedTopic(topic, _TYPES[topic], schema_encoding=ENCODING, definition=text)
        settings = {"topic": topic, "type": about.type_name, "simulated": True}
        return topic_spec(
            self._topics[topic], about, bytes_per_sample=120, finite=False, settings=settings
        )

    def items(self) -> Iterator[Item | NewStream]:
        """Yield the messages, and the declaration of the topic that appears."""
        number = 0
        while True:
            number += 1
            t_ns = number * _PERIOD_NS
            if number == 1 and "/tf_static" in self._topics:
                yield from self._send("/tf_static", 1, t_ns, _CALIBRATED)
            if "/tf" in self._topics:
                yield from self._send("/tf", number, t_ns, self._pose(t_ns))
            if "/status" in self._topics and not t_ns % _LATER_NS:
                if t_ns == _LATER_NS and len(self._topics) > 1:
                    yield NewStream(self._declare("/status"))
                yield from self._send("/status", t_ns // _LATER_NS, t_ns, "ready")

    def _send(
        self, topic: str, number: int, t_ns: int, message: str | TransformStamped
    ) -> Iterator[Item]:
        if self._limits[topic].passes(t_ns):
            content = message if isinstance(message, str) else (message,)
            data = b"".join(map(bytes, encode_message(_TYPES[topic], content)))
            messages = Messages()
            messages.put(t_ns, data, number, 1, t_ns)
            yield messages.take(self._topics[topic])

    def _pose(self, t_ns: int) -> TransformStamped:
        position, rotation = self._world.trajectory.pose(np.array([t_ns / 1e9]))
        half = float(np.arctan2(rotation[0, 1, 0], rotation[0, 0, 0])) / 2
        x, y, z = position[0].tolist()
        turn = (0.0, 0.0, float(np.sin(half)), float(np.cos(half)))
        return TransformStamped(Header(t_ns, "map"), "base_link", (x, y, z), turn)

    def close(self) -> None:
        """Release nothing."""
