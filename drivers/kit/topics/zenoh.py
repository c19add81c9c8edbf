"""Topics over Zenoh: those of ROS 2 nodes with rmw_zenoh, and those of EdgeFirst's devices.

rmw_zenoh publishes a topic under ``DOMAIN/TOPIC/TYPE/HASH`` and declares a liveliness token for
each publisher, which names its node, type and policies.  Each sample has an attachment: number,
time and publisher's id.  A device of EdgeFirst publishes under ``rt/TOPIC`` with the type's name as
the sample's encoding, without tokens and without numbers.

rmw_zenoh's id of a publisher is the XXH3 hash of its token (``liveliness_utils.cpp``).  Other
libraries make up ids: these are taken for the ids of the tokens that have none yet, in order of
their appearance.

Names, fields and numbers are those of rmw_zenoh's design document and of zenoh-ros2-sdk 0.1.8.
"""

from __future__ import annotations

import json
import re
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from drivers.kit.topics.definitions import find_definition
from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Publisher, Topic
from recorder.common.errors import DeviceError, SourceError, need_extra

ROUTER: Final = "tcp/localhost:7447"
"""Where rmw_zenoh's nodes expect a router."""
TOKENS: Final = "@ros2_lv"
"""First part of the keys of liveliness tokens."""
PUBLISHER: Final = "MP"
"""Kind of a publisher's token."""
ATTACHMENT: Final = struct.Struct("<qqB")
"""Number, time in epoch ns and length of the publisher's id, which follows."""
ID_BYTES: Final = 16
"""Length of a publisher's id."""
_NAMES: Final = (b"sequence_number", b"source_timestamp", b"source_gid")
_BEST_EFFORT, _TRANSIENT_LOCAL = "2", "1"
_PLAIN: Final = "rt/"
_CACHE_ATTEMPTS: Final = 5
_CACHE_NS: Final = 1_000_000_000  # for the answer of a cache
_MESSAGE: Final = re.compile(r"\w+/msg/\w+", re.ASCII)


def parse_token(key: str) -> tuple[Topic, Publisher] | None:
    """Return what a liveliness token says of a publisher; None: it is of another kind.

    `Publisher.id` is rmw_zenoh's hash of the token.
    """
    parts = key.split("/")
    if len(parts) != 13 or parts[0] != TOKENS or parts[5] != PUBLISHER:
        return None
    namespace, node, name, dds_type, type_hash, qos = parts[7:]
    policies = qos.split(":")
    is_reliable, has_cache = policies[0] != _BEST_EFFORT, policies[1:2] == [_TRANSIENT_LOCAL]
    publisher = Publisher(
        hash_token(key),
        _demangle(namespace).rstrip("/") + "/" + _demangle(node),
        is_reliable,
        has_cache,
        f"{'reliable' if is_reliable else 'best_effort'}, "
        f"{'transient_local' if has_cache else 'volatile'}",
    )
    known = type_hash if type_hash.startswith("RIHS") else ""
    return Topic(_demangle(name), _convert_type_name(dds_type), known), publisher


def hash_token(key: str) -> bytes:
    """Return rmw_zenoh's id of the publisher with a token."""
    import xxhash

    value = xxhash.xxh3_128_intdigest(key.encode())
    return struct.pack("<QQ", value & 0xFFFF_FFFF_FFFF_FFFF, value >> 64)


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
    if len(data) < ATTACHMENT.size:
        return None
    number, source_ns, size = ATTACHMENT.unpack_from(data)
    publisher = data[ATTACHMENT.size : ATTACHMENT.size + size]
    return (number, source_ns, publisher) if size == len(publisher) == ID_BYTES else None


def parse_encoding(encoding: str) -> str | None:
    """Return the type's name in the encoding of an EdgeFirst device's sample; None: it has none.

    It is the schema behind the ``;``, such as ``application/cdr;sensor_msgs/msg/Image``.
    """
    schema = encoding.rpartition(";")[2]
    return schema if _MESSAGE.fullmatch(schema) else None


def open_session(locator: str) -> tuple[Any, Any]:
    """Connect to Zenoh peers or to a router.

    Args:
        locator: where to connect, such as ``tcp/192.168.1.7:7447``; "": `ROUTER`.

    Returns:
        The package zenoh, and the session.

    Raises:
        SourceError: eclipse-zenoh cannot be imported, or the locator has a wrong form.
        DeviceError: nothing answers at the locator.
    """
    try:
        import xxhash  # noqa: F401  for ids
        import zenoh
    except ImportError as error:
        text = f"Zenoh topics need eclipse-zenoh: {need_extra('zenoh')}: {error}"
        raise SourceError(text) from None
    where = locator or ROUTER
    config = zenoh.Config()
    try:
        config.insert_json5("connect/endpoints", json.dumps([where]))
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("timestamping/enabled", "true")  # caches need them, as in rmw_zenoh
    except zenoh.ZError as error:
        raise SourceError(f"{where!r} is no locator of Zenoh: {error}") from None
    try:
        session = zenoh.open(config)
    except zenoh.ZError as error:
        raise DeviceError(f"zenoh:{where}: {error}") from None
    if not _is_connected(session):
        session.close()
        raise DeviceError(f"zenoh:{where}: no router and no peer answers")
    return zenoh, session


