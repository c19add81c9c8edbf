"""Registry of the connected clients: their number, and notes for all browsers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket

from recorder.viewers.live.backend import Note


class Listener(Protocol):
    """Receiver of notes; see `recorder.viewers.live.browser.Browser`."""

    def notify(self, note: Note) -> None:
        """Take a note; never blocks."""

    def refresh(self) -> None:
        """React to streams that were declared or removed."""


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
        self._listeners: list[Listener] = []

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
    def register(self, listener: Listener) -> Iterator[None]:
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
