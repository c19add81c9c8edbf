"""Where a played source's stamps lie in a session."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Lost, Sample, State
from drivers.kit.stamps import Timeline
from recorder.codecs.streams import ChannelSpec, StreamSpec

START_NS = 77_000_000_000
LIDAR = StreamSpec(
    "lidar",
    (
        ChannelSpec("rng", "raw", "u2"),
        ChannelSpec("t_col", "raw", "u8", (3,), device_time=True),
        ChannelSpec("t_i8", "raw", "i8", device_time=True),
    ),
    rate_hz=10.0,
    device_clock=True,
)
IMU = StreamSpec("imu", (ChannelSpec("x", "raw", "u1"),))
SPECS = {"lidar": LIDAR, "imu": IMU}


def lidar(t_ns: int) -> Sample:
    return Sample(
        "lidar",
        np.array([t_ns]),
        {
            "rng": np.array([5], "<u2"),
            "t_col": np.array([[0, t_ns + 1, t_ns + 2]], "<u8"),
            "t_i8": np.array([-t_ns], "<i8"),
        },
        np.array([t_ns + 3]),
    )


def imu(*t_ns: int) -> Sample:
    return Sample("imu", np.array(t_ns), {"x": np.zeros(len(t_ns), "u1")})


def array(sample: Sample, name: str) -> npt.NDArray[np.generic]:
    values = sample.data[name]
    assert isinstance(values, np.ndarray)
    return values


def test_the_first_stamp_plays_at_the_start_and_all_else_relative_to_it() -> None:
    timeline = Timeline(SPECS, START_NS)
    first, second, before = imu(1000, 1500), lidar(1_000_000), imu(900)
    for item in (first, second, before):
        timeline.place(item)
    assert first.t_ns.tolist() == [START_NS, START_NS + 500]
    assert second.t_ns.tolist() == [START_NS + 999_000]
    assert before.t_ns.tolist() == [START_NS - 100]
    # Device times stay the device's own while nothing loops.
    assert second.t_dev_ns is not None and second.t_dev_ns.tolist() == [1_000_003]
    assert array(second, "t_col").tolist() == [[0, 1_000_001, 1_000_002]]


def test_an_origin_given_by_the_source_comes_before_the_first_item() -> None:
    timeline = Timeline(SPECS, START_NS, origin_ns=400)
    item = imu(1000)
    timeline.place(item)
    assert item.t_ns.tolist() == [START_NS + 600]


def test_states_and_losses_move_along() -> None:
    timeline = Timeline(SPECS, START_NS)
    state, loss = State("imu", 5000, {"x": 1}), Lost("imu", 6000, "device", 3)
    timeline.place(state)
    timeline.place(loss)
    assert (state.t_ns, loss.t_ns) == (START_NS, START_NS + 1000)
    assert type(state.t_ns) is int


def test_a_loop_adds_its_period_to_host_and_device_times() -> None:
    timeline = Timeline(SPECS, START_NS)
    once = [lidar(1_000_000), imu(1_000_500), lidar(101_000_000)]
    for item in once:
        timeline.place(item)
    period = 100_000_000 + 100_000_000  # to the last stamp, and one interval of that stream
    for turn in (1, 2, 3):
        timeline.loop()
        again = [lidar(1_000_000), imu(1_000_500), lidar(101_000_000)]
        for item, first in zip(again, once, strict=True):
            timeline.place(item)
            assert (item.t_ns - first.t_ns).tolist() == [turn * period]
        last = again[2]
        assert last.t_dev_ns is not None
        assert last.t_dev_ns.tolist() == [101_000_003 + turn * period]
        # 0 says "not measured", and stays.
        columns = [0, 101_000_001 + turn * period, 101_000_002 + turn * period]
        assert array(last, "t_col").tolist() == [columns]
        assert array(last, "t_col").dtype == "<u8"
        assert array(last, "t_i8").tolist() == [-101_000_000 + turn * period]
        assert array(last, "t_i8").dtype == "<i8"
        assert array(last, "rng").tolist() == [5]


def test_the_period_is_that_of_the_longest_stream_and_ends_behind_its_last_sample() -> None:
    timeline = Timeline(SPECS, START_NS)
    for item in (imu(0), lidar(10), imu(300_000_000)):
        timeline.place(item)
    timeline.loop()
    item = imu(0)
    timeline.place(item)
    assert item.t_ns.tolist() == [START_NS + 300_000_001]  # without a rate: one ns later


def test_the_drivers_own_arrays_are_not_changed() -> None:
    timeline = Timeline(SPECS, START_NS)
    timeline.place(lidar(0))
    timeline.loop()
    item = lidar(50)
    kept = {name: array(item, name) for name in item.data}
    copies = {name: values.copy() for name, values in kept.items()}
    times = item.t_ns
    timeline.place(item)
    assert times.tolist() == [50]
    for name, values in kept.items():
        np.testing.assert_array_equal(values, copies[name])
