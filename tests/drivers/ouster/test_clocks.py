"""Times of captures: a host clock that steps more than once, packets without host stamps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.kit.driver import State
from tests.drivers.ouster.rig import (
    SWEEP_NS,
    capture,
    driver_for,
    flat,
    lidar_packets,
    make_frame,
    make_info,
    play,
    samples,
    write,
)


def test_each_step_back_of_the_host_clock_is_told_and_smoothed(tmp_path: Path) -> None:
    """The second one, too, and what comes after it: steps add up."""
    info = make_info()
    sweeps = capture(info, [7, 8, 9, 10])
    steps = (0, 10**10, 10**10 + 5 * 10**9, 10**10 + 5 * 10**9)
    stepped = [
        [(t_ns - step, port, data) for t_ns, port, data in sweep]
        for sweep, step in zip(sweeps, steps, strict=True)
    ]
    true_ns = [sweep[-1][0] for sweep in sweeps]
    _, items = play(driver_for("pcap", write(tmp_path, info, [p for s in stepped for p in s])))
    reported = [i.values["host_clock_step_ns"] for i in items if isinstance(i, State)]
    assert len(reported) == 2
    assert reported[0] == pytest.approx(-(10**10), abs=SWEEP_NS)
    assert reported[1] == pytest.approx(-5 * 10**9, abs=SWEEP_NS)
    stamps = [int(s.t_ns[-1]) for s in samples(items)]
    assert len(stamps) == 4
    # A step hides the time between two packets; what lies behind it keeps its distances.
    hidden = [true - stamp for true, stamp in zip(true_ns, stamps, strict=True)]
    assert hidden[0] == 0 and 0 < hidden[1] < hidden[2] == hidden[3] < SWEEP_NS


def test_imu_packets_of_several_measurements_without_host_stamps(tmp_path: Path) -> None:
    info = make_info(imu="ACCEL32_GYRO32_NMEA")
    frames = [make_frame(info, 7 + k, k) for k in range(2)]
    packets = flat(lidar_packets(info, frame) for frame in frames)
    _, items = play(driver_for("pcap", write(tmp_path, info, packets, stamps=False)))
    imu = samples(items, "lidar_imu")
    assert [s.count for s in imu] == [4] * 4
    for sample in imu:
        assert sample.t_dev_ns is not None
        np.testing.assert_array_equal(sample.t_ns, sample.t_dev_ns)
