"""Publishers of serialized messages over Zenoh, as nodes with rmw_zenoh are.

Keys, tokens and policies are those of rmw_zenoh's design document (``liveliness_utils.cpp``):
empty policies are the defaults, which are reliable, volatile and the last 10 messages.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from drivers.kit.topics.zenoh import (
    ATTACHMENT,
    ID_BYTES,
    PUBLISHER,
    TOKENS,
    hash_token,
    open_session,
)
from recorder.bus.offered_topics import OfferedTopic
from recorder.common.errors import DeviceError

_NODE: Final = "NN"
_NODE_NUMBER: Final = 0


class ZenohPublishers:
    """Publishers in a ROS 2 domain over Zenoh; see `drivers.kit.topics.publish.Publishers`.

    Args:
        locator: where to connect; "": rmw_zenoh's router on this machine.
        domain: ROS 2 domain.

    Raises:
        SourceError: eclipse-zenoh cannot be imported, or the locator has a wrong form.
        DeviceError: nothing answers at the locator.
    """

    def __init__(self, locator: str, domain: int) -> None:
        self._zenoh, self._session = open_session(locator)
        self._domain = domain
        self._start = f"{TOKENS}/{domain}/{self._session.info.zid()}/{_NODE_NUMBER}"
        self._node = f"%/%/recorder_{os.getpid()}"  # enclave, namespace, name
        self._tokens = [self._declare(f"{self._start}/{_NODE_NUMBER}/{_NODE}/{self._node}")]
        self._publishers: dict[str, tuple[Any, bytes]] = {}
        self._plain: dict[str, Any] = {}
        self._numbers: dict[str, int] = {}

    def _declare(self, token: str) -> Any:
        return self._session.liveliness().declare_token(token)

    def open(self, topic: OfferedTopic) -> None:
        if not topic.type_hash:
            raise DeviceError(f"{topic.name}: the hash of the type {topic.type_name} is not known")
        package, kind, name = topic.type_name.split("/")
        dds_type = f"{package}::{kind}::dds_::{name}_"
        path = topic.name.lstrip("/")
        key = f"{self._domain}/{path}/{dds_type}/{topic.type_hash}"
        policies = (
            f"{'' if topic.is_reliable else '2'}:{'1' if topic.is_latched else ''}:"
            f",{topic.depth}:,:,:,,"
        )
        mangled = topic.name.replace("/", "%")
        number = len(self._publishers) + 1
        token = (
            f"{self._start}/{number}/{PUBLISHER}/{self._node}/{mangled}/{dds_type}/"
            f"{topic.type_hash}/{policies}"
        )
        control = self._zenoh.CongestionControl
        settings = {
            "congestion_control": control.BLOCK if topic.is_reliable else control.DROP,
            "encoding": self._zenoh.Encoding("application/cdr"),
        }
        try:
            plain = publisher = self._session.declare_publisher(key, **settings)
            if topic.is_latched:  # such a publisher does not know whether it has subscribers
                import zenoh.ext

                publisher = zenoh.ext.declare_advanced_publisher(
                    self._session,
                    key,
                    cache=zenoh.ext.CacheConfig(max_samples=topic.depth),
                    publisher_detection=True,
                    **settings,
                )
            self._tokens.append(self._declare(token))
        except self._zenoh.ZError as error:
            raise DeviceError(f"{topic.name}: cannot be published: {error}") from None
        self._publishers[topic.name] = publisher, hash_token(token)
        self._plain[topic.name] = plain

    def has_subscriber(self, name: str) -> bool:
        return bool(self._plain[name].matching_status.matching)

    def publish(self, name: str, data: bytes) -> None:
        publisher, own_id = self._publishers[name]
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        attachment = ATTACHMENT.pack(number, time.time_ns(), ID_BYTES) + own_id
        try:
            publisher.put(data, attachment=attachment)
        except self._zenoh.ZError as error:
            raise DeviceError(f"{name}: not published: {error}") from None

    def close(self) -> None:
        self._session.close()
