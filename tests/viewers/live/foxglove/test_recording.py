"""A viewer beside a real daemon: what it is shown is what is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recorder.session.playback import Chunk
from recorder.session.playback import play as stored
from recorder.session.reader import Session
from tests.recording.daemon.served import Served
from tests.viewers.live.foxglove.client import Client, Received, decode_schema, stamp_ns
from tests.viewers.live.test_live_process import Live
from tests.viewers.live.test_live_process import live as live
from tests.viewers.live.test_live_process import served as served


@pytest.mark.campaign(weight=4)
async def test_shown_samples_and_stamps_are_those_of_the_session(
    served: Served, live: Live
) -> None:
    received: dict[int, list[Received]] = {1: [], 2: []}
    decoded: dict[int, list[object]] = {1: [], 2: []}
    client = await Client.open(live.url.replace("http", "ws", 1) + "foxglove")
    offered = (await client.op("advertiseServices"))["services"]
    numbers = {service["name"]: service["id"] for service in offered}
    await client.greeted("/log")
    rate: dict[str, Any] = {"parameters": []}
    while not rate["parameters"]:  # they are known with the daemon's first status
        await client.send(op="getParameters", parameterNames=["sensors.imu.rate"], id="rate")
        rate = await client.op("parameterValues")
    assert rate["parameters"] == [{"name": "sensors.imu.rate", "value": 100}]
    await client.subscribe("/log", 3)
    await client.call(numbers["/recorder/start"], 1, b'{"name": "tour"}')
    reply = await client.op("serviceCallResponse")
    assert reply["values"] == {"ok": True, "session": "tour", "error": ""}
    await client.call(numbers["/recorder/mark"], 2, b'{"text": "pothole"}')
    text = ""  # other events may come before; after it the session's clock is known
    while "pothole" not in text:
        entry = await client.data(3)
        text = decode_schema(client.channels["/log"], entry.payload).message
    assert text == "mark: pothole"
    await client.greeted("/camera/image", "/imu")  # simulated sensors begin with the session
    await client.subscribe("/camera/image", 1)
    await client.subscribe("/imu", 2)
    while min(map(len, received.values())) < 20:
        found = await client.until(lambda m: getattr(m, "subscription", 0) in received)
        topic = {1: "/camera/image", 2: "/imu"}[found.subscription]
        received[found.subscription].append(found)
        decoded[found.subscription].append(decode_schema(client.channels[topic], found.payload))
    await client.call(numbers["/recorder/stop"], 4, b"")
    assert (await client.op("serviceCallResponse"))["values"]["ok"]
    await client.close()
    session = Session(served.root / "tour")
    pictures = {
        int(t_ns): bytes(picture)
        for item in stored(session, ["camera"])
        if isinstance(item, Chunk)
        for t_ns, picture in zip(item.t_ns, item.data["video.avi"], strict=True)
    }
    for found, image in zip(received[1], decoded[1], strict=True):
        assert found.t_ns == stamp_ns(image.timestamp)  # type: ignore[attr-defined]
        assert image.data == pictures[found.t_ns]  # type: ignore[attr-defined]
    imu = session.stream("imu")
    index = {int(t_ns): at for at, t_ns in enumerate(imu.times())}
    values = imu.read(channels=["acc", "rot"])
    stamps = [found.t_ns for found in received[2]]
    assert stamps == sorted(set(stamps)) and index.keys() >= set(stamps)  # a tap may drop some
    for found, sample in zip(received[2], decoded[2], strict=True):
        assert isinstance(sample, dict)
        for name, column in values.items():
            np.testing.assert_array_equal(np.float32(sample[name]), column[index[found.t_ns]])
    session.close()
