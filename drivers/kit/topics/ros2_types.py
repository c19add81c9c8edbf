"""Message types of rclpy, also of packages that are not installed.

Where the type is not installed, a type support is made from that of ``std_msgs/String``: Fast DDS
needs only the type's name and its hash to match, and raw subscriptions and publishers never decode
or encode.  Layouts are those of rosidl_runtime_c (``rosidl_message_type_support_t``) and
rosidl_typesupport_fastrtps_c (``message_type_support_callbacks_t``, whose first two members are the
names).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from typing import Any, Final

from recorder.common.errors import DeviceError

FAST_DDS: Final = "rmw_fastrtps_cpp"
"""Name of the middleware for which types can be made."""
_FASTRTPS_C: Final = b"rosidl_typesupport_fastrtps_c"


def load_type(topic: str, type_name: str, type_hash: str) -> Any:
    """Return a message type: that of its package, or one that is made.

    Args:
        topic: its name, for errors.
        type_name: such as ``tf2_msgs/msg/TFMessage``.
        type_hash: hash of the type's definition, ``RIHS01_...``; "": unknown.

    Raises:
        DeviceError: the type is not installed, and none can be made; names the package.
    """
    package, kind, name = type_name.split("/")
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), name)
    except (ImportError, AttributeError) as error:
        if (reason := _refuse_made_type(type_hash)) is None:
            return make_type(type_name, type_hash)
        text = f"{topic}: the type {type_name} is not installed ({error}), {reason}"
        raise DeviceError(f"{text}: install the package {package}") from None


def clear_error() -> None:
    """Clear rcutils' error of this thread, which creating with a made type leaves.

    Fast DDS then lacks the type's introspection; without this, the next error would be printed with
    a warning about the first one.
    """
    with contextlib.suppress(OSError, AttributeError):  # of a ROS that names it otherwise
        ctypes.CDLL("librcutils.so").rcutils_reset_error()


def _refuse_made_type(type_hash: str) -> str | None:
    """Return the reason why no type support can be made; None: it can."""
    import rclpy
    from rclpy.topic_endpoint_info import TopicEndpointInfo

    if (implementation := rclpy.get_rmw_implementation_identifier()) != FAST_DDS:
        return f"and the middleware is {implementation}, not {FAST_DDS}"
    if not hasattr(TopicEndpointInfo, "topic_type_hash"):
        return "and this ROS is older than Iron"
    return None if type_hash.startswith("RIHS01_") else "and its hash is not known"


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
