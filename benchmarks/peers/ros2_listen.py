"""Subscriber by rclpy alone: ``python ros2_listen.py DOMAIN TOPIC SECONDS``.

It receives the serialized messages of a topic and drops them.  From the first message on it counts
for so many seconds, then prints a JSON object: ``messages``, and ``cpu``, CPU seconds per second.
"""

import json
import sys
import time

import rclpy
from rclpy.qos import QoSProfile
from sensor_msgs.msg import PointCloud2

_DEPTH = 60


def main() -> None:
    domain, topic, seconds = sys.argv[1:]
    rclpy.init(domain_id=int(domain))
    node = rclpy.create_node("listener")
    counted = []

    def take(data: bytes) -> None:
        counted.append(len(data))

    node.create_subscription(PointCloud2, topic, take, QoSProfile(depth=_DEPTH), raw=True)
    while not counted:
        rclpy.spin_once(node)
    counted.clear()
    begin_s, cpu_s = time.monotonic(), time.process_time()
    while (passed_s := time.monotonic() - begin_s) < float(seconds):
        rclpy.spin_once(node, timeout_sec=0.1)
    cpu = (time.process_time() - cpu_s) / passed_s
    print(json.dumps({"messages": len(counted), "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
