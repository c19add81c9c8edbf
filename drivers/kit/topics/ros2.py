"""Topics of ROS 2 by rclpy with Fast DDS, without the packages of their message types.

rclpy and its libraries come from the package registry (extra ``ros2``) or from a sourced ROS.
Messages are received serialized.  Where the type is not installed, a type support is made from that
of ``std_msgs/String``: Fast DDS needs only the type's name and its hash to match a publisher, and
a raw subscription never decodes.  Layouts are those of rosidl_runtime_c
(``rosidl_message_type_support_t``) and rosidl_typesupport_fastrtps_c
(``message_type_support_callbacks_t``, whose first two members are the names).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Publisher, Topic, TopicError
from recorder.common.errors import DeviceError, SourceError, need_extra

RECEIVE_BUFFER_BYTES: Final = 4 << 20
"""Receive buffer of Fast DDS's sockets: with the defaults most large messages are lost."""
PROFILE_VARIABLES: Final = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
"""Variables that name a file with a profile of Fast DDS."""
PROFILE: Final = """<?xml version="1.0" encoding="UTF-8"?>
<dds xmlns="http://www.eprosima.com"><profiles>
  <transport_descriptors><transport_descriptor>
    <transport_id>recorder_udp</transport_id><type>UDPv4</type>
    <receiveBufferSize>{size}</receiveBufferSize><sendBufferSize>{size}</sendBufferSize>
  </transport_descriptor></transport_descriptors>
  <participant profile_name="recorder" is_default_profile="true"><rtps>
    <userTransports><transport_id>recorder_udp</transport_id></userTransports>
    <useBuiltinTransports>false</useBuiltinTransports>
  </rtps></participant>
</profiles></dds>
"""
"""The driver's profile, with a place for `RECEIVE_BUFFER_BYTES`: UDP, without shared memory."""
_RMEM_MAX: Final = Path("/proc/sys/net/core/rmem_max")
_FASTRTPS_C: Final = b"rosidl_typesupport_fastrtps_c"
_FAST_DDS: Final = "rmw_fastrtps_cpp"
_SPIN_S: Final = 0.1
_HANDOVER_NS: Final = 2_000_000_000  # in which publishers find a subscription that replaces another
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
        profile = _set_environment(discovery, peers)
        self.warnings = list(_warn_of_small_buffers())
        try:
            import rclpy
            import rclpy.executors
            from rclpy.signals import SignalHandlerOptions
        except ImportError as error:
            text = f"ROS 2 topics need rclpy: {need_extra('ros2')}, or a sourced ROS: {error}"
            raise SourceError(text) from None
        self._rclpy = rclpy
        self._context = rclpy.Context()
        try:
            rclpy.init(
                context=self._context,
                domain_id=domain,
                signal_handler_options=SignalHandlerOptions.NO,
            )
            self._node = rclpy.create_node(
                f"recorder_{os.getpid()}",
                context=self._context,
                enable_rosout=False,
                start_parameter_services=False,
            )
        except (RuntimeError, ValueError) as error:  # RCLError is a RuntimeError
            raise DeviceError(f"ROS 2 domain {domain} cannot be joined: {error}") from None
        finally:
            if profile is not None:  # Fast DDS has read it
                del os.environ[PROFILE_VARIABLES[0]]
                profile.unlink(missing_ok=True)
        self._implementation = rclpy.get_rmw_implementation_identifier()
        self.counts_losses = self._implementation == _FAST_DDS
        self._subscriptions: dict[str, Any] = {}
        self._replaced: list[tuple[int, Any]] = []  # subscriptions, and when
        self._clients: dict[str, Any] = {}  # that ask for a type's definition
        self._described: dict[str, str | None] = {}
        self._incompatible: dict[str, tuple[int, str]] = {}  # since when, and which policy
        self._problem: str | None = None
        self._is_closing = False
        # The executor of events raises SystemError with raw subscriptions.
        self._executor = rclpy.executors.SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._spin, name="ros2", daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        try:
            while not self._is_closing:
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
        self._destroy_replaced(time.monotonic_ns() - _HANDOVER_NS)
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
        try:
            self._subscriptions[topic.name] = self._node.create_subscription(
                self._load_type(topic),
                topic.name,
                self._make_callback(topic.name),
                qos,
                raw=True,
                event_callbacks=SubscriptionEventCallbacks(
                    incompatible_qos=lambda event: self._report_incompatible(topic.name, event),
                    use_default_callbacks=False,
                ),
            )
        except (RuntimeError, ValueError, TypeError) as error:
            raise DeviceError(f"{topic.name}: cannot be subscribed: {error}") from None
        self._incompatible.pop(topic.name, None)
        if earlier is not None:  # its publishers do not know the new one yet
            self._replaced.append((time.monotonic_ns(), earlier))
            if not self.counts_losses:  # messages that both receive could not be told apart
                self._destroy_replaced(time.monotonic_ns())

    def _destroy_replaced(self, until_ns: int) -> None:
        """Destroy the subscriptions that were replaced until a time."""
        for replaced_ns, subscription in list(self._replaced):
            if replaced_ns <= until_ns:
                self._replaced.remove((replaced_ns, subscription))
                self._node.destroy_subscription(subscription)

    def _make_callback(self, name: str) -> Any:
        put = self._queue.put

        def take(data: bytes, info: Mapping[str, Any]) -> None:
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

    def _report_incompatible(self, name: str, event: Any) -> None:
        from rclpy.qos import qos_policy_name_from_kind

        policy = qos_policy_name_from_kind(event.last_policy_kind)
        self._incompatible.setdefault(name, (time.monotonic_ns(), policy))

    def _load_type(self, topic: Topic) -> Any:
        package, kind, name = topic.type_name.split("/")
        try:
            return getattr(importlib.import_module(f"{package}.{kind}"), name)
        except (ImportError, AttributeError) as error:
            reason = self._refuse_made_type(topic)
            if reason is None:
                return make_type(topic.type_name, topic.type_hash)
            text = f"{topic.name}: the type {topic.type_name} is not installed ({error}), {reason}"
            raise DeviceError(f"{text}: install the package {package}") from None

    def _refuse_made_type(self, topic: Topic) -> str | None:
        """Return the reason why no type support can be made; None: it can."""
        from rclpy.topic_endpoint_info import TopicEndpointInfo

        if self._implementation != _FAST_DDS:
            return f"and the middleware is {self._implementation}, not {_FAST_DDS}"
        if not hasattr(TopicEndpointInfo, "topic_type_hash"):
            return "and this ROS is older than Iron"
        return None if topic.type_hash.startswith("RIHS01_") else "and its hash is not known"

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
        self._node.destroy_node()
        self._rclpy.try_shutdown(context=self._context)


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


