"""What the tests of the driver for datagrams share: drivers, captures, senders."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from drivers.kit.driver import Item, Sample
from drivers.udp.driver import UdpDriver
from tests.formats.pcap.test_datagrams import ethernet, ipv4, pcap, udp
from tests.support.devices import make_driver, play, read_until

HERE = bytes(10) + b"\xff\xff\x7f\0\0\1"
"""127.0.0.1 as it is recorded."""


driver_for = functools.partial(make_driver, UdpDriver, "lidar")


def played(path: Path, pace: str = "realtime", **options: Any) -> list[Item]:
    """All items of a capture."""
    return play(driver_for("file", path, pace, **options))[1]


def payloads(items: list[Item]) -> list[bytes]:
    return [bytes(p) for i in items if isinstance(i, Sample) for p in i.data["payload"]]


def read_payloads(driver: UdpDriver, count: int) -> list[Item]:
    """Items up to and with the sample that has datagram number `count`."""
    return read_until(driver, lambda items: len(payloads(items)) >= count)


def write_capture(path: Path, datagrams: list[tuple[int, bytes]], tail: bytes = b"") -> Path:
    """A capture of datagrams to ports, all with the same stamp."""
    path.write_bytes(pcap([ethernet(ipv4(udp(data, port))) for port, data in datagrams]) + tail)
    return path
