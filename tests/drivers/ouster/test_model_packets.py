"""The simulated lidar's packets, read back by ouster-sdk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ouster.sdk import core

from drivers.ouster.model import START_NS, LidarScene
from drivers.ouster.model_packets import LidarPackets, imu_values, sdk_packets
from drivers.world import World
from tests.drivers.ouster.rig import COLUMNS, PACKETS, make_info

DUAL = "RNG19_RFL8_SIG16_NIR16_DUAL"


def packets_of(info: Any) -> tuple[LidarPackets, LidarScene]:
    scene = LidarScene(core, info, World("straight", 2), seed=2)
    return LidarPackets(core, info, scene), scene


def decoded(info: Any, packets: Any) -> Any:
    batcher, frame = core.FrameBatcher(info), core.LidarFrame(info)
    for packet in sdk_packets(core, core.PacketFormat(info), packets):
        if batcher.batch(packet, frame):
            return frame
    raise AssertionError("no whole sweep")


@pytest.mark.parametrize(
    ("profile", "imu"),
    [
        ("RNG15_RFL8_NIR8", "LEGACY"),
        ("RNG15_RFL8_NIR8", "ACCEL32_GYRO32_NMEA"),
        (DUAL, "LEGACY"),
        (DUAL, "ACCEL32_GYRO32_NMEA"),
        ("LEGACY", "LEGACY"),
    ],
)
def test_a_sweep_comes_out_as_it_was_seen(profile: str, imu: str) -> None:
    info = make_info(profile, imu)
    packets, scene = packets_of(info)
    sent = packets.sweep(5, frame_id=2, init_id=9)
    assert [p.t_ns for p in sent] == sorted(p.t_ns for p in sent)
    frame = decoded(info, [p for p in sent if not p.imu or packets.in_frames])
    assert frame.frame_id == 2 and frame.complete()
    for name, values in scene.sweep(5).items():
        np.testing.assert_array_equal(frame.field(name), values, name)
    np.testing.assert_array_equal(frame.timestamp, scene.column_times(5))
    first, count = packets.imu_range(5)
    assert packets.imu_hz is not None
    expected = scene.imu(first, count, packets.imu_hz)
    got = imu_values(core, core.PacketFormat(info), [p for p in sent if p.imu])
    np.testing.assert_allclose(got["acc"], expected["acc"], rtol=3e-7, atol=1e-6)
    np.testing.assert_allclose(got["avel"], expected["avel"], rtol=3e-7, atol=1e-7)


def test_a_window_sends_what_it_measures() -> None:
    info = make_info(window=COLUMNS // 2)
    packets, _ = packets_of(info)
    assert len(packets.lidar(0)) == PACKETS // 2


def test_the_clock_may_be_off_but_never_below_zero() -> None:
    info = make_info()
    packets, scene = packets_of(info)
    for shift_ns, first in ((0, START_NS), (7 * 10**9, START_NS + 7 * 10**9), (-(10**12), 1)):
        sent = packets.sweep(0, shift_ns=shift_ns)
        frame = decoded(info, [p for p in sent if not p.imu])
        assert int(frame.timestamp[0]) == first
        assert [p.t_ns for p in sent] == [p.t_ns for p in packets.sweep(0)]
    assert scene.period_ns == 10**8
