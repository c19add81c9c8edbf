"""Captures of an Ouster whose packets are damaged, cut, or without an IP fragment.

Packets and their CRC-64 are ouster-sdk's (`frame_to_packets`, `calculate_crc`).  A capture without
the affected packets says what must be recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item, Lost, Sample
from drivers.ouster.played import PcapSource
from recorder.common.errors import SourceError
from tests.drivers.ouster.rig import (
    COLUMNS,
    PACKETS,
    PER_PACKET,
    T0_NS,
    Packets,
    assert_same_items,
    capture,
    driver_for,
    flat,
    imu_packet,
    make_info,
    ouster_messages,
    play,
    samples,
    write,
)
from tests.formats.bags.kit import write_mcap
from tests.formats.pcap.test_capture_losses import SECTION, enhanced, interface, pcap, simple
from tests.formats.pcap.test_datagrams import ethernet, ipv4, udp
from tests.support import devices
from tests.support.devices import opened

INFO = make_info()
SWEEPS = flat(capture(INFO, range(3)))  # PACKETS of each of three sweeps


def damaged(packets: Packets, *indices: int, at: int = 100) -> Packets:
    """The packets, with a bit changed in some."""
    made = list(packets)
    for n in indices:
        t_ns, port, data = made[n]
        made[n] = t_ns, port, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    return made


def played(path: Path) -> list[Item]:
    return play(driver_for("pcap", path))[1]


def from_pcap(folder: Path, packets: Packets) -> list[Item]:
    return played(write(folder, INFO, packets))


def from_mcap(folder: Path, packets: Packets) -> list[Item]:
    path = write_mcap(folder / "a.mcap", ouster_messages(INFO, packets))
    return play(driver_for("mcap", path))[1]


def test_a_damaged_packet_explains_no_hole_of_a_later_sweep(tmp_path: Path) -> None:
    """Packets twice and damaged once lack nothing; what later sweeps lack is not theirs."""
    sweeps = flat(capture(INFO, range(5)))
    again = [(t_ns + 1, port, data) for t_ns, port, data in damaged(sweeps[:2], 0, 1)]
    left = [p for n, p in enumerate(sweeps) if n not in (3 * PACKETS + 2, 3 * PACKETS + 3)]
    items = from_pcap(tmp_path, [*left[:1], again[0], left[1], again[1], *left[2:]])
    counted = [values["incomplete"] for values in devices.states(items) if "incomplete" in values]
    assert counted == [{"device": {"samples": 1, "parts": 2 * PER_PACKET}}]


@pytest.mark.parametrize("play_from", [from_pcap, from_mcap])
@pytest.mark.parametrize("index", [0, PACKETS + 5, 2 * PACKETS - 1])
def test_a_damaged_packet_is_not_used(
    tmp_path: Path, play_from: Callable[[Path, Packets], list[Item]], index: int
) -> None:
    items = play_from(tmp_path, damaged(SWEEPS, index))
    wanted = play_from(tmp_path, [*SWEEPS[:index], *SWEEPS[index + 1 :]])
    assert_same_items(devices.samples(items), devices.samples(wanted))
    (state,) = devices.states(items)
    # A first sweep may begin late: its first packet is no loss of packets.
    assert (state["packets_corrupt"], state["packets_missing"]) == (1, int(index > 0))
    assert (state["columns_missing"], state["frame_id"]) == (PER_PACKET, index // PACKETS)


@pytest.mark.parametrize("share", [0, 0.5, 0.9])
def test_damage_anywhere_is_found(tmp_path: Path, share: float) -> None:
    """Also in the header.  A damaged serial number makes it another sensor's packet."""
    for at in range(round(len(SWEEPS[0][2]) * share), len(SWEEPS[0][2]), 301):
        (state,) = devices.states(from_pcap(tmp_path, damaged(SWEEPS, 9, at=at)))
        assert (state["packets_missing"], state["columns_missing"]) == (1, PER_PACKET)


