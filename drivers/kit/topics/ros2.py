"""Topics of ROS 2 by rclpy with Fast DDS, without the packages of their message types.

Messages are received serialized.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from drivers.kit.topics.middleware import (
    HANDOVER_NS,
    Arrival,
    ArrivalQueue,
    Publisher,
    Topic,
    TopicError,
)
from drivers.kit.topics.ros2_node import Ros2Domain
from drivers.kit.topics.ros2_types import FAST_DDS, clear_error, load_type
from recorder.common.errors import DeviceError

_SPIN_S: Final = 0.1
_INCOMPATIBLE_NS: Final = 3_000_000_000  # after which a topic is not subscribed again to mend it
_UNKNOWN: Final = "_UNKNOWN_"  # in the name of a node that discovery does not know yet
_LONGEST_WAIT_NS: Final = 10_000_000_000  # of a message in Fast DDS, before it is taken


class Ros2Middleware:
    """A ROS 2 domain.

    Args:
        domain: number of the domain, 0 to 232.
        queue: takes what arrives.
        discovery: ``subnet``, ``localhost`` or ``off`` (static peers alone); "": as ROS is set.
        peers: addresses of computers that discovery by multicast does not reach.

    Attributes:
        counts_losses: whether the middleware numbers messages: Fast DDS does.
        warnings: likely reasons for lost messages.

    Raises:
        SourceError: rclpy cannot be imported.
        DeviceError: the domain cannot be joined.
    """

    def __init__(
        self, domain: int, queue: ArrivalQueue, discovery: str = "", peers: tuple[str, ...] = ()
    ) -> None:
        self._queue = queue
        self._domain = Ros2Domain(domain, discovery, peers)
        self._node, self.warnings = self._domain.node, self._domain.warnings
        from rclpy.executors import SingleThreadedExecutor

        self.counts_losses = self._domain.implementation == FAST_DDS
        self._subscriptions: dict[str, Any] = {}
        self._replaced: deque[tuple[int, Any]] = deque()  # subscriptions, and when they end
        self._clients: dict[str, Any] = {}  # that ask for a type's definition
        self._described: dict[str, str | None] = {}
        self._requests: dict[str, Any] = {}  # newest policies by topic
        self._incompatible: dict[str, tuple[int, str]] = {}  # since when, and which policy
        self._problem: str | None = None
        self._is_closing = False
        # The executor of events raises SystemError with raw subscriptions.
        self._executor = SingleThreadedExecutor(context=self._domain.context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, name="ros2", daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        try:
            while not self._is_closing:
                self._destroy_replaced()
                self._executor.spin_once(timeout_sec=_SPIN_S)
        except Exception as error:  # rclpy raises whatever its callbacks and C++ raise
            if not self._is_closing:
                self._problem = f"ROS 2: receiving ended: {type(error).__name__}: {error}"
                raise

    def discover(self) -> Mapping[str, Topic]:
        if self._problem is not None:
            raise DeviceError(self._problem)
        for name, (since_ns, policy) in list(self._incompatible.items()):
            if time.monotonic_ns() > since_ns + _INCOMPATIBLE_NS:
                del self._incompatible[name]
                raise TopicError(name, f"a publisher's policy {policy} is incompatible")
        topics = {}
        for name, type_names in self._node.get_topic_names_and_types():
            found = self._node.get_publishers_info_by_topic(name)
            publishers = {bytes(each.endpoint_gid): _describe_publisher(each) for each in found}
            if found:
                type_name = found[0].topic_type or type_names[0]
                type_hash = getattr(found[0], "topic_type_hash", None)
                text = "" if type_hash is None else str(type_hash)
                topics[name] = Topic(name, type_name, text, publishers)
        return topics

    def subscribe(self, topic: Topic, depth: int) -> None:
        from rclpy.event_handler import SubscriptionEventCallbacks
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

        publishers = topic.publishers.values()
        reliable = all(each.is_reliable for each in publishers)
        cached = all(each.has_cache for each in publishers)
        qos = QoSProfile(
            depth=depth,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if cached else DurabilityPolicy.VOLATILE,
        )
        earlier = self._subscriptions.pop(topic.name, None)
        self._requests[topic.name] = qos
        # The thread may report a policy before `create_subscription` returns.
        self._incompatible.pop(topic.name, None)
        try:
            self._subscriptions[topic.name] = self._node.create_subscription(
                load_type(topic.name, topic.type_name, topic.type_hash),
                topic.name,
                self._make_callback(topic.name, qos),
                qos,
                raw=True,
                event_callbacks=SubscriptionEventCallbacks(
                    incompatible_qos=lambda event: self._report_incompatible(
                        topic.name, qos, event
                    ),
                    use_default_callbacks=False,
                ),
            )
        except (RuntimeError, ValueError, TypeError) as error:
            raise DeviceError(f"{topic.name}: cannot be subscribed: {error}") from None
        finally:
            clear_error()
        if earlier is not None:  # its publishers do not know the new one yet
            self._replaced.append((time.monotonic_ns() + HANDOVER_NS, earlier))

    def _destroy_replaced(self) -> None:
        """Destroy the replaced subscriptions whose time has come.

        Only the thread of the executor may: another would destroy what the executor waits for.
        """
        while self._replaced and self._replaced[0][0] <= time.monotonic_ns():
            self._node.destroy_subscription(self._replaced.popleft()[1])

    def _make_callback(self, name: str, requested: Any) -> Any:
        put, is_told_apart, newest = self._queue.put, self.counts_losses, self._requests

        def take(data: bytes, info: Mapping[str, Any]) -> None:
            if not is_told_apart and newest[name] is not requested:
                return  # without numbers, what two subscriptions receive cannot be told apart
            now_ns, wall_ns = time.monotonic_ns(), time.time_ns()
            waited_ns = wall_ns - (info["received_timestamp"] or wall_ns)
            gid = info.get("publisher_gid")
            put(
                Arrival(
                    name,
                    now_ns - min(max(waited_ns, 0), _LONGEST_WAIT_NS),
                    data,
                    bytes(gid["data"]) if gid else b"",
                    info.get("publication_sequence_number"),
                    info["source_timestamp"] or 0,
                )
            )

        # rclpy chooses the kind of callback by its signature.
        return take

    def _report_incompatible(self, name: str, requested: Any, event: Any) -> None:
        from rclpy.qos import qos_policy_name_from_kind

        if self._requests[name] is requested:  # not of a subscription that was replaced
            policy = qos_policy_name_from_kind(event.last_policy_kind)
            self._incompatible.setdefault(name, (time.monotonic_ns(), policy))

    def describe_type(self, topic: Topic) -> str | None:
        """Ask the publisher's node in the background; the answer is there at a later call."""
        node = next((each.node for each in topic.publishers.values() if each.node), None)
        if topic.type_name not in self._described and node is not None:
            self._ask_description(topic, node)
        return self._described.get(topic.type_name)

    def _ask_description(self, topic: Topic, node: str) -> None:
        try:
            from type_description_interfaces.srv import GetTypeDescription
        except ImportError:
            return
        if (client := self._clients.get(topic.type_name)) is None:
            name = f"{node}/get_type_description"
            client = self._clients[topic.type_name] = self._node.create_client(
                GetTypeDescription, name
            )
        if not client.service_is_ready():
            return
        self._described[topic.type_name] = None
        request = GetTypeDescription.Request(
            type_name=topic.type_name, type_hash=topic.type_hash, include_type_sources=True
        )

        def take(future: Any) -> None:
            answer = None if future.exception() else future.result()
            if answer is not None and answer.successful:
                sources = {each.type_name: each.raw_file_contents for each in answer.type_sources}
                self._described[topic.type_name] = _join_definitions(topic.type_name, sources)

        client.call_async(request).add_done_callback(take)

    def close(self) -> None:
        self._is_closing = True
        self._thread.join(2)
        self._executor.shutdown(0)
        self._domain.leave()


def _describe_publisher(info: Any) -> Publisher:
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    profile = info.qos_profile
    node = f"{info.node_namespace.rstrip('/')}/{info.node_name}"
    return Publisher(
        bytes(info.endpoint_gid),
        "" if _UNKNOWN in node else node,
        profile.reliability != ReliabilityPolicy.BEST_EFFORT,
        profile.durability == DurabilityPolicy.TRANSIENT_LOCAL,
        f"{profile.reliability.name.lower()}, {profile.durability.name.lower()}",
    )


def _join_definitions(type_name: str, sources: Mapping[str, str]) -> str | None:
    """Return texts of a type and those that it uses in the form of MCAP's ``ros2msg``."""
    if type_name not in sources:
        return None
    others = [f"{'=' * 80}\nMSG: {_short(n)}\n{t}" for n, t in sources.items() if n != type_name]
    return "\n".join([sources[type_name], *others])


def _short(type_name: str) -> str:
    package, _, name = type_name.split("/")
    return f"{package}/{name}"
