"""A ROS 2 node of rclpy with topics that come and go: ``python topic_talker.py DOMAIN``.

It publishes ``/latched`` (transient local) at once, waits for a line on stdin, publishes on
``/chat`` as soon as somebody subscribes, and then makes ``/late``, on which it publishes when
somebody subscribes.  It prints the SHA-256 of each message by topic, and ends with stdin.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from typing import Any

import rclpy
import rclpy.executors
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import serialize_message
from std_msgs.msg import String

COUNT = 150
sent: dict[str, list[str]] = {}


def publish(publisher: Any, topic: str, text: str) -> None:
    data = bytes(serialize_message(String(data=text)))
    publisher.publish(data)
    on_wire = data + bytes(-len(data) % 4)  # RTPS sends multiples of four bytes
    sent.setdefault(topic, []).append(hashlib.sha256(on_wire).hexdigest())


def publish_all(node: Any, topic: str) -> None:
    publisher = node.create_publisher(String, topic, 100)
    while not publisher.get_subscription_count():
        time.sleep(0.01)
    for number in range(COUNT):
        publish(publisher, topic, f"{topic} {number}" * (number % 4))
        time.sleep(0.002)


def main() -> None:
    rclpy.init(domain_id=int(sys.argv[1]))
    node = rclpy.create_node("talker")
    executor = rclpy.executors.SingleThreadedExecutor()
    executor.add_node(node)
    threading.Thread(target=executor.spin, daemon=True).start()
    policies = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    latched = node.create_publisher(String, "/latched", policies)
    publish(latched, "/latched", "once")
    sys.stdin.readline()
    for topic in ("/chat", "/late"):
        publish_all(node, topic)
    print(json.dumps(sent), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
