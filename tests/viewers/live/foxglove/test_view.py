"""``recorder view`` in Foxglove: a recorded session from the disk to a viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from recorder.perception.labels import cuboid_files
from recorder.session.playback import Chunk, play
from recorder.session.reader import Session
from tests.viewers.live.foxglove.client import Client, Received, decode_schema, stamp_ns
from tests.viewers.live.test_view import recorded as recorded
from tests.viewers.live.test_view import viewing


def address(url: str) -> str:
    return url.replace("http", "ws", 1) + "foxglove"


async def answer(client: Client, request: str) -> dict[str, Any]:
    """The playback's state in answer to a request."""
    while (state := await client.op("playbackState"))["request"] != request:
        pass
    return state


async def message_at(client: Client, subscription: int, t_ns: int) -> Received:
    """The next message of a subscription with this log time."""
    while (message := await client.data(subscription)).t_ns != t_ns:
        pass
    return message


@pytest.mark.campaign(weight=4)
async def test_a_seek_shows_the_stored_samples(recorded: Path) -> None:
    (labels,) = cuboid_files(recorded)
    sets = [t_ns for t_ns, _ in labels.by_time()]
    session = Session(recorded)
    pictures = [item for item in play(session, ["camera"]) if isinstance(item, Chunk)]
    times = session.stream("camera").times()

    with viewing(recorded, "--no-browser") as result:
        client = await Client.open(address(result["url"]), "foxglove.sdk.v1")
        info = await client.op("serverInfo")
        assert "playbackControl" in info["capabilities"]
        assert info["name"] == "drive"
        await client.greeted("/camera/image", "/imu", "/labels/truth", "/log", "/tf")
        for number, topic in enumerate(("/camera/image", "/labels/truth", "/tf")):
            await client.subscribe(topic, number)
        for index in (40, 7):
            there = int(times[index])
            await client.control(play=False, seek_ns=there, request=f"go {index}")
            state = await answer(client, f"go {index}")
            assert (state["status"], state["t_ns"], state["seeked"]) == (1, there, True)
            picture = await message_at(client, 0, there)
            image = decode_schema(client.channels["/camera/image"], picture.payload)
            assert stamp_ns(image.timestamp) == there
            (chunk,) = [item for item in pictures if there in item.t_ns]
            stored = chunk.data["video.avi"][int(np.searchsorted(chunk.t_ns, there))]
            assert image.data == bytes(stored)
            newest = max(t_ns for t_ns in sets if t_ns <= there)
            await message_at(client, 1, newest)
        await client.subscribe("/imu", 3)
        await client.control(play=True, speed=16.0, request="on")
        stamps = [(await client.data(3)).t_ns for _ in range(50)]
        assert set(stamps) <= {int(t_ns) for t_ns in session.stream("imu").times()}
        await client.until(lambda m: isinstance(m, dict) and m.get("status") == 3)  # ended
        await client.close()
    session.close()


async def test_a_desktop_app_connects_where_its_origin_is_permitted(recorded: Path) -> None:
    with viewing(recorded, "--no-browser", "--origin", "file://") as result:
        client = await Client.open(address(result["url"]), origin="file://")
        await client.greeted("/camera/image")
        await client.close()
        with pytest.raises(InvalidStatus) as refused:
            await Client.open(address(result["url"]), origin="app://other")
        assert refused.value.response.status_code == 403
