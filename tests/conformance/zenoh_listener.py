"""Subscribers of zenoh-ros2-sdk: ``python zenoh_listener.py DOMAIN ROUTER_PORT TOPICS``.

TOPICS is JSON: by name, the type, its definition, its hash and whether the subscription is
transient local.  It prints a JSON object a message: topic, message as hexadecimal digits, the
number that its attachment has, and the values that the library decodes of strings and times.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from zenoh_ros2_sdk.qos import QosDurability, QosProfile
from zenoh_ros2_sdk.subscriber import ROS2Subscriber


class Listener(ROS2Subscriber):  # type: ignore[misc]
    """A subscriber that also keeps the bytes."""

    def _process_sample(self, sample: Any) -> None:
        self.sample = sample
        super()._process_sample(sample)


def main() -> None:
    domain, port, topics = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    lock = threading.Lock()
    listeners: dict[str, Listener] = {}
    for name, (kind, text, type_hash, latched) in topics.items():

        def take(message: Any, name: str = name) -> None:
            sample = listeners[name].sample
            number = int.from_bytes(sample.attachment.to_bytes()[:8], "little")
            clock = getattr(message, "clock", None)
            decoded = [clock.sec, clock.nanosec] if clock else [getattr(message, "data", None)]
            said = [name, sample.payload.to_bytes().hex(), number, *decoded]
            with lock:
                print(json.dumps(said), flush=True)

        durability = QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE
        listeners[name] = Listener(
            name,
            kind,
            take,
            msg_definition=text,
            domain_id=domain,
            router_port=port,
            type_hash=type_hash,
            qos=QosProfile(durability=durability),
        )
    print(json.dumps(["ready"]), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
