"""A ROS 2 node of rclpy that subscribes: ``python ros2_listener.py DOMAIN TOPICS``.

TOPICS is JSON: by name, the type, its hash ("" if it is installed) and whether the subscription is
transient local.  It prints a JSON object a message: topic, serialized message as hexadecimal
digits, and the seconds and nanoseconds that rclpy decodes of ``/clock``.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import rclpy
import rclpy.executors
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message

from drivers.kit.topics.ros2_types import make_type


def main() -> None:
    rclpy.init(domain_id=int(sys.argv[1]))
    node = rclpy.create_node("listener")
    for name, (kind, type_hash, latched) in json.loads(sys.argv[2]).items():
        package, _, word = kind.split("/")
        message_type: Any = (
            make_type(kind, type_hash)
            if type_hash
            else getattr(importlib.import_module(f"{package}.msg"), word)
        )

        def take(data: bytes, name: str = name, a_type: Any = message_type) -> None:
            said: list[Any] = [name, data.hex()]
            if name == "/clock":
                stamp = deserialize_message(data, a_type).clock
                said += [stamp.sec, stamp.nanosec]
            print(json.dumps(said), flush=True)

        durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
        qos = QoSProfile(depth=1000, durability=durability)
        node.create_subscription(message_type, name, take, qos, raw=True)
    print(json.dumps(["ready"]), flush=True)
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    executor.spin()


if __name__ == "__main__":
    main()
