"""A restart of an Ouster: the count of its frames begins anew, and all stays in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ouster.sdk import core

from drivers.kit.driver import Item, Lost, State
from drivers.ouster.frames import Assembly, packet_fields
from tests.drivers.ouster.rig import (
    DEVICE0_NS,
    INIT_ID,
    PACKETS,
    SERIAL,
    SWEEP_NS,
    T0_NS,
    Packets,
    assert_equals_frame,
    driver_for,
    flat,
    imu_packet,
    lidar_packets,
    make_frame,
    make_info,
    play,
    samples,
    write,
)

NUMBERS = (900, 901, 3, 4, 5, 6)


def restarted_after_two(info: Any, count: int) -> list[Packets]:
    return [
        lidar_packets(info, make_frame(info, n, k), INIT_ID + (k >= 2))
        for k, n in enumerate(NUMBERS[:count])
    ]


@pytest.mark.parametrize("profile", ["RNG15_RFL8_NIR8", "LEGACY"])
def test_a_restarted_sensor_goes_on_and_loses_nothing(tmp_path: Path, profile: str) -> None:
    """LEGACY packets have no initialization id: there the ids that stay behind tell."""
    info = make_info(profile)
    sweeps = restarted_after_two(info, 6)
    _, items = play(driver_for("pcap", write(tmp_path, info, flat(sweeps))))
    restarts = [i for i in items if isinstance(i, State) and "sensor_restarted" in i.values]
    assert len(restarts) == 1
    assert not [i for i in items if isinstance(i, Lost)]
    expected = [make_frame(info, n, k) for k, n in enumerate(NUMBERS)]
    for sample, frame in zip(samples(items), expected, strict=True):
        assert_equals_frame(sample, frame)


@pytest.mark.parametrize("kept", [PACKETS, 5])
@pytest.mark.parametrize("profile", ["RNG15_RFL8_NIR8", "LEGACY"])
def test_a_restart_comes_in_its_turn_between_the_imus_samples(
    tmp_path: Path, profile: str, kept: int
) -> None:
    """`play` checks the order; the sensor restarts behind the end of a sweep, or in it."""
    info = make_info(profile)
    sweeps = restarted_after_two(info, 5)
    del sweeps[1][kept:]
    step_ns = SWEEP_NS // 20
    imu = [imu_packet(T0_NS + k * step_ns + 1, DEVICE0_NS + k * step_ns) for k in range(1, 100)]
    _, items = play(driver_for("pcap", write(tmp_path, info, flat([*sweeps, imu]))))
    assert len(samples(items)) == 5 and len(samples(items, "lidar_imu")) == len(imu)
    restart = next(
        k for k, i in enumerate(items) if isinstance(i, State) and "sensor_restarted" in i.values
    )
    before, behind = items[:restart], items[restart:]
    assert [len(samples(part)) for part in (before, behind)] == [2, 3]
    restart_ns = items[restart].t_ns
    assert all((s.t_ns < restart_ns).all() for s in samples(before, "lidar_imu"))
    assert all((s.t_ns > restart_ns).all() for s in samples(behind, "lidar_imu"))


def test_a_sweep_that_was_given_up_is_no_further_restart() -> None:
    info, told = make_info(), list[int]()

    def restarted(_: int, init_id: int) -> list[Item]:
        told.append(init_id)
        return []

    layout = core.PacketFormat(info)
    assembly = Assembly[Item](core, info, packet_fields(core, info), lambda *_: [], restarted)
    for k, (frame_id, init_id) in enumerate([(900, INIT_ID), (3, INIT_ID + 1), (4, INIT_ID + 1)]):
        for packet in core.frame_to_packets(make_frame(info, frame_id, k), layout, init_id, SERIAL):
            assert not list(assembly.take(packet))
        assert not list(assembly.give_up())
    assert told == [INIT_ID + 1]
