"""Publishers of zenoh-ros2-sdk: ``python zenoh_node.py DOMAIN ROUTER_PORT COUNT``.

After a line on stdin, and when both have subscribers, they publish ``/chat``
(``std_msgs/msg/String``) and ``/imu`` (``sensor_msgs/msg/Imu``), print JSON with what was sent, and
stay until stdin ends.  Definitions, hashes and
serialization are those of rosbags.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

from rosbags.typesys import Stores, get_typestore
from zenoh_ros2_sdk.publisher import ROS2Publisher

STRING, IMU = "std_msgs/msg/String", "sensor_msgs/msg/Imu"
STORE = get_typestore(Stores.ROS2_HUMBLE)


def open_publisher(topic: str, kind: str) -> Any:
    text = STORE.generate_msgdef(kind, ros_version=2)[0]
    domain, port = int(sys.argv[1]), int(sys.argv[2])
    return ROS2Publisher(
        topic,
        kind,
        msg_definition=text,
        domain_id=domain,
        router_port=port,
        type_hash=STORE.hash_rihs01(kind),
    )


def make_imu(publisher: Any, number: int) -> dict[str, Any]:
    import numpy as np

    types = publisher.session_mgr.store.types
    vector, unknown = types["geometry_msgs/msg/Vector3"], np.zeros(9)
    stamp = types["builtin_interfaces/msg/Time"](sec=1_700_000_000 + number, nanosec=number)
    return {
        "header": types["std_msgs/msg/Header"](stamp=stamp, frame_id="imu"),
        "orientation": types["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0),
        "orientation_covariance": unknown,
        "angular_velocity": vector(x=0.25 * number, y=0.0, z=-1.0),
        "angular_velocity_covariance": unknown,
        "linear_acceleration": vector(x=float(number), y=0.5, z=9.75),
        "linear_acceleration_covariance": unknown,
    }


def main() -> None:
    chat, imu = open_publisher("/chat", STRING), open_publisher("/imu", IMU)
    sys.stdin.readline()
    for publisher in (chat, imu):
        while not publisher.pub.matching_status.matching:
            time.sleep(0.01)
    digests, accelerations = [], []
    for number in range(int(sys.argv[3])):
        text = f"message {number}" * (number % 4)
        message = chat.msg_class(data=text)
        data = bytes(chat.session_mgr.store.serialize_cdr(message, STRING))
        digests.append(hashlib.sha256(data).hexdigest())
        chat.publish(data=text)
        values = make_imu(imu, number)
        imu.publish(**values)
        accelerations.append(values["linear_acceleration"].x)
        time.sleep(0.005)
    print(json.dumps({"chat": digests, "imu": accelerations}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