class _TypeSupport(ctypes.Structure):
    """``rosidl_message_type_support_t`` since Iron."""

    _fields_ = (
        ("identifier", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("get_handle", ctypes.c_void_p),
        ("get_type_hash", ctypes.c_void_p),
        ("get_type_description", ctypes.c_void_p),
        ("get_type_description_sources", ctypes.c_void_p),
    )


class _Callbacks(ctypes.Structure):
    """``message_type_support_callbacks_t``: the names, and functions that only decoding needs."""

    _fields_ = (
        ("namespace", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("functions", ctypes.c_void_p * 5),
    )


class _TypeHash(ctypes.Structure):
    """``rosidl_type_hash_t``."""

    _fields_ = (("version", ctypes.c_uint8), ("value", ctypes.c_uint8 * 32))


_GetTypeHash = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_GetHandle = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_made: dict[tuple[str, str], tuple[Any, ...]] = {}  # Fast DDS keeps pointers for the process's life


def make_type(type_name: str, type_hash: str) -> Any:
    """Make a message type for raw subscriptions and publishers with Fast DDS.

    Args:
        type_name: such as ``tf2_msgs/msg/TFMessage``.
        type_hash: ``RIHS01_`` and 64 hexadecimal digits.

    Raises:
        DeviceError: the type support of ``std_msgs/String`` is not as expected.
    """
    if (type_name, type_hash) in _made:
        return _made[type_name, type_hash][0]
    from rclpy.type_support import check_for_type_support
    from std_msgs.msg import String

    check_for_type_support(String)
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    string: Any = String
    known = _TypeSupport.from_address(api.PyCapsule_GetPointer(string._TYPE_SUPPORT, None))
    address = _GetHandle(known.get_handle)(ctypes.addressof(known), _FASTRTPS_C)
    source = _TypeSupport.from_address(address) if address else None
    if source is None or source.identifier != _FASTRTPS_C:
        raise DeviceError(f"{type_name}: std_msgs/String has no type support of Fast DDS")
    callbacks = _Callbacks.from_buffer_copy(_Callbacks.from_address(source.data))
    if (callbacks.namespace, callbacks.name) != (b"std_msgs::msg", b"String"):
        raise DeviceError(f"{type_name}: the type support of this ROS has an unknown layout")
    package, kind, name = type_name.split("/")
    callbacks.namespace, callbacks.name = f"{package}::{kind}".encode(), name.encode()
    digest = _TypeHash(1, (ctypes.c_uint8 * 32)(*bytes.fromhex(type_hash.removeprefix("RIHS01_"))))
    get_type_hash = _GetTypeHash(lambda _: ctypes.addressof(digest))
    made = _TypeSupport.from_buffer_copy(source)
    made.data = ctypes.addressof(callbacks)
    made.get_type_hash = ctypes.cast(get_type_hash, ctypes.c_void_p)
    capsule = api.PyCapsule_New(ctypes.addressof(made), None, None)
    # rclpy asks the metaclass for all five; a raw subscription uses the first alone.
    names = ("TYPE_SUPPORT", "CREATE_ROS_MESSAGE", "CONVERT_FROM_PY", "CONVERT_TO_PY")
    attributes = {f"_{each}": capsule for each in (*names, "DESTROY_ROS_MESSAGE")}
    message_type = type("Metaclass", (type,), attributes)(name, (), {})
    _made[type_name, type_hash] = message_type, callbacks, digest, get_type_hash, made
    return message_type


def _set_environment(discovery: str, peers: tuple[str, ...]) -> Path | None:
    """Set what Fast DDS reads when it starts; return the profile that was made, if any."""
    if discovery:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = discovery.upper()
    if peers:
        os.environ["ROS_STATIC_PEERS"] = ";".join(peers)
    own = any(os.environ.get(name) for name in PROFILE_VARIABLES)
    if (
        own
        or "FASTDDS_BUILTIN_TRANSPORTS" in os.environ
        or Path("DEFAULT_FASTDDS_PROFILES.xml").exists()
    ):
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".xml", prefix="recorder-", delete=False) as file:
        file.write(PROFILE.format(size=RECEIVE_BUFFER_BYTES))
    os.environ[PROFILE_VARIABLES[0]] = file.name
    return Path(file.name)


def _warn_of_small_buffers() -> list[str]:
    try:
        limit = int(_RMEM_MAX.read_text())
    except (OSError, ValueError):
        return []
    if limit >= RECEIVE_BUFFER_BYTES:
        return []
    return [
        f"the kernel limits receive buffers to {limit} bytes: large best-effort messages will be "
        f"lost; sudo sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}"
    ]
