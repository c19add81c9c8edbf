"""A ROS 2 node of rclpy that publishes what it is told: ``python ros2_talker.py DOMAIN``.

It reads a JSON object a line from stdin and answers each with one on stdout.  Messages are
serialized by rclpy; their SHA-256 are in the answers.  Types that no package has are published
serialized by rosbags (``tf2_msgs``).
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from typing import Any

import rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, Imu

from drivers.kit.topics.ros2_types import make_type

TF = "tf2_msgs/msg/TFMessage"
TF_HASH = "RIHS01_e369d0f05a23ae52508854b66f6aa04437f3449d652e8cbf61d5abe85d020087"


def make_message(kind: str, seed: int, number: int) -> bytes:
    """Return the message `number` of a seed, serialized."""
    rng = random.Random(f"{seed} {number}")
    if kind == TF:
        return make_transform(number)
    message: Any
    if kind == "sensor_msgs/msg/Imu":
        message = Imu()
        message.linear_acceleration.x = float(number)
        message.orientation.w = 1.0
    else:
        message = CompressedImage(format="jpeg", data=rng.randbytes(rng.randrange(1, 1200)))
    message.header.frame_id = f"{seed}/{number}"
    message.header.stamp.sec, message.header.stamp.nanosec = number, seed
    return bytes(serialize_message(message))


def make_transform(number: int) -> bytes:
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    types = store.types
    stamp = types["builtin_interfaces/msg/Time"](sec=number, nanosec=1)
    header = types["std_msgs/msg/Header"](stamp=stamp, frame_id="map")
    place = types["geometry_msgs/msg/Vector3"](x=1.0, y=2.0, z=float(number))
    turn = types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0)
    pose = types["geometry_msgs/msg/Transform"](translation=place, rotation=turn)
    one = types["geometry_msgs/msg/TransformStamped"](
        header=header, child_frame_id="base", transform=pose
    )
    return bytes(store.serialize_cdr(types[TF](transforms=[one]), TF))


class Talker:
    """Publishers by name."""

    def __init__(self, domain: int) -> None:
        rclpy.init(domain_id=domain)
        self.node = rclpy.create_node("talker")
        self.publishers: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        self.sent: dict[str, int] = {}

    def open(self, name: str, topic: str, kind: str, reliable: bool, cached: bool) -> None:
        qos = QoSProfile(
            depth=1000,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if cached else DurabilityPolicy.VOLATILE,
        )
        types = {"sensor_msgs/msg/Imu": Imu, "sensor_msgs/msg/CompressedImage": CompressedImage}
        message_type = make_type(TF, TF_HASH) if kind == TF else types[kind]
        self.publishers[name] = self.node.create_publisher(message_type, topic, qos)
        self.kinds[name], self.sent[name] = kind, 0

    def match(self, name: str) -> None:
        while not self.publishers[name].get_subscription_count():
            time.sleep(0.01)

    def send(self, names: list[str], seeds: list[int], count: int, pause_s: float) -> list[Any]:
        digests: list[list[str]] = [[] for _ in names]
        for _ in range(count):
            for index, name in enumerate(names):
                self.sent[name] += 1
                data = make_message(self.kinds[name], seeds[index], self.sent[name])
                on_wire = data + bytes(-len(data) % 4)  # RTPS sends multiples of four bytes
                digests[index].append(hashlib.sha256(on_wire).hexdigest())
                self.publishers[name].publish(data)
            time.sleep(pause_s)
        return digests

    def close(self, name: str) -> None:
        self.node.destroy_publisher(self.publishers.pop(name))


def main() -> None:
    talker = Talker(int(sys.argv[1]))
    for line in sys.stdin:
        told = json.loads(line)
        answer = getattr(talker, told.pop("do"))(**told)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
