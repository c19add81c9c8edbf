"""Life of one server from start to end, for the live process and for `recorder view`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from recorder.common.errors import UsageError, need_extra
from recorder.config.settings import LiveSettings
from recorder.viewers.live.backend import Backend, Notify, StaticContent
from recorder.viewers.live.hub import Hub, Source

_DRAWING_THREADS = 2


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
