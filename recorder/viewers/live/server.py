"""HTTP server: uvicorn on a socket of ours, with limits that uvicorn lacks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from recorder.common.errors import UsageError
from recorder.viewers.live.access import MOST_HEAD

MOST_MESSAGE = 64 * 1024
"""Largest WebSocket message of a client, in bytes."""
MOST_CONNECTIONS = 64
"""Largest number of connections at a time, of all kinds."""
REQUEST_S = 10.0
"""Time after which a connection without a complete request is closed, in seconds."""
_CLOSE_S = 5.0
_END_S = 2


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket.

    Args:
        address: an IPv4 or IPv6 address, or a host name.
        port: 0: the system chooses one.

    Raises:
        UsageError: the address cannot be bound; the message names address and port.
    """
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"live.bind: {address}: {error.strerror or error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
        bound.listen(MOST_CONNECTIONS)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise UsageError(
            f"live.port: {address} port {port} cannot be used: {error.strerror or error}"
        ) from None
    return bound


def format_url(address: str, port: int, *, secure: bool) -> str:
    """Return the URL of the page; of this machine where the server listens on all addresses."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, address)
    name = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"http{'s' if secure else ''}://{name}:{port}/"


class _Http(H11Protocol):
    """HTTP protocol that closes connections without a request, and those beyond the limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience: asyncio.TimerHandle | None = None
        self._wait_for_request()
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: Any = self.cycle  # of the newest request; None before the first
        if cycle is None or cycle.response_complete:
            self._wait_for_request()  # not longer for a client that sends a byte now and then
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(REQUEST_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        if self.transport.get_protocol() is self:  # not a WebSocket meanwhile
            self.transport.abort()


class _WebSocket(WebSocketsSansIOProtocol):
    """WebSocket protocol that drops unsent bytes after the connection has been closed."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # refused: no error of the application

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self.loop.call_later(_CLOSE_S, self.transport.abort)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals so that they end the server in order, and the process with 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True


def make_server(app: Any, certificate: Path | None, key: Path | None) -> uvicorn.Server:
    """Return the server of an ASGI app; its ``serve`` returns after SIGTERM or SIGINT.

    Raises:
        UsageError: the TLS files cannot be used.
    """
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # requests hold tokens: none is logged
    config = uvicorn.Config(
        app,
        http=_Http,
        ws=_WebSocket,
        ws_max_size=MOST_MESSAGE,
        ws_per_message_deflate=False,
        h11_max_incomplete_event_size=MOST_HEAD,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_END_S,
    )
    try:
        config.load()
    except OSError as error:  # includes ssl.SSLError
        raise UsageError(f"live.certificate: {certificate}: {error.strerror or error}") from None
    return _Server(config)
