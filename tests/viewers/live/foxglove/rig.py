"""A real server on a real socket, with a hub that the test fills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from recorder.bus.wire import Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import UsageError
from recorder.viewers.foxglove import Foxglove
from recorder.viewers.live.access import Access
from recorder.viewers.live.app import ClientRegistry, Guard
from recorder.viewers.live.backend import Note, StaticContent
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.server import listen, make_server
from tests.viewers.live.foxglove.client import SUBPROTOCOL, Client

OFFSET_NS = 1_717_236_000_000_000_123
ALLOWED = "http://viewer.example"


class FakeBackend:
    """Answers requests; `asked` has them."""

    mode = "live"
    tasks: tuple[asyncio.Task[None], ...] = ()

    def __init__(self, ops: frozenset[str] = frozenset({"start", "stop", "mark"})) -> None:
        self.ops = ops
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def greeting(self) -> list[Note]:
        return []

    def attend(self, viewers: int) -> None:
        pass

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((op, dict(values)))
        if values.get("name") == "taken":
            raise UsageError("start: 'taken' exists already")
        return {"session": "drive_1"}

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class FakePosition:
    start_ns: int = OFFSET_NS
    end_ns: int = OFFSET_NS + 10_000_000_000
    t_ns: int = OFFSET_NS
    playing: bool = False
    speed: float = 1.0
    jumps: int = 0
    ended: bool = False


@dataclass
class FakePlayer:
    """A player whose time only passes by seeking."""

    position: FakePosition = field(default_factory=FakePosition)
    refused: str = ""

    def _moved(self, **changes: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.refused:
            future.set_exception(UsageError(self.refused))
        else:
            self.position = replace(self.position, **changes)
            future.set_result(self.position)
        return future

    def play(self) -> Future[Any]:
        return self._moved(playing=True)

    def pause(self) -> Future[Any]:
        return self._moved(playing=False)

    def set_speed(self, speed: float) -> Future[Any]:
        return self._moved(speed=speed)

    def seek(self, t_ns: int) -> Future[Any]:
        return self._moved(t_ns=t_ns, jumps=self.position.jumps + 1)


class Rig:
    """A running server."""

    def __init__(self, hub: Hub, foxglove: Foxglove, backend: FakeBackend, url: str) -> None:
        self.hub, self.foxglove, self.backend, self.url = hub, foxglove, backend, url
        self.registry = ClientRegistry(8)
        self._stack = AsyncExitStack()

    async def client(self, subprotocol: str = SUBPROTOCOL, **options: Any) -> Client:
        client = await Client.open(self.url, subprotocol, **options)
        self._stack.push_async_callback(client.close)
        return client

    async def viewing(self, topic: str, subscription: int) -> Client:
        """Return a client whose subscription the server has."""
        client = await (await self.client()).greeted(topic)
        await client.subscribe(topic, subscription)
        await client.answered()
        return client

    def put(self, spec: StreamSpec, *messages: Message) -> None:
        self.hub.declare(spec)
        for message in messages:
            self.hub.put(message)

    async def wait_until_watched(self, stream: str) -> None:
        """Return when a stream is watched."""
        while stream not in self.hub._watches:
            await asyncio.sleep(0.001)

    async def unwatched(self, stream: str) -> None:
        while stream in self.hub._watches:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(
    *,
    specs: tuple[StreamSpec, ...] = (),
    token: str | None = None,
    calibration: Path | None = None,
    backend: FakeBackend | None = None,
    config: Path | None = None,
    playback: FakePlayer | None = None,
    session: Path | None = None,
) -> AsyncIterator[Rig]:
    """Serve until the block ends."""
    hub, backend = Hub(0 if playback else OFFSET_NS), backend or FakeBackend()
    for spec in specs:
        hub.declare(spec)
    executor = ThreadPoolExecutor(2)
    registry = ClientRegistry(8)
    player: Any = playback
    shown = StaticContent(calibration, None if config is None else lambda: config, player, session)
    foxglove = Foxglove(hub, backend, executor, shown, register=registry.register)

    async def route(websocket: WebSocket) -> None:
        async with registry.admit(websocket) as admitted:
            if admitted:
                await foxglove.serve(websocket)

    app = Guard(
        Starlette(routes=[WebSocketRoute("/foxglove", route)]),
        Access("127.0.0.1", token, [ALLOWED]),
    )
    socket = listen("127.0.0.1", 0)
    server = make_server(app, None, None)
    task = asyncio.create_task(server.serve(sockets=[socket]))
    port = socket.getsockname()[1]
    rig = Rig(hub, foxglove, backend, f"ws://127.0.0.1:{port}/foxglove")
    rig.registry = registry
    try:
        yield rig
    finally:
        await rig._stack.aclose()
        server.should_exit = True
        await task
        executor.shutdown()
        socket.close()
