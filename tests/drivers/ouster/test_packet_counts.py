"""What is counted as missing, repeated or damaged among an Ouster's packets."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from ouster.sdk import core

from drivers.ouster.packets import Checksums, ImuGaps, Repeats, Sorter, crc64
from tests.drivers.ouster.rig import lidar_packets, make_frame, make_info

STEP = 10_000_000


def feed(gaps: ImuGaps, numbers: list[int]) -> tuple[list[int], int]:
    """Those that are new, and how many are lost in the end."""
    fresh, lost = [], 0
    for n in numbers:
        if gaps.take(n * STEP, n * STEP, n * STEP, 1):
            fresh.append(n)
        lost += gaps.lost()
    return fresh, lost + gaps.lost(at_once=True)


@pytest.mark.parametrize(
    ("numbers", "lost"),
    [
        (list(range(20)), 0),
        ([0, 1, 4, 5, 6, 7, 8, 9], 2),
        ([0, 1, 3, 2, 4, 5, 6, 7, 8], 0),  # overtaken
        ([0, 1, 4, 3, 5, 6, 7, 8, 9], 1),  # one of two came after all
        ([0, 1, 4, 3, 3, 5, 6, 7, 8, 9], 1),  # and that one twice
        ([0, 1, 2, 3, 9], 5),  # at the end
        ([5, 6, 7, 7, 8, 8], 0),  # repeated
        ([5, 6, 2_000_000, 2_000_001], 0),  # nobody counts a pause of hours
        ([1000, 1001, 3, 4, 5], 0),  # the clock was put back
    ],
)
def test_gaps_of_the_imu(numbers: list[int], lost: int) -> None:
    fresh, counted = feed(ImuGaps(100.0), numbers)
    assert counted == lost
    assert sorted(set(numbers)) == sorted(fresh)


def test_any_loss_of_packets_with_an_uneven_clock() -> None:
    rng = random.Random(4)
    gaps = ImuGaps(100.0)
    lost = counted = 0
    for n in range(2000):
        if 0 < n < 1999 and rng.random() < 0.2:
            lost += 1
            continue
        t_ns = n * STEP + rng.randrange(-STEP // 5, STEP // 5)
        assert gaps.take(n * STEP, t_ns, t_ns, 1)
        counted += gaps.lost()
    assert counted + gaps.lost(at_once=True) == lost


def test_packets_of_several_measurements() -> None:
    gaps = ImuGaps(100.0)
    for packet in (0, 1, 4, 3):
        assert gaps.take(packet * 4 * STEP, packet * 4 * STEP, (packet * 4 + 3) * STEP, 4)
    assert gaps.lost(at_once=True) == 4


def test_a_restart_is_no_gap() -> None:
    gaps = ImuGaps(100.0)
    gaps.take(STEP, STEP, STEP, 1)
    gaps.take(50 * STEP, 50 * STEP, 50 * STEP, 1)
    gaps.restart()
    gaps.take(500 * STEP, 500 * STEP, 500 * STEP, 1)
    assert gaps.lost(at_once=True) == 0


def test_a_clock_that_is_set_is_no_gap() -> None:
    gaps = ImuGaps(100.0)
    gaps.take(STEP, STEP, STEP, 1)
    gaps.take(2 * STEP, 252 * STEP, 252 * STEP, 1)
    gaps.take(5 * STEP, 255 * STEP, 255 * STEP, 1)
    assert gaps.lost(at_once=True) == 2


def sdk_packets(info: Any, frame_id: int) -> list[Any]:
    sorter = Sorter(core, info, 7502, 7503)
    packets = lidar_packets(info, make_frame(info, frame_id))
    return [sorter.packet(port, np.frombuffer(data, np.uint8)) for _, port, data in packets]


def test_repeated_packets() -> None:
    info = make_info()
    repeats = Repeats(core, core.PacketFormat(info))
    first, second = sdk_packets(info, 7), sdk_packets(info, 8)
    assert not any(repeats.is_repeated(packet) for packet in [*first, *second])
    assert all(repeats.is_repeated(packet) for packet in [*first, *second])
    for n in range(9, 200):  # what is remembered does not grow
        assert not any(repeats.is_repeated(packet) for packet in sdk_packets(info, n)[:1])
    assert len(repeats._seen) < 10


@pytest.mark.parametrize("profile", ["RNG15_RFL8_NIR8", "RNG19_RFL8_SIG16_NIR16_DUAL"])
def test_checksums_find_every_bit(profile: str) -> None:
    info = make_info(profile)
    packets = sdk_packets(info, 7)
    assert crc64(packets[0]) == packets[0].calculate_crc() == packets[0].crc()
    checksums = Checksums(core, core.PacketFormat(info), "LEGACY")
    packets[1].buf[100] ^= 1
    assert checksums.is_good(packets[1])  # nobody knows yet that there are checksums
    assert checksums.is_good(packets[0])
    assert not checksums.is_good(packets[1])
    packets[1].buf[100] ^= 1
    for bit in range(0, 8 * len(packets[1].buf), 997):
        packets[1].buf[bit // 8] ^= 1 << bit % 8
        assert not checksums.is_good(packets[1])
        packets[1].buf[bit // 8] ^= 1 << bit % 8
    assert checksums.is_good(packets[1])


def test_firmware_without_checksums_is_believed() -> None:
    info = make_info()
    checksums = Checksums(core, core.PacketFormat(info), "LEGACY")
    for packet in sdk_packets(info, 7):
        packet.buf[-8:] = 0xDE
        assert checksums.is_good(packet)
    legacy = make_info("LEGACY")
    checksums = Checksums(core, core.PacketFormat(legacy), "LEGACY")
    assert all(checksums.is_good(packet) for packet in sdk_packets(legacy, 7))


@pytest.mark.parametrize(("beyond_ns", "lost"), [(0, 99), (1, 0)])
def test_a_gap_that_is_a_second_longer_than_the_wait_for_it_is_a_step(
    beyond_ns: int, lost: int
) -> None:
    """Only what is more than a second is a step of the clock, and no loss."""
    gaps = ImuGaps(100.0)
    second = 1_000_000_000
    assert gaps.take(0, 0, 0, 1)
    assert gaps.take(5000, second + 5000 + beyond_ns, second + 5000 + beyond_ns, 1)
    assert gaps.lost(at_once=True) == lost
