"""``bag:`` and ``mcap:`` of the lidar driver: clouds of five drivers in recordings of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from drivers.kit.driver import Driver, Lost, Sample
from drivers.kit.runner import make_driver
from drivers.lidar.driver import LidarDriver
from recorder.codecs.points import points_dtype, unpack_points
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import SourceError
from recorder.formats.bags.bag import Bag
from recorder.perception.recordings import sensors_of
from tests.formats.bags.kit import START_NS, imu, write_mcap, write_sqlite
from tests.formats.bags.kit import Sent as Message
from tests.formats.ros2.cloud_kit import DRIVERS, LIVOX, Sent, encode_cloud, hesai, ouster, velodyne
from tests.session.clouds import begin_ns
from tests.support.devices import play

PERIOD_NS = 100_000_000
TOPIC = "/lidar/points"


def message(sent: Sent, log_ns: int, topic: str = TOPIC) -> Message:
    return Message(topic, sent.type_name, "cdr", sent.data, log_ns)


def drive(name: str, count: int = 4) -> tuple[list[Sent], list[Message]]:
    """Clouds whose stamps are 20 ms before their log times."""
    rng = np.random.default_rng(3)
    clouds = [DRIVERS[name](rng, stamp_ns=START_NS + k * PERIOD_NS) for k in range(count)]
    logs = [START_NS + 20_000_000 + k * PERIOD_NS for k in range(count)]
    return clouds, [message(cloud, log_ns) for cloud, log_ns in zip(clouds, logs, strict=True)]


def driver(path: Path, scheme: str = "bag", topic: str = "") -> Driver:
    address = f"{path}#{topic}" if topic else str(path)
    entry = {"name": "lidar", "scheme": scheme, "address": address, "options": {}, "pace": "max"}
    return make_driver(LidarDriver, entry)


def points_of(spec: StreamSpec, sample: Sample) -> npt.NDArray[Any]:
    (frame,) = sample.data["points.bin"]
    return unpack_points(frame, points_dtype(spec.channel("points.bin").columns), "here")


@pytest.mark.parametrize("write", [write_mcap, write_sqlite])
@pytest.mark.parametrize("name", DRIVERS)
def test_points_and_times_are_those_that_were_written(
    name: str, write: Callable[[Path, Sequence[Message]], Path], tmp_path: Path
) -> None:
    clouds, messages = drive(name)
    spec, items = play(driver(write(tmp_path / "a.bag", messages)))
    assert len(items) == len(clouds)
    assert spec.rate_hz == 10.0 and spec.finite and not spec.device_clock
    assert spec.settings["mcap_frame"] == "lidar_link"
    for sent, item in zip(clouds, items, strict=True):
        assert isinstance(item, Sample) and sent.t_ns is not None
        points = points_of(spec, item)
        times = begin_ns(item.t_ns[0], points) + points["t_offset"].astype(np.int64)
        assert np.abs(times - sent.t_ns).max() <= 500
        assert abs(int(item.t_ns[0]) - int(sent.t_ns.max())) <= 500
        for axis, field in enumerate(("x", "y", "z")):
            np.testing.assert_array_equal(points["xyz"][:, axis], sent.points[field])
        rows = sent.height
        assert np.asarray(item.data["grid"]).tolist() == [[rows, len(sent.points) // rows]]


def test_a_sweep_that_ends_with_its_stamp_has_that_of_its_last_point(tmp_path: Path) -> None:
    clouds, messages = drive("velodyne")
    spec, items = play(driver(write_mcap(tmp_path / "a.mcap", messages)))
    for sent, item in zip(clouds, items, strict=True):
        assert isinstance(item, Sample) and sent.t_ns is not None
        assert int(item.t_ns[0]) == sent.t_ns[-1]
    meaning = {"field": "time", "unit_ns": 1_000_000_000, "origin": "stamp"}
    assert spec.settings["point_time"] == meaning


def test_stamps_of_another_clock_are_device_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    far = 5_000_000_000_000
    messages = [
        message(hesai(rng, stamp_ns=far + k * PERIOD_NS), START_NS + k * PERIOD_NS)
        for k in range(3)
    ]
    spec, items = play(driver(write_mcap(tmp_path / "a.mcap", messages)))
    assert spec.device_clock
    for k, item in enumerate(items):
        assert isinstance(item, Sample) and item.t_dev_ns is not None
        points = points_of(spec, item)
        assert begin_ns(item.t_ns[0], points) == START_NS + k * PERIOD_NS
        assert begin_ns(item.t_dev_ns[0], points) == far + k * PERIOD_NS


def test_clouds_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    clouds, messages = drive("ouster", 5)
    damaged = Sent(messages[1].data[:-50], clouds[1].points, None)
    other = velodyne(np.random.default_rng(1), stamp_ns=START_NS + 3 * PERIOD_NS)
    messages[1] = message(damaged, messages[1].log_ns)
    messages[3] = message(other, messages[3].log_ns)
    spec, items = play(driver(write_mcap(tmp_path / "a.mcap", messages)))
    kinds = [item.cause if isinstance(item, Lost) else "sample" for item in items]
    assert sorted(kinds) == ["changed", "corrupt", "sample", "sample", "sample"]
    reasons = [item.detail["reason"] for item in items if isinstance(item, Lost)]
    assert all(item.count == 1 for item in items if isinstance(item, Lost))
    assert any("has no field" in str(reason) for reason in reasons)
    read = [points_of(spec, item) for item in items if isinstance(item, Sample)]
    assert [len(points) for points in read] == [len(clouds[k].points) for k in (0, 2, 4)]


def test_a_topic_without_positions_is_an_error_that_names_it(tmp_path: Path) -> None:
    points = np.zeros(4, np.dtype([("range", "<f4"), ("azimuth", "<f4")]))
    path = write_mcap(tmp_path / "a.mcap", [message(Sent(encode_cloud(points), points, None), 1)])
    with pytest.raises(
        SourceError, match=r"lidar: bag:.*a\.mcap.*has no field x; its fields: range"
    ):
        driver(path).open()


def test_topics_are_chosen_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    messages = [
        message(ouster(rng, stamp_ns=START_NS), START_NS, "/front/points"),
        message(DRIVERS["livox"](rng), START_NS, "/rear/livox"),
        imu("/imu", START_NS + 1, (0, 0, 9.8), (0, 0, 0)),
    ]
    path = write_mcap(tmp_path / "a.mcap", messages)
    with pytest.raises(SourceError, match="select a topic, as in #/front/points; its topics with"):
        driver(path).open()
    with pytest.raises(SourceError, match="'/imu': holds imu"):
        driver(path, topic="/imu").open()
    (spec,) = (source := driver(path, topic="rear/livox")).open()
    source.close()
    assert spec.settings["mcap_schema"] == LIVOX
    with Bag(path) as bag:
        found = [(s.name, s.driver, s.topic) for s in sensors_of(bag).sensors]
    assert ("front", "lidar", "/front/points") in found
    assert [driver for _, driver, topic in found if topic == "/rear/livox"] == ["lidar"]


def test_clouds_beyond_the_first_may_be_larger(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sizes = (10, 0, 5000, 1)
    messages = [
        message(hesai(rng, size, START_NS + k * PERIOD_NS), START_NS + k * PERIOD_NS)
        for k, size in enumerate(sizes)
    ]
    spec, items = play(driver(write_mcap(tmp_path / "a.mcap", messages)))
    samples = [item for item in items if isinstance(item, Sample)]
    assert [len(points_of(spec, item)) for item in samples] == list(sizes)
