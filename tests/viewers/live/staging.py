"""A real server on a real socket in the test's own event loop, with real WebSocket clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import cv2
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from recorder.bus.wire import Kind, Message, check_data
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import RecorderError, UsageError
from recorder.viewers.live.access import Access
from recorder.viewers.live.app import ClientRegistry, make_app
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.server import listen, make_server
from recorder.viewers.live.views import Drawing, View, make_view
from tests.support.waiting import turn_until

BROWSER: Final[Mapping[str, Any]] = {
    "compression": None,
    "max_size": None,
    "proxy": None,
    "max_queue": None,
    "ping_interval": None,
}
"""Connects as a browser does: takes what comes while nobody looks at it, and sends no pings."""
CAMERA = StreamSpec("camera", (ChannelSpec("video.avi", "mjpg", "u1", (8, 8, 3)),), rate_hz=30.0)
NUMBERS = StreamSpec("numbers", (ChannelSpec("x", "raw", "f4", (3,)),), rate_hz=100.0)


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decode a message of `pack`: return the header, and its arrays by name.

    Raises:
        ValueError: the bytes are not such a message.
    """
    size = int.from_bytes(message[:4], "little")
    header = json.loads(message[4 : 4 + size])
    arrays = {}
    for entry in header["arrays"]:
        count = int(np.prod(entry["shape"]))
        at = 4 + size + entry["offset"]
        flat = np.frombuffer(message, "<" + entry["dtype"], count, at)
        arrays[entry["name"]] = flat.reshape(entry["shape"])
    return header, arrays


def picture(number: int, *, size: int = 8) -> Message:
    """A camera's message; a picture of that number's grey, stamped with that number."""
    image = np.full((size, size, 3), number % 256, np.uint8)
    jpeg = cv2.imencode(".jpg", image)[1].tobytes()
    return message_of("camera", number, jpeg, (np.array([len(jpeg)], np.uint32),))


def message_of(
    stream: str, number: int, frame: bytes, sizes: tuple[Any, ...] = (), count: int = 1
) -> Message:
    return Message(
        Kind.DATA,
        stream,
        number=number,
        seq=number,
        count=count,
        t_mono_ns=np.arange(number + 1, number + 1 + count, dtype=np.int64),
        sizes=sizes,
        frames=[frame],
    )


class FakeBackend:
    """Takes `greet` and refuses `fail`."""

    mode = "live"
    ops = frozenset({"greet", "fail"})
    tasks: tuple[asyncio.Task[None], ...] = ()

    def __init__(self) -> None:
        self.viewers: list[int] = []

    def greeting(self) -> list[dict[str, Any]]:
        return [{"type": "status", "status": None}]

    def attend(self, viewers: int) -> None:
        self.viewers.append(viewers)

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        if op == "fail":
            raise RecorderError("refused")
        if "name" not in values:
            raise UsageError("greet: whom?")
        return {"session": values["name"]}

    async def close(self) -> None:
        pass


class Stage:
    """The server, its hub and its backend, while a scene plays."""

    def __init__(self, hub: Hub, registry: ClientRegistry, backend: FakeBackend, port: int) -> None:
        self.hub = hub
        self.registry = registry
        self.backend = backend
        self.port = port

    def connect(self, **options: Any) -> contextlib.AbstractAsyncContextManager[ClientConnection]:
        """A WebSocket to ``/live``."""
        url = f"ws://127.0.0.1:{self.port}/live" + options.pop("query", "")
        return connect(url, **{**BROWSER, **options})

    @contextlib.asynccontextmanager
    async def viewer(self, **options: Any) -> AsyncIterator[Viewer]:
        async with self.connect(**options) as socket:
            yield Viewer(socket)

    async def watching(
        self, viewer: Viewer, number: int, stream: str, view: str, **more: Any
    ) -> None:
        """Let a viewer watch a stream; returns when the hub knows."""
        await viewer.watch(number, stream, view, **more)
        await turn_until(lambda: stream in self.hub._watches)

    async def request(self, head: str, body: bytes = b"") -> Answer:
        """An HTTP request of any shape; `head` has no line of ``Host`` unless it is given."""
        lines = head.strip().splitlines()
        if not any(line.lower().startswith("host:") for line in lines):
            lines.insert(1, f"Host: 127.0.0.1:{self.port}")
        if not any(line.lower().startswith("connection:") for line in lines):
            lines.append("Connection: close")
        return await self.exchange("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def exchange(self, data: bytes, *, end: bool = False) -> Answer:
        """Send bytes, with `end` all that will come, and read until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            if end:
                writer.write_eof()
            with contextlib.suppress(ConnectionError):
                return Answer(await reader.read())
            return Answer(b"")
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


class Answer:
    """An HTTP answer."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first else 0
        pairs = (line.partition(": ") for line in lines)
        self.headers = {name.lower(): value for name, _, value in pairs}


class Viewer:
    """A browser by hand."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, **values: Any) -> None:
        await self.socket.send(json.dumps(values))

    async def watch(self, number: int, stream: str, view: str, **more: Any) -> None:
        await self.say(op="watch", id=number, stream=stream, view=view, **more)

    async def note(self, kind: str, when: Callable[[Any], bool] = lambda note: True) -> Any:
        """The next note of a type; what comes before it is skipped."""
        while True:
            message = await self.socket.recv()
            if isinstance(message, str):
                note = json.loads(message)
                if note["type"] == kind and when(note):
                    return note

    async def sample(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The next binary message: its header and its arrays."""
        while True:
            message = await self.socket.recv()
            if isinstance(message, bytes):
                return unpack(message)

    async def drawn(self, header: Mapping[str, Any]) -> None:
        await self.say(op="drawn", id=header["id"], number=header["number"])

    async def settled(self) -> list[Any]:
        """All that comes before the answer to a request that is sent now."""
        await self.say(op="greet", name="settled", request=-7)
        came: list[Any] = []
        while True:
            message = await self.socket.recv()
            if isinstance(message, str):
                note = json.loads(message)
                if note["type"] == "reply" and note["request"] == -7:
                    return came
                came.append(note)
            else:
                came.append(unpack(message))


@contextlib.asynccontextmanager
async def staged(
    *, bind: str = "127.0.0.1", clients: int = 4, **access: Any
) -> AsyncIterator[Stage]:
    """Serve until the block ends."""
    hub, registry, backend = Hub(), ClientRegistry(clients), FakeBackend()
    socket = listen("127.0.0.1", 0)
    port = socket.getsockname()[1]
    rules = Access(bind, access.get("token"), access.get("origins", ()), port=port)
    with ThreadPoolExecutor(2) as executor:
        server = make_server(make_app(hub, backend, registry, rules, executor), None, None)
        task = asyncio.create_task(server.serve(sockets=[socket]))
        try:
            await turn_until(lambda: server.started)
            yield Stage(hub, registry, backend, port)
        finally:
            server.should_exit = True
            await task
            socket.close()


class Every:
    """A view of every message, with a static drawing; the numbers of the messages are its array."""

    def __init__(self, spec: StreamSpec) -> None:
        self.every = True
        self.static: Drawing | None = Drawing(
            {"channels": [channel.name for channel in spec.channels]}, []
        )
        self._spec = spec

    def draw(self, messages: Sequence[Message]) -> Drawing:
        for message in messages:
            check_data(message, self._spec)
        return Drawing({}, [("numbers", np.array([message.number for message in messages]))])


def make_view_or_every(spec: StreamSpec, name: str, options: Mapping[str, Any]) -> View:
    """`make_view`, which also knows the view ``every``."""
    return Every(spec) if name == "every" else make_view(spec, name, options)
