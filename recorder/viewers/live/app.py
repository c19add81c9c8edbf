"""Routes of the server: the page, its static files, the WebSockets, and their clients."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

import recorder
from recorder.codecs.streams import StreamSpec
from recorder.perception.frames import kind_of
from recorder.viewers.foxglove import Foxglove
from recorder.viewers.foxglove.connection import Connection
from recorder.viewers.live.access import HEADERS, Access
from recorder.viewers.live.backend import Backend, Note, StaticContent
from recorder.viewers.live.browser import Browser, converse
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.views import list_views

STATIC = Path(str(files("recorder.viewers.live"))) / "static"

_MESSAGES_HZ = 500.0
"""Average number of messages a second that are read from a browser."""
_BURST = 1000.0
_HEADERS = [(name.encode(), text.encode()) for name, text in HEADERS.items()]
_ENTERED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>recorder</title>
<meta http-equiv="refresh" content="0;url=/"><p><a href="/">Continue</a></p></html>"""
_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>recorder</title>
<meta name="viewport" content="width=device-width"><form method="get" action="/">
<label>Token <input name="token" type="password" autocomplete="current-password" autofocus></label>
<button>Enter</button></form></html>"""


class ClientRegistry:
    """Registry that admits clients up to a limit::

        async with registry.admit(websocket) as admitted:
            if admitted:
                await websocket.accept()
                ...

    Args:
        limit: largest number of clients, browsers and Foxglove together.

    Attributes:
        on_count: called with the number of clients after each change.
    """

    def __init__(self, limit: int) -> None:
        self.clients = 0
        self.on_count: list[Callable[[int], None]] = []
        self._limit = limit
        self._listeners: list[Browser | Connection] = []

    @contextlib.asynccontextmanager
    async def admit(self, websocket: WebSocket) -> AsyncIterator[bool]:
        """Count a client while it is connected; refuse it and yield False at the limit."""
        if self.clients >= self._limit:
            refusal = PlainTextResponse("Too many clients are connected.\n", 503)
            await websocket.send_denial_response(refusal)
            yield False
            return
        self._count(1)
        try:
            yield True
        finally:
            self._count(-1)

    @contextlib.contextmanager
    def register(self, listener: Browser | Connection) -> Iterator[None]:
        """Hand all notes to this listener."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def notify(self, note: Note) -> None:
        """Send a note to every browser."""
        for listener in self._listeners:
            listener.notify(note)

    def refresh(self) -> None:
        """Report to every listener that streams were declared or removed."""
        for listener in self._listeners:
            listener.refresh()

    def _count(self, change: int) -> None:
        self.clients += change
        for call in self.on_count:
            call(self.clients)


def make_app(
    hub: Hub,
    backend: Backend,
    registry: ClientRegistry,
    access: Access,
    executor: Executor,
    shown: StaticContent | None = None,
) -> ASGIApp:
    """Return the whole application, behind the access rules.

    Args:
        hub: the streams.
        backend: carries out requests.
        registry: counts the clients, and refuses them beyond its limit.
        access: the rules.
        executor: draws and packs.
        shown: what the server shows besides the streams.
    """
    foxglove = Foxglove(
        hub, backend, executor, shown or StaticContent(), register=registry.register
    )

    async def page(request: Request) -> Response:
        if access.shows_token(request.scope):
            # A redirect would go out without the cookie where the link was on another site.
            headers = {"set-cookie": access.cookie(), "cache-control": "no-store"}
            return HTMLResponse(_ENTERED, headers=headers)
        return FileResponse(STATIC / "index.html")

    async def live(websocket: WebSocket) -> None:
        async with registry.admit(websocket) as admitted:
            if not admitted:
                return
            await websocket.accept()
            browser = Browser(websocket, hub, backend, executor)
            hello = {"type": "hello", "version": recorder.__version__, "mode": backend.mode}
            browser.notify({**hello, "ops": sorted(backend.ops), "clients": registry.clients})
            for note in (streams_note(hub), *backend.greeting()):
                browser.notify(note)
            with registry.register(browser):
                await converse(websocket, [browser.run(), _read(websocket, browser)])

    async def for_foxglove(websocket: WebSocket) -> None:
        async with registry.admit(websocket) as admitted:
            if admitted:
                await foxglove.serve(websocket)

    def declared() -> None:
        registry.notify(streams_note(hub))
        registry.refresh()

    hub.on_change.append(declared)
    registry.on_count.append(backend.attend)
    routes = [
        Route("/", page),
        Mount("/static", StaticFiles(directory=STATIC)),
        WebSocketRoute("/live", live),
        WebSocketRoute("/foxglove", for_foxglove),
    ]
    return Guard(Starlette(routes=routes), access)


class Guard:
    """Middleware that applies the access rules and adds the headers of every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._access.find_refusal(scope)
        if scope["type"] == "websocket":
            if refusal is None:
                await self._app(scope, receive, send)
            else:
                status, text = refusal
                socket = WebSocket(scope, receive, send)
                await socket.send_denial_response(PlainTextResponse(text + "\n", status))
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                more = [header for header in _HEADERS if header[0] not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        app: ASGIApp = self._app
        if refusal is not None:
            status, text = refusal
            app = PlainTextResponse(text + "\n", status)
            if status == 401 and scope["path"] == "/":
                app = HTMLResponse(_LOGIN, status)
        await app(scope, receive, send_with_headers)


async def _read(websocket: WebSocket, browser: Browser) -> None:
    allowance, since_s = _BURST, time.monotonic()
    while (message := await websocket.receive())["type"] == "websocket.receive":
        browser.handle(message.get("text"))
        now_s = time.monotonic()
        allowance = min(_BURST, allowance + (now_s - since_s) * _MESSAGES_HZ) - 1
        since_s = now_s
        await asyncio.sleep(0 if allowance > 0 else 1 / _MESSAGES_HZ)


def streams_note(hub: Hub) -> Note:
    """Return the note ``streams``: each declared stream's sensor, kind, views and channels."""
    streams = {
        name: {"sensor": hub.sensors.get(name, name), **_describe(spec)}
        for name, spec in sorted(hub.specs.items())
    }
    return {"type": "streams", "streams": streams}


def _describe(spec: StreamSpec) -> dict[str, Any]:
    names = {channel.name for channel in spec.channels}
    return {
        "kind": "position" if "pos" in names else kind_of(spec),
        "views": list(list_views(spec)),
        "rate_hz": spec.rate_hz,
        "description": spec.description,
        "channels": {
            channel.name: {"shape": list(channel.shape), "unit": channel.unit}
            for channel in spec.channels
        },
    }
