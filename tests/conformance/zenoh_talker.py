"""Publishers over Zenoh of other libraries: ``python zenoh_talker.py DOMAIN ROUTER_PORT``.

It reads a JSON object a line from stdin and answers each with one on stdout.  ``sdk`` is
zenoh-ros2-sdk; ``pamoja`` has keys of pamoja-ros2 and is published by eclipse-zenoh; ``edgefirst``
publishes as a device of EdgeFirst does.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from typing import Any

import xxhash
import zenoh
import zenoh.ext
from pamoja.ros2 import dds_type_name, entity_key, percent_mangle
from zenoh_ros2_sdk.publisher import ROS2Publisher

KIND = "std_msgs/msg/String"
HASH = "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"


def make_message(number: int) -> bytes:
    text = f"message {number}".encode() + b"\0"
    return b"\0\1\0\0" + struct.pack("<I", len(text)) + text


class Talker:
    """Publishers by name; a listening port makes this process a peer to connect to."""

    def __init__(self, domain: int, port: int, listens: int = 0) -> None:
        self.domain, self.port = domain, port
        config = zenoh.Config()
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("timestamping/enabled", "true")  # as rmw_zenoh has it
        if listens:
            config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{listens}"]')
        else:
            config.insert_json5("connect/endpoints", f'["tcp/127.0.0.1:{port}"]')
        self.session = zenoh.open(config)
        self.entities = 10
        self.publishers: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}
        self.tokens: dict[str, tuple[Any, bytes]] = {}

    def open(self, name: str, topic: str, library: str, cached: bool = False) -> None:
        self.numbers[name] = 0
        if library == "sdk":
            definition = {"msg_definition": "string data\n", "router_ip": "127.0.0.1"}
            self.publishers[name] = ROS2Publisher(
                topic, KIND, domain_id=self.domain, router_port=self.port, **definition
            )
        elif library == "edgefirst":
            encoding = zenoh.Encoding("application/cdr").with_schema(KIND)
            key = "rt" + topic
            self.publishers[name] = self.session.declare_publisher(key, encoding=encoding)
        else:
            self._open_plain(name, topic, cached)

    def _open_plain(self, name: str, topic: str, cached: bool) -> None:
        key = entity_key(self.domain, topic, KIND, HASH)
        policies = "1:1:1,10:,:,:,," if cached else "1:2:1,10:,:,:,,"
        self.entities += 1
        entity = self.entities
        token = "/".join(
            [
                "@ros2_lv",
                *map(str, (self.domain, self.session.info.zid(), 1, entity)),
                *("MP", "%", "%", "talker", percent_mangle(topic)),
                *(dds_type_name(KIND), HASH, policies),
            ]
        )
        value = xxhash.xxh3_128_intdigest(token.encode())
        gid = struct.pack("<QQ", value & (1 << 64) - 1, value >> 64)
        self.tokens[name] = self.session.liveliness().declare_token(token), gid
        if cached:
            cache = zenoh.ext.CacheConfig(max_samples=1000)
            self.publishers[name] = zenoh.ext.declare_advanced_publisher(
                self.session, key, cache=cache, publisher_detection=True
            )
        else:
            self.publishers[name] = self.session.declare_publisher(key)

    def send(
        self, name: str, count: int, skipped: list[int] | tuple[()] = (), pause_s: float = 0.002
    ) -> list[str]:
        """Send messages; the numbers of `skipped` are counted and not sent."""
        publisher, sent = self.publishers[name], []
        for _ in range(count):
            self.numbers[name] += 1
            number = self.numbers[name]
            if number in skipped:
                continue
            data = make_message(number)
            if isinstance(publisher, ROS2Publisher):
                publisher.sequence_number = number
                publisher.publish(data=f"message {number}")
            elif name in self.tokens:
                gid = self.tokens[name][1]
                attachment = struct.pack("<qqB", number, time.time_ns(), 16) + gid
                publisher.put(data, attachment=attachment)
            else:
                publisher.put(data)
            sent.append(data.hex())
            time.sleep(pause_s)
        return sent

    def match(self, name: str) -> None:
        """Wait until somebody has subscribed."""
        publisher = self.publishers[name]
        inner = publisher.pub if isinstance(publisher, ROS2Publisher) else publisher
        while not inner.matching_status.matching:
            time.sleep(0.005)

    def close(self, name: str) -> None:
        publisher = self.publishers.pop(name)
        publisher.close() if isinstance(publisher, ROS2Publisher) else publisher.undeclare()
        if name in self.tokens:
            self.tokens.pop(name)[0].undeclare()


def main() -> None:
    talker = Talker(*map(int, sys.argv[1:]))
    for line in sys.stdin:
        told = json.loads(line)
        answer = getattr(talker, told.pop("do"))(**told)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