def test_whole_sweeps_that_are_damaged_are_lost(tmp_path: Path) -> None:
    middle = from_pcap(tmp_path, damaged(SWEEPS, *range(PACKETS, 2 * PACKETS)))
    lost = [item for item in middle if isinstance(item, Lost)]
    assert [(item.cause, item.count) for item in lost] == [("corrupt", 1)]
    assert [state["packets_corrupt"] for state in devices.states(middle)] == [PACKETS]
    end = from_pcap(tmp_path, damaged(SWEEPS, *range(PACKETS, 3 * PACKETS)))
    lost = [item for item in end if isinstance(item, Lost)]
    assert [(item.cause, item.count, item.estimate) for item in lost] == [("corrupt", None, 2)]
    assert sum(s["packets_corrupt"] for s in devices.states(end)) == 2 * PACKETS


def test_firmware_that_sends_another_value_is_believed(tmp_path: Path) -> None:
    """Firmware 2.3 sends a constant."""
    packets = [(t_ns, port, data[:-8] + b"\xde" * 8) for t_ns, port, data in SWEEPS]
    assert_same_items(from_pcap(tmp_path, packets), from_pcap(tmp_path, SWEEPS))
    few = packets[:20]  # fewer than those among which a right checksum is looked for
    assert len(samples(from_pcap(tmp_path, few))) == 3


