"""Endpoint ``/foxglove``: the streams for Foxglove and Lichtblick."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket

import recorder
from recorder.common.errors import ConfigError
from recorder.perception.calibration import Calibration, read_calibration
from recorder.perception.foxglove.channels import Encoded, SampleChannel
from recorder.viewers.foxglove import protocol
from recorder.viewers.foxglove.catalog import Catalog, Channel
from recorder.viewers.foxglove.connection import Connection
from recorder.viewers.foxglove.protocol import SUBPROTOCOLS, Advertised
from recorder.viewers.foxglove.scene import (
    events_channel,
    label_channels,
    log_channel,
    transforms_channel,
)
from recorder.viewers.foxglove.services import config_parameters, offered_services
from recorder.viewers.live.access import strip_paths
from recorder.viewers.live.backend import Backend, StaticContent
from recorder.viewers.live.hub import Hub

T = TypeVar("T")


class Foxglove:
    """Server for viewers that speak the Foxglove WebSocket protocol.

    ::

        foxglove = Foxglove(hub, backend, executor, Shown(calibration=path))
        await foxglove.serve(websocket)      # the client passed the access rules

    Create it in the event loop.  Turn off the compression of WebSocket messages in the server: it
    does not make pictures smaller.

    Args:
        hub: the streams.
        backend: carries out requests: start, stop, mark.
        executor: thread pool that decodes and encodes.
        shown: what the server shows besides the streams.
        register: hands notes to a connection while it lasts (`ClientRegistry.register`).

    Attributes:
        connections: the connected viewers.
    """

    def __init__(
        self,
        hub: Hub,
        backend: Backend,
        executor: Executor,
        shown: StaticContent,
        *,
        register: Callable[[Connection], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        session = shown.session
        self.hub = hub
        self.playback = shown.playback
        self.name = "recorder" if session is None else session.name
        self.services = offered_services(backend.ops)
        self._backend = backend
        self._executor = executor
        self._config = shown.config or (lambda: session and session / "config.yaml")
        self._register = register
        self._id = str(uuid.uuid4())
        self.connections: set[Connection] = set()
        self._shared: dict[SampleChannel, tuple[object, asyncio.Future[Encoded]]] = {}
        self._making = asyncio.Lock()
        known, problem = _calibration(shown)
        others = [log_channel() if session is None else events_channel(session)]
        transforms = transforms_channel(known, session)
        others += [] if transforms is None else [transforms]
        others += [] if session is None else label_channels(session)
        self._catalog = Catalog(known, others)
        self._problem = {"calibration": problem} if problem else {}
        hub.on_change.append(self.refresh)

    async def serve(self, websocket: WebSocket) -> None:
        """Accept a viewer and serve it until the connection ends.

        A client that offers none of the subprotocols is refused with the status 400.
        """
        offered = websocket.scope["subprotocols"]
        chosen = next((known for known in SUBPROTOCOLS if known in offered), None)
        if chosen is None:
            text = f"The client offers none of the subprotocols {', '.join(SUBPROTOCOLS)}.\n"
            await websocket.send_denial_response(PlainTextResponse(text, 400))
            return
        await websocket.accept(subprotocol=chosen)
        connection = Connection(self, websocket)
        self.connections.add(connection)
        try:
            with self._register(connection):
                await connection.run()
        finally:
            self.connections.discard(connection)
            if not self.connections:
                self._shared.clear()

    def refresh(self) -> None:
        """React to streams that were declared or removed."""
        self._shared.clear()
        for connection in self.connections:
            connection.refresh()

    # What connections ask for

    @property
    def jumps(self) -> int:
        """Number of the playback's jumps: changes of its time other than by playing."""
        return 0 if self.playback is None else self.playback.position.jumps

    @property
    def problems(self) -> Mapping[str, str]:
        """Reasons why some channels are not offered, by stream (or ``calibration``)."""
        return {**self._problem, **self._catalog.problems}

    def info(self) -> str:
        """Return the first message to a viewer."""
        capabilities = ["parameters", "parametersSubscribe"]
        capabilities += ["services"] if self.services else []
        range_ns = None
        if self.playback is not None:
            capabilities += ["time", "playbackControl"]
            position = self.playback.position
            range_ns = position.start_ns, position.end_ns
        metadata = {"recorder": recorder.__version__, "mode": self._backend.mode}
        return protocol.server_info(
            self.name, capabilities, self._id, metadata=metadata, data_range_ns=range_ns
        )

    def now_ns(self) -> int:
        """Return the time that is shown, epoch ns."""
        if self.playback is not None:
            return self.playback.position.t_ns
        return time.monotonic_ns() + self.hub.offset_ns

    async def channels(self) -> dict[int, tuple[Advertised, Channel]]:
        """Return the channels that are offered now."""
        async with self._making:
            return await self.in_thread(lambda: self._catalog.channels(self.hub.specs))

    async def parameters(self) -> dict[str, Any]:
        """Return the values of the config, without secrets."""
        path = self._config()
        return {} if path is None else await self.in_thread(lambda: config_parameters(path))

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the backend; raise RecorderError where it refuses."""
        return await self._backend.request(op, values)

    async def encode(self, channel: SampleChannel, message: Any) -> Encoded:
        """Encode a data message for a channel, once for all viewers."""
        known = self._shared.get(channel)
        if known is None or known[0] is not message:
            encode, offset_ns = channel.encode, self.hub.offset_ns
            future = asyncio.ensure_future(self.in_thread(lambda: encode(message, offset_ns)))
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._shared[channel] = known = message, future
        return await asyncio.shield(known[1])

    async def encode_every(self, channel: SampleChannel, messages: list[Any]) -> Encoded:
        """Encode several data messages for a channel."""
        encode, offset_ns = channel.encode, self.hub.offset_ns

        def work() -> Encoded:
            return [each for message in messages for each in encode(message, offset_ns)]

        return await self.in_thread(work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run a function in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _calibration(shown: StaticContent) -> tuple[Calibration, str]:
    """Return the calibration, and the error in its file (empty without one)."""
    path, session = shown.calibration, shown.session
    if path is None and session is not None and (session / "calibration.yaml").is_file():
        path = session / "calibration.yaml"
    if path is None:
        return Calibration(), ""
    try:
        return read_calibration(path), ""
    except ConfigError as error:
        return Calibration(), strip_paths(str(error))
