"""One browser on a real socket: at most one undrawn sample, always the newest, and no garbage."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.viewers.live import browser as browser_module
from recorder.viewers.live.browser import (
    MOST_ERRORS,
    MOST_WAITING,
    MOST_WATCHES,
    Browser,
    DisconnectError,
    RateLimit,
)
from recorder.viewers.live.hub import Hub
from tests.support.waiting import turn_until
from tests.viewers.live.staging import (
    CAMERA,
    NUMBERS,
    FakeBackend,
    Stage,
    Viewer,
    make_view_or_every,
    message_of,
    picture,
    staged,
)


@pytest.fixture(autouse=True)
def every(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_module, "make_view", make_view_or_every)


@asynccontextmanager
async def watched(
    number: int, spec: StreamSpec = CAMERA, view: str = "picture"
) -> AsyncIterator[tuple[Stage, Viewer]]:
    """A browser that watches a stream: the pictures of a camera."""
    async with staged() as stage, stage.viewer() as viewer:
        stage.hub.declare(spec)
        await stage.watching(viewer, number, spec.name, view)
        yield stage, viewer


async def samples(viewer: Viewer) -> list[Any]:
    """The samples among what comes before the answer to a request."""
    return [item for item in await viewer.settled() if isinstance(item, tuple)]


async def test_a_browser_is_greeted_and_told_of_streams() -> None:
    async with staged() as stage:
        stage.hub.declare(CAMERA)
        async with stage.viewer() as viewer:
            hello = await viewer.note("hello")
            assert hello["mode"] == "live" and hello["clients"] == 1
            streams = (await viewer.note("streams"))["streams"]
            assert streams["camera"]["kind"] == "camera"
            assert streams["camera"]["views"] == ["picture"]
            assert (await viewer.note("status"))["status"] is None
            stage.hub.declare(NUMBERS, "box")
            streams = (await viewer.note("streams", lambda note: len(note["streams"]) == 2))[
                "streams"
            ]
            assert streams["numbers"]["sensor"] == "box"
        await turn_until(lambda: stage.backend.viewers == [1, 0])


async def test_one_sample_is_in_flight_until_it_is_drawn_and_then_the_newest_comes() -> None:
    async with watched(3) as (stage, viewer):
        stage.hub.put(picture(0))
        header, arrays = await viewer.sample()
        assert (header["id"], header["number"], header["seq"]) == (3, 1, 0)
        assert header["t_ns"] == "1" and not header["static"]
        assert bytes(arrays["jpeg"]) == bytes(picture(0).frames[0])
        for number in range(1, 50):
            stage.hub.put(picture(number))
        assert await samples(viewer) == []  # it has not drawn the first
        await viewer.say(op="drawn", id=3, number=99)  # of no sample that was sent
        assert await samples(viewer) == []
        await viewer.drawn(header)
        header, _ = await viewer.sample()
        assert (header["number"], header["seq"]) == (2, 49)


async def test_a_sample_that_came_before_its_turn_gives_way_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = iter([(0.0, 0.0), (0.0, 3600.0), (0.0, 0.01)])
    monkeypatch.setattr(RateLimit, "compute_wait", lambda self, now_s: next(turns))
    async with watched(3) as (stage, viewer):
        stage.hub.put(picture(0))
        header, _ = await viewer.sample()
        await viewer.drawn(header)
        await viewer.settled()
        stage.hub.put(picture(1))
        assert await samples(viewer) == []
        stage.hub.put(picture(2))
        header, _ = await viewer.sample()
        assert header["seq"] == 2
        await viewer.drawn(header)
        await viewer.settled()
        stage.hub.put(picture(3))  # no further one comes
        assert (await viewer.sample())[0]["seq"] == 3


async def test_a_sample_of_an_earlier_watch_is_not_taken_for_one_of_the_later() -> None:
    async with watched(1) as (stage, viewer):
        stage.hub.put(picture(0))
        before, _ = await viewer.sample()
        await viewer.watch(1, "camera", "picture", options={"width": 0})
        await viewer.settled()
        await turn_until(lambda: "camera" in stage.hub._watches)
        stage.hub.put(picture(1))
        header, _ = await viewer.sample()
        await viewer.drawn(before)
        stage.hub.put(picture(2))
        assert await samples(viewer) == []
        await viewer.drawn(header)
        assert (await viewer.sample())[0]["seq"] == 2


async def test_views_of_every_message_get_all_that_came_meanwhile() -> None:
    async with watched(0, NUMBERS, "every") as (stage, viewer):
        static, _ = await viewer.sample()
        assert static["static"] and static["number"] == 0
        stage.hub.put(message_of("numbers", 0, bytes(12)))
        header, arrays = await viewer.sample()
        assert arrays["numbers"].tolist() == [0]
        for number in range(1, 6):
            stage.hub.put(message_of("numbers", number, bytes(12)))
        await viewer.drawn(header)
        header, arrays = await viewer.sample()
        assert arrays["numbers"].tolist() == [1, 2, 3, 4, 5]
        assert header["seq"] == 5


async def test_unwatch_and_disconnect_end_the_subscription() -> None:
    async with staged() as stage:
        stage.hub.declare(CAMERA)
        async with stage.viewer() as viewer:
            await stage.watching(viewer, 1, "camera", "picture")
            await viewer.say(op="unwatch", id=1)
            await turn_until(lambda: "camera" not in stage.hub._watches)
            await stage.watching(viewer, 1, "camera", "picture")
        await turn_until(lambda: "camera" not in stage.hub._watches)


async def test_a_stream_that_is_declared_later_or_anew_is_shown_by_its_new_declaration() -> None:
    async with staged() as stage, stage.viewer() as viewer:
        await viewer.watch(1, "numbers", "every")
        await viewer.settled()
        stage.hub.declare(NUMBERS)
        static, _ = await viewer.sample()
        assert static["header"]["channels"] == ["x"]
        wider = StreamSpec("numbers", (ChannelSpec("y", "raw", "f4", (2,)),), rate_hz=1.0)
        stage.hub.declare(wider)
        static, _ = await viewer.sample()
        assert static["header"]["channels"] == ["y"]
        await turn_until(lambda: "numbers" in stage.hub._watches)
        stage.hub.put(message_of("numbers", 0, bytes(8)))
        header, _ = await viewer.sample()
        assert header["seq"] == 0


async def test_a_message_that_cannot_be_drawn_is_reported_once_and_the_next_one_shown() -> None:
    async with watched(1, NUMBERS, "every") as (stage, viewer):
        await viewer.sample()
        stage.hub.put(message_of("numbers", 0, b"odd"))
        error = await viewer.note("error")
        assert error["id"] == 1 and error["text"].startswith("numbers: ")
        stage.hub.put(message_of("numbers", 1, bytes(12)))
        header, _ = await viewer.sample()
        assert header["seq"] == 1


async def test_requests_are_answered_under_their_number() -> None:
    async with staged() as stage, stage.viewer() as viewer:
        await viewer.say(op="greet", request=5, name="ada")
        reply = await viewer.note("reply")
        assert reply == {
            "type": "reply",
            "request": 5,
            "op": "greet",
            "ok": True,
            "error": None,
            "session": "ada",
        }
        await viewer.say(op="fail", request=6)
        reply = await viewer.note("reply")
        assert (reply["request"], reply["ok"], reply["error"]) == (6, False, "refused")
        await viewer.say(op="greet")
        assert (await viewer.note("error"))["text"] == "greet: whom?"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("nonsense", "not JSON"),
        ("[1]", "not an object"),
        ("[" * 60_000, "not JSON"),
        ('{"op": "shout"}', "no op 'shout'"),
        ('{"op": "watch", "id": -1, "stream": "a", "view": "b"}', "id is not"),
        ('{"op": "watch", "id": true, "stream": "a", "view": "b"}', "id is not"),
        ('{"op": "watch", "id": 1, "stream": 1, "view": "b"}', "are texts"),
        ('{"op": "watch", "id": 1, "stream": "a", "view": "b", "options": 3}', "not an object"),
        ('{"op": "watch", "id": 1, "stream": "a", "view": "b", "max_hz": 0}', "max_hz"),
        ('{"op": "watch", "id": 1, "stream": "a", "view": "b", "max_hz": NaN}', "max_hz"),
        ('{"op": "drawn", "id": "x"}', "id is not"),
        (b"\x00\x01", "a message is a text"),
    ],
)
async def test_malformed_messages_are_answered_with_the_reason(
    message: str | bytes, text: str
) -> None:
    async with staged() as stage, stage.viewer() as viewer:
        await viewer.socket.send(message)
        assert text in (await viewer.note("error"))["text"]
        assert await viewer.settled() is not None


async def test_an_unknown_view_and_a_wrong_option_are_answered() -> None:
    async with staged() as stage, stage.viewer() as viewer:
        stage.hub.declare(CAMERA)
        await viewer.watch(1, "camera", "sweep")
        error = await viewer.note("error")
        assert error["id"] == 1 and "sweep" in error["text"]
        await viewer.watch(2, "camera", "picture", options={"width": "wide"})
        assert (await viewer.note("error"))["id"] == 2


async def test_a_browser_that_sends_only_garbage_is_disconnected() -> None:
    async with staged() as stage, stage.viewer() as viewer, stage.viewer() as other:
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await viewer.socket.send("?")
                await viewer.note("error")
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert await other.settled() is not None


async def test_watches_are_limited() -> None:
    async with staged() as stage, stage.viewer() as viewer:
        for number in range(MOST_WATCHES + 1):
            await viewer.watch(number, "camera", "picture")
        assert "the most" in (await viewer.note("error"))["text"]


async def test_a_message_beyond_the_limit_closes_the_connection() -> None:
    async with staged() as stage, stage.viewer() as viewer:
        await viewer.socket.send("x" * 100_000)
        with pytest.raises(ConnectionClosed) as closed:
            await viewer.note("never")
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


async def test_clients_beyond_the_limit_are_refused_until_one_leaves() -> None:
    async with staged(clients=2) as stage:
        from websockets.exceptions import InvalidStatus

        async with stage.viewer() as first:
            await first.note("hello")
            async with stage.viewer() as second:
                await second.note("hello")
                with pytest.raises(InvalidStatus) as refused:
                    async with stage.viewer():
                        pass
                assert refused.value.response.status_code == 503
            await turn_until(lambda: stage.registry.clients == 1)
            async with stage.viewer() as third:
                await third.note("hello")


@pytest.mark.campaign
async def test_a_stalled_browser_is_disconnected_and_others_see_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browser_module, "STALL_S", 1.0)
    async with staged() as stage:
        stage.hub.declare(CAMERA)
        async with stage.connect(max_queue=1, close_timeout=0.1), stage.viewer() as viewer:
            await stage.watching(viewer, 1, "camera", "picture")
            number = 0
            while stage.registry.clients == 2:
                stage.hub.put(picture(number))
                stage.registry.notify({"type": "event", "text": "x" * 1_000_000})
                number += 1
                header, _ = await viewer.sample()
                await viewer.drawn(header)
            assert number > 0


class Stuck:
    """A connection that takes nothing any more."""

    def __init__(self) -> None:
        self.sent = 0

    async def send_text(self, data: str) -> None:
        self.sent += 1
        await asyncio.Event().wait()

    async def send_bytes(self, data: bytes) -> None:
        self.sent += 1
        await asyncio.Event().wait()


async def test_a_stalled_browser_holds_a_bounded_number_of_bytes() -> None:
    size = 1 << 20
    hub, socket = Hub(), Stuck()
    hub.declare(NUMBERS)
    with ThreadPoolExecutor(2) as executor:
        browser = Browser(socket, hub, FakeBackend(), executor)
        running = asyncio.create_task(browser.run())
        for number, view in enumerate(("every", "every")):
            watch: Mapping[str, Any] = {
                "op": "watch",
                "id": number,
                "stream": "numbers",
                "view": view,
            }
            browser.handle(json.dumps(watch))
        await turn_until(lambda: socket.sent)
        tracemalloc.start()
        for number in range(200):
            hub.put(message_of("numbers", number, bytes(size), count=size // 12))
            browser.notify({"type": "status", "number": number, "more": "x" * size})
            await asyncio.sleep(0)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert held < 20 * size, held


async def test_notes_that_replace_each_other_wait_once_and_too_many_others_end_the_browser() -> (
    None
):
    hub, socket = Hub(), Stuck()
    with ThreadPoolExecutor(1) as executor:
        browser = Browser(socket, hub, FakeBackend(), executor)
        running = asyncio.create_task(browser.run())
        for number in range(10 * MOST_WAITING):
            browser.notify({"type": "status", "number": number})
        await asyncio.sleep(0)
        assert not running.done()
        for number in range(MOST_WAITING + 2):
            browser.notify({"type": "event", "number": number})
        with pytest.raises(DisconnectError):
            await running


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
KEYS = ("id", "stream", "view", "options", "max_hz", "number", "request", "name")
OPS = st.sampled_from(("watch", "unwatch", "drawn", "greet", "fail", "start", "")) | JSON
MESSAGES = (
    st.fixed_dictionaries({"op": OPS}, optional=dict.fromkeys(KEYS, JSON)).map(json.dumps)
    | st.text(max_size=200)
    | st.binary(max_size=200)
    | JSON.map(json.dumps)
)


@given(st.lists(MESSAGES, max_size=MOST_ERRORS))
async def test_no_message_of_any_shape_ends_a_browser_or_the_server(
    messages: list[str | bytes],
) -> None:
    hub, sent = Hub(), list[str]()

    class Kept:
        async def send_text(self, data: str) -> None:
            json.loads(data)
            sent.append(data)

        async def send_bytes(self, data: bytes) -> None:
            raise AssertionError("nothing was put")

    hub.declare(NUMBERS)
    with ThreadPoolExecutor(1) as executor:
        browser = Browser(Kept(), hub, FakeBackend(), executor)
        running = asyncio.create_task(browser.run())
        for message in messages:
            browser.handle(message if isinstance(message, str) else None)
            await asyncio.sleep(0)
        browser.handle('{"op": "greet", "name": "done", "request": "end"}')
        await turn_until(lambda: any('"end"' in text for text in sent))
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
