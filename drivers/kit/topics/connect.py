"""Addresses of live topics, and the middleware of an address.

``ros2:DOMAIN#/TOPIC``, ``zenoh:[LOCATOR/]DOMAIN#/TOPIC``, and ``zenoh:LOCATOR#rt/TOPIC`` for
devices of EdgeFirst; a driver that takes many topics has none after the ``#``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from drivers.kit.driver import SensorConfig
from drivers.kit.topics.middleware import ArrivalQueue
from drivers.kit.topics.ros2 import Ros2Middleware
from drivers.kit.topics.zenoh import ZenohMiddleware
from recorder.common.errors import SourceError
from recorder.config.options import Option

TOPIC_SCHEMES: Final = frozenset({"ros2", "zenoh"})
"""Schemes of live topics."""
TOPIC_FORMS: Final[Mapping[str, str]] = {
    "ros2": "DOMAIN#/topic of ROS 2, such as 0#/imu; extra `ros2` or a sourced ROS",
    "zenoh": "[LOCATOR/]DOMAIN#/topic of ROS 2 over Zenoh, or LOCATOR#rt/topic of an EdgeFirst "
    "device; extra `zenoh`",
}
"""Descriptions of the schemes, for drivers that take one topic."""
TOPIC_OPTIONS: Final[Mapping[str, Option]] = {
    "depth": Option(
        "int",
        None,
        "ros2: messages that the middleware keeps for the driver (default: 60, or two seconds of "
        "the measured rate)",
        minimum=1,
        maximum=100_000,
    ),
    "queue_mb": Option(
        "float",
        64.0,
        "ros2, zenoh: messages that wait for the driver [MB]",
        minimum=0.1,
        maximum=4000,
    ),
    "discovery": Option(
        "str",
        None,
        "ros2: computers on which nodes are discovered (default: as ROS is set)",
        choices=("subnet", "localhost", "off"),
    ),
    "peers": Option(
        "list",
        [],
        "ros2: addresses of computers that discovery by multicast does not reach",
        items="str",
    ),
}
"""Options of sources of live topics."""
_LAST_DOMAIN: Final = 232
_PLAIN: Final = "rt/"


@dataclass(frozen=True, slots=True)
class TopicAddress:
    """Address of a live source.

    Attributes:
        scheme: ``ros2`` or ``zenoh``.
        domain: of ROS 2; None: keys of EdgeFirst's devices.
        locator: where Zenoh connects; "": rmw_zenoh's router on this machine.
        topic: with the first slash; "": all topics.
    """

    scheme: str
    domain: int | None
    locator: str
    topic: str


def parse_address(sensor: SensorConfig) -> TopicAddress:
    """Parse a sensor's address.

    Raises:
        SourceError: it has a wrong form; names the form.
    """
    place, _, topic = sensor.address.partition("#")
    locator, _, last = place.rpartition("/")
    domain = int(last) if last.isascii() and last.isdigit() else None
    if sensor.scheme == "zenoh" and domain is None and place:
        if topic and not topic.startswith(_PLAIN):
            raise _fault(sensor, "without a domain, the topic is a key such as #rt/camera/h264")
        topic = f"/{topic.removeprefix(_PLAIN)}" if topic else ""
        return TopicAddress("zenoh", None, place, topic)
    if domain is None or domain > _LAST_DOMAIN or (locator and sensor.scheme == "ros2"):
        form = "DOMAIN#/topic" if sensor.scheme == "ros2" else "[LOCATOR/]DOMAIN#/topic"
        text = f"needs the form {sensor.scheme}:{form}, with a domain of 0 to {_LAST_DOMAIN}"
        raise _fault(sensor, text)
    if topic and not topic.startswith("/"):
        topic = f"/{topic}"
    return TopicAddress(sensor.scheme, domain, locator, topic)


def _fault(sensor: SensorConfig, text: str) -> SourceError:
    return SourceError(f"{sensor.name}: {sensor.scheme}:{sensor.address}: {text}")


def open_middleware(
    address: TopicAddress, queue: ArrivalQueue, options: Mapping[str, Any]
) -> Ros2Middleware | ZenohMiddleware:
    """Connect to the middleware of an address.

    Args:
        address: of the sensor.
        queue: takes what arrives.
        options: the sensor's, with `TOPIC_OPTIONS`.

    Raises:
        SourceError: the middleware's packages are missing.
        DeviceError: it cannot be joined or reached.
    """
    if address.scheme == "zenoh":
        return ZenohMiddleware(address.locator, address.domain, queue, address.topic)
    assert address.domain is not None
    peers = tuple(options["peers"])
    return Ros2Middleware(address.domain, queue, options["discovery"] or "", peers)
