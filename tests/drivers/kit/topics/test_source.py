"""Live topics as streams: the channels of recordings, losses in order, one connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest

from drivers.camera.driver import CameraDriver
from drivers.can.driver import CanDriver
from drivers.gnss.driver import GnssDriver
from drivers.imu.driver import ImuDriver
from drivers.kit.driver import Driver, Item, Lost, Sample, State
from drivers.kit.runner import make_driver
from drivers.kit.topics import reception, source
from drivers.kit.topics.middleware import ArrivalQueue, Publisher
from drivers.kit.topics.source import LiveTopicSource
from recorder.codecs.h264 import nal_units, read_nal_type
from recorder.common.errors import DeviceError, SourceError, StreamChangedError
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import (
    CAN_FRAME,
    COMPRESSED_IMAGE,
    COMPRESSED_VIDEO,
    IMAGE,
    IMU,
    NAV_SAT_FIX,
)
from recorder.formats.ros2.messages import (
    CanFrame,
    CompressedImage,
    CompressedVideo,
    Header,
    Image,
    Imu,
    NavSatFix,
)
from tests.drivers.kit.topics.fake_middleware import STRING, FakeMiddleware
from tests.h264 import SIZE, encode
from tests.support.devices import read_item

P, Q = Publisher(b"p", "/n"), Publisher(b"q", "/m")
HEADER = Header(1_700_000_000_000_000_123, "frame")
NOTHING = (0.0,) * 9


def cdr(kind: str, message: Any) -> bytes:
    return b"".join(bytes(part) for part in encode_message(kind, message))


def inertial(x: float = 1.0) -> bytes:
    values = (HEADER, (0.0, 0.0, 0.0, 1.0), NOTHING, (0.1, 0.2, 0.3), NOTHING, (x, 2.0, 9.8))
    return cdr(IMU, Imu(*values, NOTHING))


def jpeg(height: int = 8, width: int = 16) -> bytes:
    return bytes(cv2.imencode(".jpg", np.zeros((height, width, 3), np.uint8))[1].tobytes())


@pytest.fixture
def middleware(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMiddleware]:
    fake = FakeMiddleware(ArrivalQueue(1_000_000))

    def connect(_: object, used: ArrivalQueue, __: object) -> FakeMiddleware:
        fake.queue = used
        fake.joined += 1
        return fake

    monkeypatch.setattr(source, "open_middleware", connect)
    monkeypatch.setattr(source, "_GATHER_S", 0.0)
    yield fake


def live(kind: type[Driver], middleware: FakeMiddleware, *messages: bytes) -> LiveTopicSource:
    """Join; the messages are there when the driver opens."""
    entry = {"name": "s", "scheme": "ros2", "address": "3#/a", "options": {}}
    driver = make_driver(kind, entry)
    assert isinstance(driver, LiveTopicSource)
    joined = driver.connection.join()
    joined.look()
    for number, message in enumerate(messages, 1):
        middleware.send(number, message)
    return driver


def read(driver: Driver) -> list[Item]:
    """All items that are there."""
    return list(iter(lambda: read_item(driver), None))


def samples(items: list[Item]) -> list[Sample]:
    return [each for each in items if isinstance(each, Sample)]


def test_an_imu_has_the_channels_of_recordings_and_a_batch_of_what_came(
    middleware: FakeMiddleware,
) -> None:
    middleware.offer(P, kind=IMU)
    driver = live(ImuDriver, middleware, *(inertial(x) for x in (1.0, 2.0, 3.0)))
    (spec,) = driver.open()
    assert [each.name for each in spec.channels] == ["acc", "avel", "rot", "quat"]
    assert (spec.device_clock, spec.finite) == (True, False)
    assert spec.settings["topic"] == "/a" and spec.settings["topic_frame"] == "frame"
    (sample,) = samples(read(driver))
    assert np.array(sample.data["acc"])[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert sample.t_dev_ns is not None
    assert sample.t_dev_ns.tolist() == [HEADER.stamp_ns] * 3


@pytest.mark.parametrize(
    ("kind", "type_name", "message", "channels"),
    [
        (
            GnssDriver,
            NAV_SAT_FIX,
            NavSatFix(HEADER, 0, 1, 48.0, 11.0, 500.0, NOTHING, 0),
            ["pos", "fix", "cov"],
        ),
        (
            CanDriver,
            CAN_FRAME,
            CanFrame(HEADER, 0x123, False, False, False, 3, b"abc\0\0\0\0\0"),
            ["id", "len", "flags", "data"],
        ),
        (CameraDriver, COMPRESSED_IMAGE, CompressedImage(HEADER, "jpeg", jpeg()), ["video.avi"]),
        (
            CameraDriver,
            IMAGE,
            Image(HEADER, 8, 16, "mono8", 0, 16, bytes(128)),
            ["video.avi"],
        ),
    ],
)
def test_each_kind_becomes_the_stream_of_its_driver(
    middleware: FakeMiddleware,
    kind: type[Driver],
    type_name: str,
    message: Any,
    channels: list[str],
) -> None:
    middleware.offer(P, kind=type_name)
    driver = live(kind, middleware, cdr(type_name, message))
    (spec,) = driver.open()
    assert [each.name for each in spec.channels] == channels
    (sample,) = samples(read(driver))
    assert sample.count == 1


def test_jpegs_are_recorded_byte_for_byte(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=COMPRESSED_IMAGE)
    picture = jpeg()
    message = cdr(COMPRESSED_IMAGE, CompressedImage(HEADER, "jpeg", picture))
    driver = live(CameraDriver, middleware, message)
    driver.open()
    (sample,) = samples(read(driver))
    assert sample.data["video.avi"] == [picture]


def test_video_begins_with_its_first_keyframe_and_its_size_stays(
    middleware: FakeMiddleware,
) -> None:
    units = encode(8)  # with a keyframe at 0 and 5
    middleware.offer(P, kind=COMPRESSED_VIDEO)
    messages = [cdr(COMPRESSED_VIDEO, CompressedVideo(5, "c", each, "h264")) for each in units]
    driver = live(CameraDriver, middleware, *messages[1:])
    (spec,) = driver.open()
    assert (spec.channels[0].name, spec.channels[0].shape) == ("video.h264", (SIZE[1], SIZE[0], 3))
    taken = samples(read(driver))
    assert [each.data["video.h264"] for each in taken] == [[each] for each in units[5:]]
    larger = encode(1, (128, 64))[0]
    middleware.send(9, cdr(COMPRESSED_VIDEO, CompressedVideo(5, "c", larger, "h264")))
    with pytest.raises(StreamChangedError, match="128 x 64 pixels, not the declared 96 x 64"):
        read(driver)


def test_a_keyframe_gets_the_parameter_sets_that_it_lacks(middleware: FakeMiddleware) -> None:
    units = encode(8)
    bare = b"".join(
        b"\0\0\0\1" + nal for nal in nal_units(units[5]) if read_nal_type(nal) not in (7, 8)
    )
    middleware.offer(P, kind=COMPRESSED_VIDEO)
    sent = [units[0], bare]
    messages = [cdr(COMPRESSED_VIDEO, CompressedVideo(5, "c", each, "h264")) for each in sent]
    driver = live(CameraDriver, middleware, *messages)
    driver.open()
    (_, second) = samples(read(driver))
    kinds = {read_nal_type(nal) for nal in nal_units(bytes(second.data["video.h264"][0]))}
    assert {7, 8} <= kinds


def test_video_in_another_format_is_named(
    middleware: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_TOPIC_S", 0.0)
    middleware.offer(P, kind=COMPRESSED_VIDEO)
    message = cdr(COMPRESSED_VIDEO, CompressedVideo(5, "c", b"\0\0\0\1\x40", "h265"))
    driver = live(CameraDriver, middleware, message)
    with pytest.raises(DeviceError, match="'h265': only h264 is recorded"):
        driver.open()


def test_losses_and_states_stand_where_they_happened(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=IMU)
    driver = live(ImuDriver, middleware, inertial())
    driver.open()
    middleware.send(4, inertial())
    middleware.send(5, b"\0\1\0\0broken")
    middleware.send(6, inertial())
    middleware.send(8, inertial())
    items = read(driver)
    kinds = [type(each) for each in items if not isinstance(each, State)]
    assert kinds == [Sample, Lost, Sample, Lost, Sample, Lost, Sample]
    lost = [each for each in items if isinstance(each, Lost)]
    counted = [("transport", 2), ("corrupt", 1), ("transport", 1)]
    assert [(each.cause, each.count) for each in lost] == counted
    assert lost[0].detail == {"publisher": b"p".hex(), "first_number": 2}
    states = [each.values for each in items if isinstance(each, State)]
    assert {"losses": "counted"} in states


def test_uncounted_losses_are_said_to_be_unknown(middleware: FakeMiddleware) -> None:
    middleware.counts_losses = False
    middleware.offer(P, kind=IMU)
    driver = live(ImuDriver, middleware)
    middleware.send(None, inertial())
    driver.open()
    (said,) = [each for each in read(driver) if isinstance(each, State)]
    assert said.lasting and said.values["losses"].startswith("unknown")


def test_a_topic_of_another_kind_names_both(middleware: FakeMiddleware) -> None:
    middleware.offer(P, kind=STRING)
    driver = live(ImuDriver, middleware, b"")
    with pytest.raises(SourceError, match=r"s: ros2:3#/a: is a std_msgs.*sensor_msgs/msg/Imu"):
        driver.open()


def test_a_topic_that_is_not_there_names_those_that_are(
    middleware: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_TOPIC_S", 0.0)
    middleware.offer(P, name="/b")
    driver = live(ImuDriver, middleware)
    with pytest.raises(DeviceError, match="/a has no publisher; topics here: /b"):
        driver.open()
    middleware.offer(P, kind=IMU)
    driver.connection.join().look()
    with pytest.raises(DeviceError, match="nothing arrives"):
        driver.open()
    middleware.refusal = "install the package x"
    middleware.offer(P, Publisher(b"z", is_reliable=False), kind=IMU)
    driver.connection.join().look()
    assert middleware.joined == 1


def test_what_arrives_between_two_openings_is_kept(
    middleware: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    middleware.offer(P, kind=IMU)
    driver = live(ImuDriver, middleware, inertial(1.0))
    driver.open()
    assert len(samples(read(driver))) == 1
    driver.close()
    middleware.send(2, inertial(2.0))
    driver.open()
    (sample,) = samples(read(driver))
    assert np.array(sample.data["acc"])[:, 0].tolist() == [2.0]
    assert middleware.joined == 1


def test_a_lost_connection_is_made_again(
    middleware: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    middleware.offer(P, kind=IMU)
    driver = live(ImuDriver, middleware, inertial())
    driver.open()
    read(driver)
    middleware.problem = "the router is gone"
    monkeypatch.setattr(reception, "_DISCOVERY_NS", 0)
    with pytest.raises(DeviceError, match="s: ros2:3#/a: the router is gone"):
        read(driver)
    driver.close()
    assert middleware.closed == 1
    middleware.problem = ""
    driver.connection.join()
    assert middleware.joined == 2


def test_a_topic_whose_publishers_are_gone_is_a_lost_device(
    middleware: FakeMiddleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "_DISCOVERY_NS", 0)
    middleware.offer(P, kind=IMU)
    driver = live(ImuDriver, middleware, inertial())
    driver.open()
    read(driver)
    del middleware.topics["/a"]
    lost = [each for each in read(driver) if isinstance(each, Lost)]
    assert [(each.cause, each.count) for each in lost] == [("vanished", None)]
    monkeypatch.setattr(source, "GONE_NS", -1)
    with pytest.raises(DeviceError, match="the topic has no publisher any more"):
        read(driver)
    middleware.offer(Q, kind=IMU)
    driver.connection.join().look()
    middleware.send(1, inertial(5.0), publisher=b"q")
    driver.open()
    assert len(samples(read(driver))) == 1
