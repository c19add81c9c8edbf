"""``ros2:`` and ``zenoh:``: packets of Ouster's ROS driver, as the same packets in a capture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item, SensorConfig, State
from drivers.kit.topics import source
from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Publisher
from drivers.ouster.driver import OusterDriver
from recorder.common.errors import DeviceError, SourceError
from recorder.config.options import check_options
from tests.drivers.kit.topics.fake_middleware import STRING, FakeMiddleware
from tests.drivers.ouster.rig import driver_for, make_info, ouster_messages, play, samples, write
from tests.drivers.ouster.test_bags import KINDS, drive

P = Publisher(b"p", "/ouster")


@pytest.fixture
def middleware(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMiddleware]:
    fake = FakeMiddleware(ArrivalQueue(100_000_000))

    def connect(_: object, used: ArrivalQueue, __: object) -> FakeMiddleware:
        fake.queue = used
        return fake

    monkeypatch.setattr(source, "open_middleware", connect)
    yield fake


def publish(
    middleware: FakeMiddleware, messages: Any, skipped: frozenset[int] = frozenset()
) -> None:
    numbers: dict[str, int] = {}
    for index, sent in enumerate(messages):
        numbers[sent.topic] = number = numbers.get(sent.topic, 0) + 1
        if index not in skipped:
            arrival = Arrival(sent.topic, sent.log_ns, sent.data, b"p", number)
            middleware.queue.put(arrival)


def join(middleware: FakeMiddleware, kind: str) -> OusterDriver:
    options = check_options(OusterDriver.options, {})
    driver = OusterDriver(SensorConfig("lidar", "ros2", "0#/ouster/lidar_packets", options))
    for name in ("lidar_packets", "imu_packets"):
        middleware.offer(P, name=f"/ouster/{name}", kind=kind)
    middleware.offer(P, name="/ouster/metadata", kind=STRING)
    driver.join_topics().connection.join().look()
    return driver


def read(driver: OusterDriver) -> list[Item]:
    return list(iter(driver.read, None))


@pytest.mark.parametrize("extra", [b"", b"\0"])  # old messages have one byte more
@pytest.mark.parametrize("kind", KINDS)
def test_topics_give_what_a_capture_of_the_packets_gives(
    tmp_path: Path, middleware: FakeMiddleware, kind: str, extra: bytes
) -> None:
    info = make_info()
    packets = drive(info)
    driver = join(middleware, kind)
    publish(middleware, ouster_messages(info, packets, kind, extra=extra))
    specs = driver.open()
    items = read(driver)
    found = samples(items)
    wanted_specs, wanted = play(driver_for("pcap", write(tmp_path, info, packets)))
    assert [spec.channels for spec in specs] == [spec.channels for spec in wanted_specs]
    for one, other in zip(found, samples(wanted), strict=False):
        assert one.data.keys() == other.data.keys()
        for name, values in one.data.items():
            assert np.array_equal(np.array(values), np.array(other.data[name])), name
    assert len(found) >= 2 and len(samples(items, "lidar_imu")) > 5
    driver.close()


def test_missing_packets_are_a_state_with_their_number(
    middleware: FakeMiddleware,
) -> None:
    info = make_info()
    messages = list(ouster_messages(info, drive(info), KINDS[0]))
    lidar = [n for n, each in enumerate(messages) if each.topic == "/ouster/lidar_packets"]
    driver = join(middleware, KINDS[0])
    publish(middleware, messages, frozenset(lidar[5:8]))
    driver.open()
    states = [each.values for each in read(driver) if isinstance(each, State)]
    (lost,) = [each for each in states if each.get("cause") == "transport"]
    assert (lost["topic"], lost["packets_missing"]) == ("/ouster/lidar_packets", 3)


def test_an_address_without_a_topic_is_an_error() -> None:
    options = check_options(OusterDriver.options, {})
    driver = OusterDriver(SensorConfig("lidar", "zenoh", "0", options))
    with pytest.raises(SourceError, match="lidar: zenoh:0: needs a topic"):
        driver.open()


def test_another_type_and_absent_metadata_are_errors(
    middleware: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = join(middleware, STRING)
    with pytest.raises(SourceError, match="is a std_msgs/msg/String; this driver records packets"):
        driver.open()
    monkeypatch.setattr("drivers.ouster.topics._METADATA_S", 0.0)
    with pytest.raises(DeviceError, match="no metadata on /ouster/metadata; set the option"):
        join(middleware, KINDS[0]).open()
