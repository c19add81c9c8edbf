"""Datagrams from loopback, in batches, with stamps and the kernel's account of losses."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from drivers.kit import udp_socket
from drivers.kit.udp_socket import UdpReceiver, make_cap_warning
from recorder.common.errors import DeviceError

S = 1_000_000_000


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


class Packet(NamedTuple):
    """One datagram: its arrival, its bytes, and its sender's address."""

    t_ns: int
    data: bytes
    source: bytes


def drain(receiver: UdpReceiver, timeout_s: float | None = None) -> list[Packet]:
    """All waiting datagrams."""
    packets: list[Packet] = []
    more = True
    while more:
        batch = receiver.receive(0.0 if packets else timeout_s)
        rows = zip(batch.t_ns, batch.data, batch.sizes, strict=True)
        packets += [
            Packet(int(t_ns), row[:size].tobytes(), batch.source(k))
            for k, (t_ns, row, size) in enumerate(rows)
        ]
        more = batch.more
    return packets


def test_datagrams_and_their_arrival(
    sender: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamps are the kernel's: also where the datagrams are fetched three seconds later."""
    offset_ns = udp_socket._monotonic_offset_ns()
    with UdpReceiver("127.0.0.1", 0, 1 << 20, 1.0, packet_bytes=2048, batch=8) as receiver:
        sent = [bytes([k]) * (k + 1) for k in range(20)]
        before_ns = time.monotonic_ns()
        for data in sent:
            sender.sendto(data, ("127.0.0.1", receiver.port))
        late = SimpleNamespace(monotonic_ns=lambda: time.monotonic_ns() + 3 * 10**9)
        monkeypatch.setattr(udp_socket, "time", late)
        monkeypatch.setattr(udp_socket, "_monotonic_offset_ns", lambda: offset_ns)
        receiver._offset_ns = offset_ns
        packets: list[Packet] = []
        while len(packets) < len(sent):
            packets += drain(receiver)
        after_ns = time.monotonic_ns()
        assert [packet.data for packet in packets] == sent
        assert {packet.source for packet in packets} == {bytes([127, 0, 0, 1])}
        stamps = [packet.t_ns for packet in packets]
        assert stamps == sorted(stamps)
        assert before_ns - 10**6 <= stamps[0] and stamps[-1] <= after_ns + 10**6
        assert drain(receiver, 0.0) == [] and receiver.overflow == 0


def test_stamps_do_not_go_back_with_a_clock_that_is_set_back_a_little(
    sender: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with UdpReceiver("127.0.0.1", 0, 1 << 20, 1.0, batch=2) as receiver:
        for k in range(4):
            sender.sendto(bytes([k]), ("127.0.0.1", receiver.port))
        true_ns = receiver._offset_ns
        offsets = iter([true_ns, true_ns - 500_000])
        monkeypatch.setattr(udp_socket, "_monotonic_offset_ns", lambda: next(offsets))
        first, second = receiver.receive(), receiver.receive()
        control = receiver._control[:2]
        kernel = control["s"] * 1_000_000_000 + control["ns"] + true_ns - 500_000
        assert first.t_ns[0] <= first.t_ns[1]
        # Later only where the machine took longer to send than the clock was set back.
        assert second.t_ns.tolist() == np.maximum(kernel, first.t_ns[1]).tolist()


def test_clocks_that_were_read_with_a_pause_in_between_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = iter([0, 1_000, 400_000_000, 400_000_000, 400_001_000, 400_002_000])
    clocks = SimpleNamespace(monotonic_ns=lambda: next(readings), time_ns=lambda: next(readings))
    monkeypatch.setattr(udp_socket, "time", clocks)
    assert udp_socket._monotonic_offset_ns() == 0 and next(readings, None) is None


@pytest.mark.parametrize(("took_ns", "again"), [(20_000, False), (20_001, True), (30_000, True)])
def test_readings_of_the_clocks_that_took_longer_than_20_us_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, took_ns: int, again: bool
) -> None:
    slow, quick = [1000, 400, 1000 + took_ns], [500_000, 100_400, 500_800]
    readings = iter(slow + quick)
    clocks = SimpleNamespace(monotonic_ns=lambda: next(readings), time_ns=lambda: next(readings))
    monkeypatch.setattr(udp_socket, "time", clocks)
    assert udp_socket._monotonic_offset_ns() == (400_000 if again else 600 + took_ns // 2)


def test_clocks_that_are_never_read_at_once_have_their_best_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = [*range(10**8, 10**8 + 30), 10**6]
    triples = [(0, 77 + pause // 2, pause) for pause in [*pauses[:10], 10**6, *pauses[10:20]]]
    readings = iter([t for triple in triples for t in triple])
    clocks = SimpleNamespace(monotonic_ns=lambda: next(readings), time_ns=lambda: next(readings))
    monkeypatch.setattr(udp_socket, "time", clocks)
    assert udp_socket._monotonic_offset_ns() == -77


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
        assert [packet.data for packet in drain(receiver)] == [b"x" * 10, b""]


def test_ipv6_and_multicast() -> None:
    with (
        UdpReceiver("::1", 0, 1 << 16, 1.0) as receiver,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(b"six", ("::1", receiver.port))
        (packet,) = drain(receiver)
        assert (packet.data, packet.source) == (b"six", socket.inet_pton(socket.AF_INET6, "::1"))
    with UdpReceiver("239.7.5.3", 0, 1 << 16, 0.0) as receiver:
        assert receiver.port > 0


def test_an_ipv4_sender_is_the_same_at_a_socket_of_both(sender: socket.socket) -> None:
    with (
        UdpReceiver("::", 0, 1 << 16, 1.0) as receiver,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other,
    ):
        sender.sendto(b"four", ("127.0.0.1", receiver.port))
        other.sendto(b"six", ("::1", receiver.port))
        packets = drain(receiver)
    assert [(packet.data, packet.source) for packet in packets] == [
        (b"four", socket.inet_aton("127.0.0.1")),
        (b"six", socket.inet_pton(socket.AF_INET6, "::1")),
    ]


class Kernel:
    """Stands for recvmmsg, and for the two clocks: gives datagrams with the stamps it is told."""

    def __init__(self, receiver: UdpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mono_ns = 500 * S
        self.real_ns = 1_700_000_000 * S
        self._waiting: list[list[tuple[int | None, int | None]]] = []
        self._receiver = receiver
        monkeypatch.setattr(receiver, "_call", self._recvmmsg)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.mono_ns)
        monkeypatch.setattr(time, "time_ns", lambda: self.real_ns)
        receiver._offset_ns = self.mono_ns - self.real_ns

    def pass_ns(self, ns: int) -> None:
        self.mono_ns += ns
        self.real_ns += ns

    def receive(self, *datagrams: tuple[int | None, int | None]) -> list[int]:
        """Arrivals of datagrams with these stamps (CLOCK_REALTIME) and counts of what was lost.

        As differences from now.
        """
        self._waiting.append(list(datagrams))
        return [int(t_ns) - self.mono_ns for t_ns in self._receiver.receive(0.0).t_ns]

    def _recvmmsg(self, fd: int, place: object, batch: int, flags: int, end: object) -> int:
        datagrams = self._waiting.pop(0) if self._waiting else []
        control, sizes = self._receiver._control, self._receiver._headers["control_size"]
        for k, (stamp, lost) in enumerate(datagrams):
            assert lost is None or stamp is not None
            sizes[k] = 0 if stamp is None else 32 if lost is None else 56
            if stamp is not None:
                control["stamp_kind"][k] = 35
                control["s"][k], control["ns"][k] = divmod(stamp, S)
            if lost is not None:
                control["lost_kind"][k], control["lost"][k] = 40, lost
        return len(datagrams)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    with UdpReceiver("127.0.0.1", 0, 1 << 14, 0.0) as receiver:
        yield Kernel(receiver, monkeypatch)


def test_arrivals_are_the_kernels_stamps_on_the_monotonic_clock(kernel: Kernel) -> None:
    for _ in range(2):
        now = kernel.real_ns
        assert kernel.receive((now - 3 * S, None), (now - 7, None), (now, None)) == [-3 * S, -7, 0]
        kernel.pass_ns(5 * S + 1)


def test_stamps_that_cannot_be_are_not_believed(kernel: Kernel) -> None:
    """In the future, or before what a socket can hold: as early as those beside them, or now."""
    now = kernel.real_ns
    assert kernel.receive((now + 1, None), (now - 60 * S, None)) == [0, 0]
    kernel.pass_ns(60 * S)
    now = kernel.real_ns
    assert kernel.receive((None, None), (now - 60 * S + 1, None)) == [-60 * S + 1] * 2
    assert kernel.receive((now - 9, None), (now + 1, None), (now - 5, None)) == [-9, -9, -5]
    assert kernel.receive((now - 5, None), (now - 9, None)) == [-5, -5], "never back"
    assert kernel.receive((None, None)) == [0]


def test_while_the_host_clock_steps_stamps_are_not_believed(kernel: Kernel) -> None:
    for step_ns in (5 * S, -5 * S, 1_000_000, -1_000_000):
        stamp = kernel.real_ns - 100
        kernel.real_ns += step_ns
        assert kernel.receive((stamp, None)) == [0]
        kernel.pass_ns(200)
        assert kernel.receive((kernel.real_ns - 100, None)) == [-100], "and then again"
    kernel.real_ns += 999_999
    kernel.pass_ns(200)
    assert kernel.receive((kernel.real_ns - 100, None)) == [-100], "it is only slewed"


def test_losses_add_up_over_the_wrap_of_the_kernels_count(kernel: Kernel) -> None:
    now = kernel.real_ns
    reported = []
    for lost in (None, 3, 3, 10, 0xFFFFFFF0, 5, 7):
        kernel.receive((now, None), (now, lost))
        reported.append(kernel._receiver.overflow)
    assert reported == [0, 3, 3, 10, 0xFFFFFFF0, 0x100000005, 0x100000007]
    kernel.receive((now, 8), (now, 9), (now, None))
    assert kernel._receiver.overflow == 0x100000009, "the last that has one"


def test_what_the_kernel_throws_away_is_counted(sender: socket.socket) -> None:
    with UdpReceiver("127.0.0.1", 0, 1 << 14, 1.0, force=False) as receiver:
        came = 0
        for turn in range(1, 4):
            for _ in range(300):
                sender.sendto(bytes(1400), ("127.0.0.1", receiver.port))
            came += len(drain(receiver))
            sender.sendto(b"last", ("127.0.0.1", receiver.port))
            came += len(drain(receiver))
            assert came + receiver.overflow == 301 * turn and receiver.overflow > 100 * turn


def test_the_buffer_is_what_was_asked_for_not_what_the_kernel_makes_of_it() -> None:
    """Linux doubles what is asked for, and says the double (socket(7))."""
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    with UdpReceiver("127.0.0.1", 0, 1 << 15, 0.0, force=False) as receiver:
        assert (receiver.asked_bytes, receiver.granted_bytes) == (1 << 15, 1 << 15)
    with UdpReceiver("127.0.0.1", 0, limit + 1, 0.0, force=False) as receiver:
        assert (receiver.asked_bytes, receiver.granted_bytes) == (limit + 1, limit)
        warning = make_cap_warning(receiver, "lidar") or ""
    assert warning.startswith("lidar: the kernel gives UDP port")
    assert "sudo sysctl -w net.core.rmem_max=" in warning
    with UdpReceiver("127.0.0.1", 0, limit, 0.0, force=False) as receiver:
        assert receiver.granted_bytes == limit and make_cap_warning(receiver, "lidar") is None


def test_what_cannot_be_bound_is_named() -> None:
    with (
        UdpReceiver("127.0.0.1", 0, 1 << 14, 0.0) as receiver,
        pytest.raises(DeviceError, match=rf"UDP 127\.0\.0\.1:{receiver.port}: cannot be"),
    ):
        UdpReceiver("127.0.0.1", receiver.port, 1 << 14, 0.0)
    with pytest.raises(DeviceError, match="UDP no such host:1: cannot be bound"):
        UdpReceiver("no such host", 1, 1 << 14, 0.0)
