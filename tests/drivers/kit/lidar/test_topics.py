"""``ros2:`` and ``zenoh:`` of lidars' packets: the same as in a capture of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from drivers.hesai.driver import HesaiDriver
from drivers.kit.lidar.family import FamilyDriver
from drivers.kit.topics import source
from drivers.kit.topics.middleware import Arrival, ArrivalQueue, Publisher
from drivers.robosense.driver import RobosenseDriver
from drivers.robosense.models import MODELS
from recorder.common.errors import DeviceError, SourceError
from recorder.formats.ros2.definitions import PANDAR_SCAN, RSLIDAR_OLD_PACKET, RSLIDAR_OLD_SCAN
from tests.drivers.kit.lidar.packet_messages import scan_message
from tests.drivers.kit.lidar.test_bags import turn_packets
from tests.drivers.kit.topics.fake_middleware import STRING, FakeMiddleware
from tests.drivers.robosense.rig import arrivals, describe, make_packets
from tests.formats.bags.kit import Sent
from tests.support.devices import losses, make_driver, samples, states

P = Publisher(b"p", "/lidar")


@pytest.fixture
def middleware(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMiddleware]:
    fake = FakeMiddleware(ArrivalQueue(100_000_000))

    def connect(_: object, used: ArrivalQueue, __: object) -> FakeMiddleware:
        fake.queue = used
        return fake

    monkeypatch.setattr(source, "open_middleware", connect)
    yield fake


def join(
    middleware: FakeMiddleware, kind: type[FamilyDriver], sent: list[Sent], *lost: int
) -> FamilyDriver:
    driver = make_driver(kind, "lidar", "ros2", f"0#{sent[0].topic}")
    for topic, name in {each.topic: each.schema for each in sent}.items():
        middleware.offer(P, name=topic, kind=name)
    driver.join_topics().join().look()
    numbers: dict[str, int] = {}
    for index, each in enumerate(sent):
        numbers[each.topic] = number = numbers.get(each.topic, 0) + 1
        if index not in lost:
            middleware.queue.put(Arrival(each.topic, each.log_ns, each.data, b"p", number))
    return driver


def read(driver: FamilyDriver) -> list[Any]:
    items: list[Any] = []
    while (item := driver.read()) is not None:
        items.append(item)
    return items


def test_topics_give_the_sweeps_of_the_packets(middleware: FakeMiddleware) -> None:
    packets = turn_packets()
    sent = [scan_message("/p", PANDAR_SCAN, packets[at : at + 90]) for at in range(0, 800, 90)]
    driver = join(middleware, HesaiDriver, sent)
    (spec,) = driver.open()
    items = read(driver)
    (sweep,) = samples(items)
    assert spec.settings["model"] == "PandarXT32" and not losses(items)
    assert np.count_nonzero(sweep.data["t_col"]) == 2000
    # The stamp of the packet in which the sweep ends: its message arrived with a later one.
    assert sweep.t_ns[0] == packets[499][0]
    driver.close()


def test_missing_and_damaged_messages_are_reported(middleware: FakeMiddleware) -> None:
    packets = turn_packets()
    sent = [scan_message("/p", PANDAR_SCAN, packets[at : at + 50]) for at in range(0, 800, 50)]
    sent[7] = Sent(*("/p", PANDAR_SCAN, "cdr", b"\0\1\0\0odd", sent[7].log_ns))
    driver = join(middleware, HesaiDriver, sent, 3, 4)
    driver.open()
    items = read(driver)
    assert [lost.cause for lost in losses(items)] == ["corrupt"]
    missing = [s for s in states(items) if "messages_missing" in s]
    assert [(s["cause"], s["messages_missing"]) for s in missing] == [("transport", 2)]
    (sweep,) = samples(items)
    assert np.count_nonzero(sweep.data["t_col"]) == 2000 - 150 * 4
    assert {k: v for s in states(items) for k, v in s.items() if k == "columns_missing"} == {
        "columns_missing": 600
    }


def test_what_the_lidar_tells_comes_from_the_topic_beside(middleware: FakeMiddleware) -> None:
    model = MODELS["Helios"]
    packets = arrivals(make_packets(model, 1, 120))
    about = [(packets[0][0], describe(model, 1))]
    sent = [
        *(scan_message("/r/packets", RSLIDAR_OLD_SCAN, packets[k : k + 40]) for k in (0, 40, 80)),
        scan_message("/r/packets_difop", RSLIDAR_OLD_PACKET, about),
    ]
    driver = join(middleware, RobosenseDriver, sent)
    (spec,) = driver.open()
    assert '"calibration": "sensor"' in spec.files["beams.json"]
    assert [s for s in states(read(driver)) if "serial" in s]


def test_another_type_is_an_error(
    middleware: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(HesaiDriver, "lidar", "ros2", "0#/text")
    middleware.offer(P, name="/text", kind=STRING)
    driver.join_topics().join().look()
    with pytest.raises(SourceError, match="is a std_msgs/msg/String; this driver records packets"):
        driver.open()
    with pytest.raises(SourceError, match="needs a topic"):
        make_driver(HesaiDriver, "lidar", "zenoh", "0").open()
    monkeypatch.setattr("drivers.kit.lidar.topics._FIRST_S", 0.0)
    silent = join(middleware, HesaiDriver, [scan_message("/p", PANDAR_SCAN, turn_packets(1))], 0)
    with pytest.raises(DeviceError, match="nothing arrives"):
        silent.open()
