"""Messages of a bag as plain values, by rosbags: a program for an environment of its own.

    .venv-rosbags/bin/python tests/conformance/bag_messages.py BAG

opens the folder by its metadata.yaml, and prints a JSON object a message.  It needs rosbags and
numpy, and nothing of the recorder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from array import array
from pathlib import Path
from typing import Any

import numpy as np

MOST_LISTED = 36
"""Longer lists of numbers are a digest of their bytes, with their number."""


def digest(values: Any) -> dict[str, Any]:
    """Number and digest of many numbers; readers differ in their types."""
    wide = values.astype("<f8" if values.dtype.kind == "f" else "<i8")
    return {"size": values.size, "sha256": hashlib.sha256(wide.tobytes()).hexdigest()}


def plain(value: Any) -> Any:
    """A message, or a part of it, as plain values; NaN as null."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = np.frombuffer(value, np.uint8)
    if isinstance(value, array) or (
        isinstance(value, list) and value and isinstance(value[0], (int, float))
    ):
        value = np.array(value)
    if isinstance(value, np.ndarray):
        if value.size <= MOST_LISTED:
            return [plain(each) for each in value.tolist()]
        return digest(value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if value == value else None
    if isinstance(value, (str, int)):
        return value
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        names = list(getattr(type(value), "__slots__", ())) or list(vars(value))
    return {
        name: plain(getattr(value, name))
        for name in names
        if name != "__msgtype__" and not name.isupper()
    }


def main(path: Path) -> None:
    """Print the messages."""
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    with AnyReader([path], default_typestore=get_typestore(Stores.ROS2_HUMBLE)) as reader:
        for connection, t_ns, data in reader.messages():
            message = plain(reader.deserialize(data, connection.msgtype))
            print(json.dumps([connection.topic, connection.msgtype, t_ns, message]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
