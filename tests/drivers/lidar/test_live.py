"""``ros2:`` and ``zenoh:`` of the lidar driver: sweeps as recordings have them, placed in time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from drivers.kit.driver import Lost, Sample
from drivers.kit.topics.middleware import Publisher
from drivers.lidar.driver import LidarDriver
from recorder.codecs.points import points_dtype, unpack_points
from recorder.common.errors import SourceError, StreamChangedError
from recorder.formats.ros2.definitions import IMU, POINT_CLOUD
from tests.drivers.kit.topics.fake_middleware import FakeMiddleware
from tests.drivers.kit.topics.test_source import live, middleware, read, samples
from tests.formats.ros2.cloud_kit import LIVOX, STAMP_NS, hesai, livox, ouster, velodyne

__all__ = ["middleware"]
P = Publisher(b"p", "/n")
RNG = np.random.default_rng(1)
MS = 1_000_000


EPOCH_NS = 1_700_000_000_000_000_000
"""Time at 0 of CLOCK_MONOTONIC, which arrivals have."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that does not go on while the source reads the time of both kinds."""
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5_000 * MS)
    monkeypatch.setattr(time, "time_ns", lambda: EPOCH_NS + 5_000 * MS)


def test_sweeps_have_the_columns_of_recordings(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=POINT_CLOUD)
    clouds = [ouster(RNG, columns) for columns in (64, 3)]
    driver = live(LidarDriver, middleware, *(cloud.data for cloud in clouds))
    (spec,) = driver.open()
    assert [each.name for each in spec.channels] == ["points.bin", "grid"]
    assert spec.settings["topic_frame"] == "lidar_link" and spec.device_clock
    dtype = points_dtype(spec.channel("points.bin").columns)
    found = samples(read(driver))
    for sample, sent in zip(found, clouds, strict=True):
        points = unpack_points(sample.data["points.bin"][0], dtype, "here")
        np.testing.assert_array_equal(points["xyz"][:, 0], sent.points["x"])
        np.testing.assert_array_equal(points["t_offset"], sent.points["t"])
        last_ns = STAMP_NS + int(sent.points["t"].max())
        assert sample.t_dev_ns is not None and sample.t_dev_ns.tolist() == [last_ns]


@pytest.mark.usefixtures("clock")
def test_a_sweep_has_the_time_of_its_last_point_on_the_clock_of_arrivals(
    middleware: FakeMiddleware,
) -> None:
    """The stamp is of this computer's clock, 450 ms before the arrival; the sweep lasts 60 ms."""
    middleware.offer(P, kind=POINT_CLOUD)
    driver = live(LidarDriver, middleware)
    arrivals = [1_000_000 * MS + k * 100 * MS for k in range(2)]
    for number, t_ns in enumerate(arrivals, 1):
        stamp_ns = EPOCH_NS + t_ns - 450 * MS
        middleware.send(number, hesai(RNG, 501, stamp_ns).data, t_ns=t_ns)
    driver.open()
    driver._last_ns = 0
    found = samples(read(driver))
    ends = [t_ns - 450 * MS + 60 * MS for t_ns in arrivals]
    apart = [int(sample.t_ns[0]) - end for sample, end in zip(found, ends, strict=True)]
    assert all(abs(ns) < 1000 for ns in apart)  # as exact as seconds since 1970 are in an f8


@pytest.mark.usefixtures("clock")
def test_no_sweep_ends_after_its_arrival(middleware: FakeMiddleware) -> None:
    """The stamp is 500 ms before the arrival; the points' times go on for 1 s."""
    middleware.offer(P, kind=POINT_CLOUD)
    driver = live(LidarDriver, middleware)
    arrival_ns = 1_000_000 * MS
    stamp_ns = EPOCH_NS + arrival_ns - 500 * MS
    middleware.send(1, hesai(RNG, 8334, stamp_ns).data, t_ns=arrival_ns)
    driver.open()
    driver._last_ns = 0
    (sample,) = samples(read(driver))
    assert sample.t_ns.tolist() == [arrival_ns]


def test_a_sweep_of_another_clock_ends_with_its_arrival(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=POINT_CLOUD)
    driver = live(LidarDriver, middleware)
    arrivals = [1_000_000 * MS + k * 100 * MS for k in range(2)]
    for number, t_ns in enumerate(arrivals, 1):
        middleware.send(number, hesai(RNG, 501, STAMP_NS).data, t_ns=t_ns)  # 60 ms
    driver.open()
    driver._last_ns = 0
    for sample, t_ns in zip(samples(read(driver)), arrivals, strict=True):
        assert sample.t_ns.tolist() == [t_ns]


def test_custom_messages_of_livox_are_received(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=LIVOX)
    driver = live(LidarDriver, middleware, livox(RNG).data, livox(RNG).data[:-9])
    driver.open()
    items = read(driver)
    assert len(samples(items)) == 1
    (lost,) = (item for item in items if isinstance(item, Lost))
    assert (lost.cause, lost.count) == ("corrupt", 1)


def test_other_fields_end_the_stream(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=POINT_CLOUD)
    driver = live(LidarDriver, middleware, ouster(RNG).data)
    driver.open()
    assert isinstance(samples(read(driver))[0], Sample)
    middleware.send(2, velodyne(RNG).data)
    with pytest.raises(StreamChangedError, match="has no field"):
        read(driver)


def test_a_topic_of_another_kind_is_an_error(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=IMU)
    driver = live(LidarDriver, middleware)
    with pytest.raises(
        SourceError, match=r"is a sensor_msgs/msg/Imu; .* sensor_msgs/msg/PointCloud2"
    ):
        driver.open()
