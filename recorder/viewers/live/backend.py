"""Backend of the server, live or of a played session, and the server's life from start to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from recorder.common.errors import UsageError, need_extra
from recorder.config.settings import LiveSettings
from recorder.viewers.live.hub import Hub, Source

if TYPE_CHECKING:
    from recorder.viewers.live.player import Player

_DRAWING_THREADS = 2

Note = dict[str, Any]
"""One text message of the protocol ``/live`` (docs/live-views.md), with its ``type``."""
Notify = Callable[[Note], None]
"""Function that sends a note to every browser, in the event loop."""

LATEST = frozenset({"status", "streams", "timeline", "sessions", "playback"})
"""Types of notes of which only the newest matters: older ones are dropped for a slow browser."""


def read_send_ms() -> float:
    """Return CLOCK_MONOTONIC in ms: the send time from which browsers compute the age of a note."""
    return round(time.monotonic_ns() / 1e6, 1)


class Backend(Protocol):
    """Backend of the server: `LiveBackend`, or `PlaybackBackend` for a recorded session.

    Its constructor takes a `Notify`.  All methods are called in the event loop and never block.

    Attributes:
        mode: ``live`` or ``playback``.
        ops: the ``op`` of every request that the backend accepts.
    """

    mode: str
    ops: frozenset[str]

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """Tasks that run until `close`; the end of one is a defect, and ends the process."""

    def greeting(self) -> list[Note]:
        """Return the newest note of each type, for a new browser.

        A live backend leaves out ``status``, which may be old; `attend` brings the next one.
        """

    def attend(self, viewers: int) -> None:
        """Take the number of connected viewers, after each change."""

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request; `values` is the browser's message, unchecked.

        Returns:
            Further keys of the reply.

        Raises:
            RecorderError: the request is malformed or refused; the message goes to the browser.
        """

    async def close(self) -> None:
        """Stop all background work."""


@dataclass(frozen=True, slots=True)
class StaticContent:
    """Files and player of a server.

    Attributes:
        calibration: the rig's calibration file; None if the rig has no file, or if a recorded
            session's own calibration is used.
        config: returns the path of the config, or None; called at each use.  None: a recorded
            session's own config.
        playback: the player of a recorded session; None if the streams are live.
        session: folder of that session, for labels, poses and events.
    """

    calibration: Path | None = None
    config: Callable[[], Path | None] | None = None
    playback: Player | None = None
    session: Path | None = None


class Stage(Protocol):
    """Factory of what a server serves; called in the event loop."""

    def __call__(self, hub: Hub, notify: Notify, /) -> tuple[Backend, Source, StaticContent]:
        """Return a backend and a source, which are closed at the end, and further context."""


async def serve_backend(
    settings: LiveSettings, stage: Stage, announce: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: address, port and access of the server.
        stage: creates what is served.
        announce: called with the server's address when it listens.

    Raises:
        UsageError: the server cannot listen there, or the extra is not installed.
    """
    try:
        from recorder.viewers.live.access import Access
        from recorder.viewers.live.app import ClientRegistry, make_app
        from recorder.viewers.live.server import format_url, listen, make_server
    except ModuleNotFoundError as error:
        raise UsageError(f"the live view {need_extra('live')}: no {error.name}") from None
    socket = listen(settings.bind, settings.port)
    port = socket.getsockname()[1]
    secure = settings.certificate is not None
    executor = ThreadPoolExecutor(_DRAWING_THREADS, "draw")
    try:
        access = Access(settings.bind, settings.token, settings.origins, secure=secure, port=port)
        hub, registry = Hub(), ClientRegistry(settings.clients)
        backend, source, shown = stage(hub, registry.notify)
        try:
            hub.attach(source)
            app = make_app(hub, backend, registry, access, executor, shown)
            server = make_server(app, settings.certificate, settings.key)
            announce(format_url(settings.bind, port, secure=secure))
            served = asyncio.create_task(server.serve(sockets=[socket]))
            await asyncio.wait({served, *backend.tasks}, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            await served
            for task in backend.tasks:
                if task.done():
                    task.result()
        finally:
            await backend.close()
            source.close()
    finally:
        executor.shutdown(cancel_futures=True)
        socket.close()