def test_few_packets_are_looked_at_for_a_first_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked at is kept in memory, in a capture of any length."""
    monkeypatch.setattr("drivers.ouster.played._HEAD", 4)
    packets = [(t_ns, port, data[:-8] + b"\xde" * 8) for t_ns, port, data in SWEEPS]
    with opened(PcapSource(driver_for("pcap", write(tmp_path, INFO, packets)).sensor)) as source:
        taken: list[Any] = []

        def counted() -> Iterator[Any]:
            for packet in source._packets():
                taken.append(packet)
                yield packet

        found = source._find_proof(counted())
        assert next(found) is taken[0] and len(taken) == 4
        assert len(list(found)) == len(packets) - 1


def test_a_packet_that_came_twice_is_used_once(tmp_path: Path) -> None:
    twice = [packet for packet in SWEEPS for _ in range(2)]
    items = from_pcap(tmp_path, twice)
    assert_same_items(devices.samples(items), devices.samples(from_pcap(tmp_path, SWEEPS)))
    assert sum(s["packets_repeated"] for s in devices.states(items)) == 3 * PACKETS


def test_a_repetition_does_not_replace_what_came_first(tmp_path: Path) -> None:
    """Firmware without checksums; the second of two packets is damaged on its way."""
    first = [(t_ns, port, data[:-8] + b"\xde" * 8) for t_ns, port, data in SWEEPS]
    second = damaged(first, *range(len(first)))
    both = [packet for pair in zip(first, second, strict=True) for packet in pair]
    assert_same_items(
        devices.samples(from_pcap(tmp_path, both)), devices.samples(from_pcap(tmp_path, first))
    )


def framed(packets: Packets, cut: set[int], size: int = 100) -> list[tuple[int, bytes, int]]:
    """Frames of a capture, some of them cut by a snap length."""
    frames = [(t_ns, ethernet(ipv4(udp(data, port)))) for t_ns, port, data in packets]
    return [
        (t_ns, frame[:size] if n in cut else frame, len(frame))
        for n, (t_ns, frame) in enumerate(frames)
    ]


def test_cut_packets_are_missing_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path, INFO, SWEEPS)
    cut = {PACKETS + 1, PACKETS + 2}
    path.write_bytes(pcap(framed(SWEEPS, cut)))
    items = played(path)
    whole = [packet for n, packet in enumerate(SWEEPS) if n not in cut]
    assert_same_items(devices.samples(items), devices.samples(from_pcap(tmp_path, whole)))
    (state,) = devices.states(items)
    assert (state["packets_snaplen"], state["packets_missing"]) == (2, 2)


def test_sweeps_whose_packets_are_all_cut_are_lost_by_that(tmp_path: Path) -> None:
    path = write(tmp_path, INFO, SWEEPS)
    path.write_bytes(pcap(framed(SWEEPS, set(range(PACKETS, 2 * PACKETS)))))
    lost = [item for item in played(path) if isinstance(item, Lost)]
    assert [(item.cause, item.count) for item in lost] == [("snaplen", 1)]
    path.write_bytes(pcap(framed(SWEEPS, set(range(PACKETS, 3 * PACKETS)))))
    lost = [item for item in played(path) if isinstance(item, Lost)]
    assert [(item.cause, item.count, item.estimate) for item in lost] == [("snaplen", None, 2)]
    path.write_bytes(pcap(framed(SWEEPS, set(range(3 * PACKETS)))))
    with pytest.raises(SourceError, match=r"24 x datagrams to port 7502 only in part \(snaplen\)"):
        played(path)


def test_fragments_of_two_packets_are_not_joined(tmp_path: Path) -> None:
    """The identification comes again after ten packets, more than 64 fragments later."""
    frames = []
    for n, (t_ns, port, data) in enumerate(SWEEPS):
        whole = udp(data, port)
        size = len(whole) // 64 * 8
        parts = [(at, whole[at : at + size]) for at in range(0, len(whole), size)]
        lost = {9: 1, 10: 0, 13: len(parts) - 1}.get(n)
        for k, (at, part) in enumerate(parts):
            if k != lost:
                frame = ethernet(ipv4(part, n % 10, at, k < len(parts) - 1))
                frames.append((t_ns, frame, len(frame)))
    path = write(tmp_path, INFO, SWEEPS)
    path.write_bytes(pcap(frames))
    items = played(path)
    wanted = [packet for n, packet in enumerate(SWEEPS) if n not in (9, 10, 13)]
    assert_same_items(devices.samples(items), devices.samples(from_pcap(tmp_path, wanted)))
    found = devices.states(items)
    assert sum(state.get("packets_fragments", 0) for state in found) == 3
    assert [state.get("packets_missing") for state in found] == [3, None]


def test_packets_without_a_stamp_between_others_get_the_stamp_before(tmp_path: Path) -> None:
    path = write(tmp_path, INFO, SWEEPS)
    wanted = devices.samples(played(path))
    data = SECTION + interface()
    for n, (t_ns, port, payload) in enumerate(SWEEPS):
        frame = ethernet(ipv4(udp(payload, port)))
        data += simple(frame) if n == 3 else enhanced(frame, ticks=t_ns // 1000)
    path.write_bytes(data)
    items = played(path)
    assert devices.states(items) == [{"datagrams_without_stamp": 1}]
    assert not [item for item in items if isinstance(item, Lost)]
    for got, want in zip(devices.samples(items), wanted, strict=True):
        assert isinstance(got, Sample) and isinstance(want, Sample)
        np.testing.assert_array_equal(got.t_ns, want.t_ns)
        np.testing.assert_array_equal(np.asarray(got.data["rng"]), np.asarray(want.data["rng"]))


def test_what_cannot_be_read_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, INFO, SWEEPS)
    data = SECTION + interface() + interface(link=127)
    for t_ns, port, payload in SWEEPS:
        data += enhanced(ethernet(ipv4(udp(payload, port))), ticks=t_ns // 1000)
    path.write_bytes(data + enhanced(bytes(50), number=1))
    items = played(path)
    assert len(samples(items)) == 3
    assert devices.states(items) == [{"not_read": {"packets of link type 127": 1}}]
    assert "1 packets of link type 127 are not read" in capsys.readouterr().err


def test_a_cut_imu_packet_is_a_gap_of_the_imu(tmp_path: Path) -> None:
    imu = [imu_packet(T0_NS + n * 10_000_000, n * 10_000_000) for n in range(1, 30)]
    packets = sorted([*SWEEPS, *imu], key=lambda packet: packet[0])
    cut = {packets.index(imu[10])}
    path = write(tmp_path, INFO, packets)
    path.write_bytes(pcap(framed(packets, cut, 60)))
    items = played(path)
    lost = [(item.stream, item.count) for item in items if isinstance(item, Lost)]
    assert lost == [("lidar_imu", 1)] and len(samples(items, "lidar_imu")) == 28
    assert devices.states(items) == []
    assert all(np.count_nonzero(s.data["t_col"]) == COLUMNS for s in samples(items))
