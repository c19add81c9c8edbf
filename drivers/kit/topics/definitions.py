"""Definitions of message types that no node has described, and their hashes, by rosbags.

rosbags has the types of each ROS 2 distribution; without it nothing is found.  Its store is a
second source: where the hash of the topic's type is known, only a definition of that hash is taken.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any, Final

from recorder.common.errors import FormatError

_VERSION: Final = 2  # of ROS


@cache
def _load_stores() -> tuple[Any, ...]:
    """Return the stores of types of ROS 2, the newest distribution first; none without rosbags."""
    try:
        from rosbags.typesys import Stores, get_typestore
    except ImportError:
        return ()
    names = [each for each in Stores if each.name.startswith("ROS2_")]
    return tuple(get_typestore(each) for each in reversed(names))


def find_definition(type_name: str, type_hash: str) -> str | None:
    """Return the definition of a type, and of those that it uses, as ``ros2msg`` text.

    Args:
        type_name: such as ``nav_msgs/msg/Path``.
        type_hash: ``RIHS01_...``; "": unknown, and the newest definition is returned.

    Returns:
        None if no distribution has a type of that name and hash.
    """
    for store in _load_stores():
        if type_name in store.types and type_hash in ("", store.hash_rihs01(type_name)):
            return str(store.generate_msgdef(type_name, ros_version=_VERSION)[0])
    return None


def hash_definition(type_name: str, text: str) -> str:
    """Return the hash of a type (REP-2011), ``RIHS01_...``; "": rosbags is not there.

    Args:
        type_name: such as ``can_msgs/msg/Frame``.
        text: definition of the type and of those that it uses, ``ros2msg``.

    Raises:
        FormatError: the text is no definition of the type.
    """
    try:
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    except ImportError:
        return ""
    store = get_typestore(Stores.EMPTY)
    with contextlib.suppress(Exception):  # rosbags raises whatever its parser raises
        store.register(get_types_from_msg(text, type_name))
        return str(store.hash_rihs01(type_name))
    raise FormatError(f"{type_name}: the definition cannot be read")