def _is_connected(session: Any) -> bool:
    return bool(list(session.info.routers_zid()) or list(session.info.peers_zid()))


class ZenohMiddleware:
    """A connection to Zenoh peers or to a router.

    Args:
        locator: where to connect, such as ``tcp/192.168.1.7:7447``; "": `ROUTER`.
        domain: ROS 2 domain; None: topics of EdgeFirst's devices (``rt/TOPIC``).
        queue: takes what arrives.
        topic: the only one that an EdgeFirst's device is asked for; "": all.

    Attributes:
        counts_losses: whether samples have numbers.
        warnings: likely reasons for lost messages: none.

    Raises:
        SourceError: eclipse-zenoh cannot be imported, or the locator has a wrong form.
        DeviceError: nothing answers at the locator.
    """

    def __init__(
        self, locator: str, domain: int | None, queue: ArrivalQueue, topic: str = ""
    ) -> None:
        self._zenoh, self._session = open_session(locator)
        self.counts_losses = domain is not None
        self.warnings: list[str] = []
        self._domain, self._queue = domain, queue
        self._where = locator or ROUTER
        self._subscribers: dict[str, tuple[bool, Any]] = {}
        self._silent: dict[str, tuple[int, int]] = {}  # cached topics: since when, subscriptions
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._ids: dict[str, dict[bytes, bytes]] = {}  # of tokens, by topic and sent id
        self._finding: Any = None
        if domain is None:
            key = f"{_PLAIN}{topic.lstrip('/') or '**'}"
            self._finding = self._session.declare_subscriber(key, self._take_plain)
        else:
            self._finding = self._session.liveliness().declare_subscriber(
                f"{TOKENS}/{domain}/**", self._take_token, history=True
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

    def _take_plain(self, sample: Any) -> None:
        name = "/" + str(sample.key_expr).removeprefix(_PLAIN)
        if name not in self._topics and (found := parse_encoding(str(sample.encoding))):
            with self._lock:
                self._topics[name] = Topic(name, found, "", {b"": Publisher(b"", qos="unknown")})

    def discover(self) -> Mapping[str, Topic]:
        if not _is_connected(self._session):
            raise DeviceError(f"zenoh:{self._where}: the connection is lost")
        for name, (since_ns, count) in list(self._silent.items()):
            if count < _CACHE_ATTEMPTS and time.monotonic_ns() > since_ns + _CACHE_NS:
                self._declare(name, cached=True)  # its query may have come before the route to it
        with self._lock:
            return {name: topic for name, topic in self._topics.items() if topic.publishers}

    def _find_publisher(self, name: str, sent: bytes) -> bytes:
        """Return the id of the token of a publisher that sent this id."""
        with self._lock:
            ids = self._ids.setdefault(name, {})
            if (found := ids.get(sent)) is None:
                topic = self._topics.get(name)
                tokens = () if topic is None else tuple(topic.publishers)
                unsent = (each for each in tokens if each not in ids.values())
                ids[sent] = found = sent if sent in tokens else next(unsent, sent)
            return found

    def subscribe(self, topic: Topic, depth: int) -> None:  # noqa: ARG002  Zenoh keeps no messages
        cached = any(each.has_cache for each in topic.publishers.values())
        was_cached, earlier = self._subscribers.get(topic.name, (False, None))
        if earlier is None or cached > was_cached:
            self._declare(topic.name, cached=cached)

    def _declare(self, topic: str, *, cached: bool) -> None:
        name = topic.lstrip("/")
        key = f"{_PLAIN}{name}" if self._domain is None else f"{self._domain}/{name}/*/*"
        callback = self._make_callback(topic)
        subscriber: Any
        if cached:
            import zenoh.ext

            count = self._silent.get(topic, (0, 0))[1] + 1
            self._silent[topic] = time.monotonic_ns(), count
            history = zenoh.ext.HistoryConfig(detect_late_publishers=True)
            subscriber = zenoh.ext.declare_advanced_subscriber(
                self._session, key, callback, history=history
            )
        else:
            subscriber = self._session.declare_subscriber(key, callback)
        earlier = self._subscribers.get(topic, (False, None))[1]
        self._subscribers[topic] = cached, subscriber
        if earlier is not None:
            earlier.undeclare()

    def _make_callback(self, name: str) -> Any:
        put, find_publisher, silent = self._queue.put, self._find_publisher, self._silent

        def take(sample: Any) -> None:
            attachment = sample.attachment
            found = None if attachment is None else parse_attachment(attachment.to_bytes())
            number, source_ns, publisher = (None, 0, b"") if found is None else found
            silent.pop(name, None)
            if publisher:
                publisher = find_publisher(name, publisher)
            data = sample.payload.to_bytes()
            put(Arrival(name, time.monotonic_ns(), data, publisher, number, source_ns))

        return take

    def describe_type(self, topic: Topic) -> str | None:
        return find_definition(topic.type_name, topic.type_hash)  # no node is asked

    def close(self) -> None:
        self._session.close()
