"""Taps into the hub, over real sockets: only what is watched, and always the newest."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from recorder.bus.sockets import TapPublisher, tap_address
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.tap_source import TapSource
from tests.support.waiting import turn_until

CHANNELS = (ChannelSpec("x", "raw", "u1", (4,)),)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="r"))  # addresses of sockets are short
    yield path
    shutil.rmtree(path)


class Rig:
    """A lidar's tap, published to by hand."""

    def __init__(self, folder: Path) -> None:
        self.address = tap_address(folder, "lidar")
        self.tap = TapPublisher(self.address)
        self.number = 0
        self.declare("lidar", "lidar_imu")

    def declare(self, *names: str) -> None:
        for name in names:
            self.tap.declare(StreamSpec(name, CHANNELS, rate_hz=10.0))

    def publish(self, stream: str, size: int = 4) -> int:
        self.number += 1
        times = np.array([self.number], np.int64)
        message = Message(
            Kind.DATA, stream, number=self.number, count=1, t_mono_ns=times, frames=[b"x" * size]
        )
        self.tap.publish(message)
        return self.number


@asynccontextmanager
async def tapping(folder: Path) -> AsyncIterator[tuple[Rig, Hub, TapSource]]:
    hub = Hub()
    source = TapSource(hub)
    hub.attach(source)
    rig = Rig(folder)
    source.update({"lidar": rig.address}, NAMES)
    try:
        yield rig, hub, source
    finally:
        source.close()
        rig.tap.close()


NAMES = {"lidar": ["lidar", "lidar_imu"]}


async def test_streams_are_declared_without_a_viewer_and_then_nothing_is_subscribed(
    folder: Path,
) -> None:
    async with tapping(folder) as (rig, hub, _source):

        def both() -> bool:
            rig.publish("lidar")
            return set(hub.specs) == {"lidar", "lidar_imu"}

        await turn_until(both)
        names = ("lidar", "lidar_imu")
        await turn_until(lambda: not any(map(rig.tap.wanted, names)))
        assert hub.sensors == dict.fromkeys(names, "lidar")


async def test_only_the_watched_stream_is_subscribed_to(folder: Path) -> None:
    async with tapping(folder) as (rig, hub, _source):
        watch = hub.watch("lidar", lambda: None, every=True)
        taken: list[Message] = []

        def some() -> bool:
            rig.publish("lidar_imu")
            rig.publish("lidar")
            taken.extend(watch.take_every())
            return len(taken) > 3 and len(hub.specs) == 2

        await turn_until(some)
        assert {message.stream for message in taken} == {"lidar"}
        assert bytes(taken[0].frames[0]) == b"xxxx"
        assert not rig.tap.wanted("lidar_imu")
        assert hub.newest_ns("lidar_imu") is None and hub.newest_ns("lidar") is not None
        watch.close()
        await turn_until(lambda: not rig.tap.wanted("lidar"))


async def test_a_driver_that_restarts_is_watched_again(folder: Path) -> None:
    async with tapping(folder) as (rig, hub, _source):
        watch = hub.watch("lidar", lambda: None)
        await turn_until(lambda: rig.publish("lidar") and watch.take())
        rig.tap.close()
        rig.tap = TapPublisher(rig.address)
        wider = (ChannelSpec("x", "raw", "u1", (8,)),)
        rig.tap.declare(StreamSpec("lidar", wider, rate_hz=20.0))
        first = rig.number

        def later() -> bool:
            rig.publish("lidar", 8)
            message = watch.take()
            return message is not None and message.number > first

        await turn_until(later)
        assert hub.specs["lidar"].rate_hz == 20.0  # the new declaration came before its data


async def test_streams_of_sensors_that_are_gone_are_removed(folder: Path) -> None:
    async with tapping(folder) as (rig, hub, source):
        await turn_until(lambda: rig.publish("lidar") and len(hub.specs) == 2)
        source.update({"lidar": rig.address}, {"lidar": ["lidar"]})
        await turn_until(lambda: set(hub.specs) == {"lidar"})
        source.update({}, {})
        await turn_until(lambda: not hub.specs)


async def test_garbage_on_a_tap_is_left_out(folder: Path) -> None:
    async with tapping(folder) as (rig, hub, _source):
        watch = hub.watch("lidar", lambda: None)

        def turn() -> Message | None:
            rig.tap._socket.send_multipart([b"lidar", b"\xc1"])
            rig.tap._socket.send_multipart([b"lidar"])
            rig.publish("lidar")
            return watch.take()

        await turn_until(turn)
