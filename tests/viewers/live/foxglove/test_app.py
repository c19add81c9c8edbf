"""The endpoint as the live process serves it, beside the dashboard and behind the same rules."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from tests.viewers.live.foxglove.client import Client, decode_schema
from tests.viewers.live.staging import staged
from tests.viewers.live.views.sensors import first

TOKEN = "a-token-of-some-length"


async def test_streams_and_events_reach_a_viewer_of_the_server() -> None:
    spec, _, message = first("camera")
    async with staged(token=TOKEN) as stage:
        stage.hub.declare(spec)
        client = await Client.open(f"ws://127.0.0.1:{stage.port}/foxglove?token={TOKEN}")
        await client.greeted("/camera/image", "/log")
        await client.subscribe("/camera/image", 1)
        await client.subscribe("/log", 2)
        await client.answered()
        stage.hub.put(message)
        image = decode_schema(client.channels["/camera/image"], (await client.data(1)).payload)
        assert image.data == bytes(message.frames[0])
        note = {"type": "event", "t_ns": "5", "kind": "mark", "stream": None, "text": "here"}
        stage.registry.notify(note)
        assert (await client.data(2)).t_ns == 5
        assert stage.registry.clients == 1
        await client.close()


@pytest.mark.parametrize("query", ["", "?token=wrong", f"?token={TOKEN[:-1]}"])
async def test_a_viewer_without_the_token_gets_nothing(query: str) -> None:
    async with staged(token=TOKEN) as stage:
        with pytest.raises(InvalidStatus) as refused:
            await Client.open(f"ws://127.0.0.1:{stage.port}/foxglove{query}")
        assert refused.value.response.status_code == 401
        assert stage.registry.clients == 0


async def test_a_page_of_another_origin_gets_nothing() -> None:
    async with staged(origins=["https://app.example", "file://"]) as stage:
        url = f"ws://127.0.0.1:{stage.port}/foxglove"
        with pytest.raises(InvalidStatus) as refused:
            await Client.open(url, origin="https://evil.example")
        assert refused.value.response.status_code == 403
        for origin in ("https://app.example", "file://"):  # a page, a desktop app
            client = await Client.open(url, origin=origin)
            await client.close()


async def test_viewers_count_as_clients_and_one_too_many_is_refused() -> None:
    async with staged(clients=2) as stage:
        url = f"ws://127.0.0.1:{stage.port}/foxglove"
        clients = [await Client.open(url) for _ in range(2)]
        with pytest.raises(InvalidStatus) as refused:
            await Client.open(url)
        assert refused.value.response.status_code == 503
        for client in clients:
            await client.close()
