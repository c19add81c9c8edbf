"""Topics over Zenoh: those of ROS 2 nodes with rmw_zenoh, and those of EdgeFirst's devices.

rmw_zenoh publishes a topic under ``DOMAIN/TOPIC/TYPE/HASH`` and declares a liveliness token for each
publisher, which names its node, type and policies.  Each sample has an attachment: number, time and
publisher's id.  A device of EdgeFirst publishes under ``rt/TOPIC`` with the type's name as the
sample's encoding, without tokens and without numbers.

Names, fields and numbers are those of rmw_zenoh's design document and of zenoh-ros2-sdk 0.1.8.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Publisher, Topic
from recorder.common.errors import DeviceError, SourceError, need_extra

_TOKENS: Final = "@ros2_lv"
_PUBLISHER: Final = "MP"
_ATTACHMENT: Final = struct.Struct("<qqB")
_ID_BYTES: Final = 16
_NAMES: Final = (b"sequence_number", b"source_timestamp", b"source_gid")
_BEST_EFFORT, _TRANSIENT_LOCAL = "2", "1"
_PLAIN: Final = "rt/"
_DISCOVERY_S: Final = 1.0  # for tokens of those who are there already


def parse_token(key: str) -> tuple[Topic, Publisher] | None:
    """Return what a liveliness token says of a publisher; None: it is of another kind.

    The id in an attachment is not in the token, so `Publisher.id` is the token's own: the session's
    and the entity's numbers.
    """
    parts = key.split("/")
    if len(parts) != 13 or parts[0] != _TOKENS or parts[5] != _PUBLISHER:
        return None
    zid, entity, namespace, node, name, dds_type, type_hash, qos = parts[2], parts[4], *parts[7:]
    policies = qos.split(":")
    is_reliable, has_cache = policies[0] != _BEST_EFFORT, policies[1:2] == [_TRANSIENT_LOCAL]
    publisher = Publisher(
        f"{zid}/{entity}".encode(),
        _demangle(namespace).rstrip("/") + "/" + _demangle(node),
        is_reliable,
        has_cache,
        f"{'reliable' if is_reliable else 'best_effort'}, "
        f"{'transient_local' if has_cache else 'volatile'}",
    )
    known = type_hash if type_hash.startswith("RIHS") else ""
    return Topic(_demangle(name), _convert_type_name(dds_type), known), publisher


def _demangle(text: str) -> str:
    return text.replace("%", "/")


def _convert_type_name(name: str) -> str:
    """Return ``sensor_msgs/msg/Image`` for ``sensor_msgs::msg::dds_::Image_``."""
    return name.replace("::dds_::", "::").removesuffix("_").replace("::", "/")


def parse_attachment(data: bytes) -> tuple[int, int, bytes] | None:
    """Return number, time in epoch ns and publisher's id of a sample; None: it has none.

    Older versions of rmw_zenoh write each value's name before it, as a length and the text.
    """
    if _NAMES[0] in data[: len(_NAMES[0]) + 8]:
        values = re.split(b"|".join(re.escape(name) for name in _NAMES), data, maxsplit=3)
        if len(values) != 4:
            return None
        data = values[1][:8] + values[2][:8] + values[3]
    if len(data) < _ATTACHMENT.size:
        return None
    number, source_ns, size = _ATTACHMENT.unpack_from(data)
    publisher = data[_ATTACHMENT.size : _ATTACHMENT.size + size]
    return (number, source_ns, publisher) if size == len(publisher) == _ID_BYTES else None


class ZenohMiddleware:
    """A connection to Zenoh peers or to a router.

    Args:
        locator: where to connect, such as ``tcp/192.168.1.7:7447``; "": the router that rmw_zenoh
            expects, ``tcp/localhost:7447``.
        domain: ROS 2 domain; None: topics of EdgeFirst's devices (``rt/TOPIC``).
        queue: takes what arrives.

    Raises:
        SourceError: eclipse-zenoh cannot be imported, or the locator has a wrong form.
        DeviceError: nothing answers at the locator.
    """

    def __init__(self, locator: str, domain: int | None, queue: ArrivalQueue) -> None:
        try:
            import zenoh
        except ImportError as error:
            text = f"Zenoh topics need eclipse-zenoh: {need_extra('zenoh')}: {error}"
            raise SourceError(text) from None
        self._zenoh, self._domain, self._queue = zenoh, domain, queue
        self._where = locator or "tcp/localhost:7447"
        config = zenoh.Config()
        config.insert_json5("connect/endpoints", f'["{self._where}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        try:
            self._session = zenoh.open(config)
        except zenoh.ZError as error:
            raise DeviceError(f"zenoh:{self._where}: {error}") from None
        self._subscribers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._tokens = None
        if domain is not None:
            self._tokens = self._session.liveliness().declare_subscriber(
                f"{_TOKENS}/{domain}/**", self._take_token, history=True
            )

    def _take_token(self, sample: Any) -> None:
        found = parse_token(str(sample.key_expr))
        if found is None:
            return
        topic, publisher = found
        with self._lock:
            known = self._topics.get(topic.name, topic)
            publishers = {k: p for k, p in known.publishers.items() if k != publisher.id}
            if sample.kind == self._zenoh.SampleKind.PUT:
                publishers[publisher.id] = publisher
            self._topics[topic.name] = Topic(
                topic.name, topic.type_name, topic.type_hash, publishers
            )

    def discover(self) -> Mapping[str, Topic]:
        with self._lock:
            return {name: topic for name, topic in self._topics.items() if topic.publishers}

    def subscribe(self, topic: Topic, depth: int) -> None:
        name = topic.name.lstrip("/")
        key = f"{_PLAIN}{name}" if self._domain is None else f"{self._domain}/{name}/*/*"
        if topic.name in self._subscribers:
            return
        callback = self._make_callback(topic.name)
        if any(each.has_cache for each in topic.publishers.values()):
            history = self._zenoh.ext.HistoryConfig(detect_late_publishers=True)
            subscriber = self._zenoh.ext.declare_advanced_subscriber(
                self._session, key, callback, history=history
            )
        else:
            subscriber = self._session.declare_subscriber(key, callback)
        self._subscribers[topic.name] = subscriber

    def _make_callback(self, name: str) -> Any:
        put = self._queue.put

        def take(sample: Any) -> None:
            attachment = sample.attachment
            found = None if attachment is None else parse_attachment(attachment.to_bytes())
            number, source_ns, publisher = (None, 0, b"") if found is None else found
            put(
                Arrival(
                    name,
                    time.monotonic_ns(),
                    sample.payload.to_bytes(),
                    publisher,
                    number,
                    source_ns,
                )
            )

        return take

    def describe_type(self, topic: Topic) -> str | None:
        return None

    def close(self) -> None:
        self._session.close()
