"""Publisher of clouds by rclpy: ``python ros2_feed.py DOMAIN TOPIC RATE_HZ FILE...``.

Each file is a PointCloud2 in CDR.  The program publishes them in turns, reliably and with the time
in their header, until its input ends.  It prints ``ready`` when it begins.
"""

import itertools
import select
import struct
import sys
import time
from pathlib import Path

import rclpy
from rclpy.qos import QoSProfile
from sensor_msgs.msg import PointCloud2

_DEPTH = 10
_STAMP_AT = 4  # behind the encapsulation


def main() -> None:
    domain, topic, rate_hz, *files = sys.argv[1:]
    clouds = [bytearray(Path(file).read_bytes()) for file in files]
    rclpy.init(domain_id=int(domain))
    node = rclpy.create_node("lidar")
    publisher = node.create_publisher(PointCloud2, topic, QoSProfile(depth=_DEPTH))
    print("ready", flush=True)
    begin_s = time.monotonic()
    for number in itertools.count():
        wait_s = begin_s + number / float(rate_hz) - time.monotonic()
        if select.select([sys.stdin], [], [], max(0.0, wait_s))[0]:
            return
        cloud = clouds[number % len(clouds)]
        struct.pack_into("<iI", cloud, _STAMP_AT, *divmod(time.time_ns(), 1_000_000_000))
        publisher.publish(bytes(cloud))


if __name__ == "__main__":
    main()
