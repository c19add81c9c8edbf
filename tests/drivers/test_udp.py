"""Datagrams from loopback, in batches, with stamps and the kernel's account of losses."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from drivers._devices.udp import UdpReceiver, cap_warning
from recorder.contract.errors import DeviceError


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


def test_datagrams_and_their_arrival(sender: socket.socket) -> None:
    with UdpReceiver("127.0.0.1", 0, 1 << 20, 1.0, packet_bytes=2048, batch=8) as receiver:
        sent = [bytes([k]) * (k + 1) for k in range(20)]
        before_ns = time.monotonic_ns()
        for data in sent:
            sender.sendto(data, ("127.0.0.1", receiver.port))
        after_ns = time.monotonic_ns()
        time.sleep(0.05)  # stamps are the kernel's, not of when they were fetched
        packets = receiver.drain()
        assert [packet.data for packet in packets] == sent
        assert {packet.source for packet in packets} == {bytes([127, 0, 0, 1])}
        stamps = [packet.t_ns for packet in packets]
        assert stamps == sorted(stamps)
        assert before_ns - 10**6 <= stamps[0] and stamps[-1] <= after_ns + 10**7
        assert receiver.drain(0.0) == [] and receiver.overflow == 0


def test_batches_say_when_there_is_more(sender: socket.socket) -> None:
    with UdpReceiver("", 0, 1 << 20, 1.0, batch=4) as receiver:
        for k in range(6):
            sender.sendto(bytes([k]), ("127.0.0.1", receiver.port))
        first, second = receiver.receive(), receiver.receive()
        assert (len(first), first.more, len(second), second.more) == (4, True, 2, False)


def test_a_datagram_that_is_too_long_is_cut(sender: socket.socket) -> None:
    with UdpReceiver("127.0.0.1", 0, 1 << 20, 1.0, packet_bytes=10) as receiver:
        sender.sendto(b"x" * 100, ("127.0.0.1", receiver.port))
        sender.sendto(b"", ("127.0.0.1", receiver.port))
        assert [packet.data for packet in receiver.drain()] == [b"x" * 10, b""]


def test_what_the_kernel_throws_away_is_counted(sender: socket.socket) -> None:
    with UdpReceiver("127.0.0.1", 0, 1 << 14, 1.0, force=False) as receiver:
        for _ in range(500):
            sender.sendto(bytes(1400), ("127.0.0.1", receiver.port))
        count = len(receiver.drain())
        sender.sendto(b"last", ("127.0.0.1", receiver.port))
        count += len(receiver.drain())
        assert receiver.overflow > 100 and count + receiver.overflow == 501


def test_ipv6_and_multicast() -> None:
    with (
        UdpReceiver("::1", 0, 1 << 16, 1.0) as receiver,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(b"six", ("::1", receiver.port))
        (packet,) = receiver.drain()
        assert (packet.data, packet.source) == (b"six", socket.inet_pton(socket.AF_INET6, "::1"))
    with UdpReceiver("239.7.5.3", 0, 1 << 16, 0.0) as receiver:
        assert receiver.port > 0


def test_a_buffer_that_is_capped_is_told() -> None:
    with UdpReceiver("127.0.0.1", 0, 1 << 40, 0.0, force=False) as receiver:
        warning = cap_warning(receiver, "lidar") or ""
    assert warning.startswith("lidar: the kernel gives UDP port")
    assert "sudo sysctl -w net.core.rmem_max=" in warning
    with UdpReceiver("127.0.0.1", 0, 1 << 14, 0.0) as receiver:
        assert cap_warning(receiver, "lidar") is None


def test_what_cannot_be_bound_is_named() -> None:
    with (
        UdpReceiver("127.0.0.1", 0, 1 << 14, 0.0) as receiver,
        pytest.raises(DeviceError, match=rf"UDP 127\.0\.0\.1:{receiver.port}: cannot be"),
    ):
        UdpReceiver("127.0.0.1", receiver.port, 1 << 14, 0.0)
    with pytest.raises(DeviceError, match="UDP no such host:1: cannot be bound"):
        UdpReceiver("no such host", 1, 1 << 14, 0.0)
