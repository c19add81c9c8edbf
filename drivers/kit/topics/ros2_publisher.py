"""Publishers of serialized messages by rclpy."""

from __future__ import annotations

import time
from typing import Any, Final

from drivers.kit.topics.ros2_node import Ros2Domain
from drivers.kit.topics.ros2_types import clear_error, load_type
from recorder.bus.offered_topics import OfferedTopic
from recorder.common.errors import DeviceError

_ACKNOWLEDGED_S: Final = 5.0


class Ros2Publishers:
    """Publishers in a ROS 2 domain; see `drivers.kit.topics.publish.Publishers`.

    Args:
        domain: number of the domain, 0 to 232.

    Raises:
        SourceError: rclpy cannot be imported.
        DeviceError: the domain cannot be joined.
    """

    def __init__(self, domain: int) -> None:
        self._domain = Ros2Domain(domain)
        self._publishers: dict[str, Any] = {}

    def open(self, topic: OfferedTopic) -> None:
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

        reliable, latched = topic.is_reliable, topic.is_latched
        qos = QoSProfile(
            depth=topic.depth,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )
        message_type = load_type(topic.name, topic.type_name, topic.type_hash)
        try:
            publisher = self._domain.node.create_publisher(message_type, topic.name, qos)
        except (RuntimeError, ValueError, TypeError) as error:
            raise DeviceError(f"{topic.name}: cannot be published: {error}") from None
        finally:
            clear_error()
        self._publishers[topic.name] = publisher

    def has_subscriber(self, name: str) -> bool:
        return bool(self._publishers[name].get_subscription_count())

    def publish(self, name: str, data: bytes) -> None:
        try:
            self._publishers[name].publish(data)
        except RuntimeError as error:  # RCLError is a RuntimeError
            raise DeviceError(f"{name}: not published: {error}") from None

    def close(self) -> None:
        from rclpy.duration import Duration

        until_s = time.monotonic() + _ACKNOWLEDGED_S
        for publisher in self._publishers.values():
            left_s = max(0.0, until_s - time.monotonic())
            publisher.wait_for_all_acked(Duration(seconds=left_s))
        self._domain.leave()
