"""Connection of one viewer: its requests, its subscriptions, and the messages to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from starlette.websockets import WebSocket

from recorder.bus.wire import Kind, Message
from recorder.common.errors import ProtocolError, RecorderError
from recorder.perception.foxglove.channels import Encoded, SampleChannel
from recorder.viewers.foxglove import protocol
from recorder.viewers.foxglove.catalog import Channel, TimedChannel
from recorder.viewers.foxglove.outbox import Outbox
from recorder.viewers.foxglove.playback import PlaybackControl
from recorder.viewers.foxglove.protocol import Advertised, Level
from recorder.viewers.foxglove.scene import log_message
from recorder.viewers.foxglove.services import parse_arguments
from recorder.viewers.live.access import strip_paths
from recorder.viewers.live.backend import Note
from recorder.viewers.live.browser import DisconnectError, converse, send_message

if TYPE_CHECKING:
    from recorder.viewers.foxglove.endpoint import Foxglove

MOST_ERRORS: Final = 50
"""Number of malformed messages after which a viewer is disconnected."""
MOST_CALLS: Final = 8
"""Largest number of service calls at a time."""
_READ_S: Final = 0.002
"""Pause after each message of the viewer, so that a flood of messages leaves time to others."""
_MOST_EVENTS: Final = 256
_SERIES_BYTES: Final = 1 << 20
_ENCODED_AT_ONCE: Final = 2
_TICK_S: Final = 0.25
_PLAYBACK_TICK_S: Final = 0.05


class Connection:
    """Connection of one viewer; `run` returns when the connection has ended.

    Args:
        server: the server that the viewer is connected to.
        websocket: the accepted connection.
    """

    def __init__(self, server: Foxglove, websocket: WebSocket) -> None:
        self._server = server
        self._socket = websocket
        self._outbox = Outbox()
        self._encoding = asyncio.Semaphore(_ENCODED_AT_ONCE)
        self._offered: dict[int, tuple[Advertised, Channel]] = {}
        self._subscribed: dict[int, tuple[int, asyncio.Task[None]]] = {}  # channel and task
        self._calls: set[asyncio.Task[None]] = set()
        self._logs: dict[int, asyncio.Queue[Note]] = {}
        self._streams_changed = asyncio.Event()
        self._errors = 0
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._playback = None
        if server.playback is not None:
            self._playback = PlaybackControl(server.playback, self._outbox)

    @property
    def nbytes(self) -> int:
        """Queued bytes for the viewer."""
        return self._outbox.nbytes

    def notify(self, note: Note) -> None:
        """Take a note; notes of the type ``event`` go to the log."""
        if note["type"] == "event":
            for queue in self._logs.values():
                with contextlib.suppress(asyncio.QueueFull):
                    queue.put_nowait(note)

    def refresh(self) -> None:
        """React to streams that were declared or removed."""
        self._streams_changed.set()

    async def run(self) -> None:
        """Serve the viewer until it disconnects, stalls, or sends too many malformed messages."""
        await self._greet()
        work: list[Awaitable[None]] = [self._send(), self._read(), self._advertise(), self._failed]
        if self._playback is not None:
            work.append(self._playback.run())
        try:
            await converse(self._socket, work)
        finally:
            tasks = [*self._calls, *(task for _, task in self._subscribed.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _greet(self) -> None:
        server = self._server
        await self._outbox.answer(server.info())
        if server.services:
            services = (service for _, service in server.services.values())
            await self._outbox.answer(protocol.advertise_services(services))
        await self._update_channels()
        for about, problem in server.problems.items():
            await self._status(Level.WARNING, f"{about}: not all is shown: {problem}")

    # Channels

    async def _advertise(self) -> None:
        while True:
            await self._streams_changed.wait()
            self._streams_changed.clear()
            await self._update_channels()

    async def _update_channels(self) -> None:
        before, offered = self._offered, await self._server.channels()
        self._offered = offered
        gone = before.keys() - offered.keys()
        for subscription, (channel, _) in list(self._subscribed.items()):
            if channel in gone or before.get(channel, (0, 0))[1] is not offered[channel][1]:
                await self._unsubscribe(subscription)
                if channel in offered:  # another declaration of the same schema
                    self._subscribe(subscription, channel)
        if gone:
            await self._outbox.answer(protocol.unadvertise(sorted(gone)))
        new = [offered[number][0] for number in sorted(offered.keys() - before.keys())]
        if new or not before:
            await self._outbox.answer(protocol.advertise(new))

    # What the viewer sends

    async def _read(self) -> None:
        while (received := await self._socket.receive())["type"] == "websocket.receive":
            text = received.get("text")
            try:
                if text is not None:
                    message = protocol.parse_text(text)
                else:
                    message = protocol.parse_binary(received.get("bytes") or b"")
                await self._handle(message)
            except ProtocolError as error:
                self._errors += 1
                await self._status(Level.ERROR, str(error))
                if self._errors > MOST_ERRORS:
                    raise DisconnectError("too many malformed messages") from None
            await asyncio.sleep(_READ_S)

    async def _handle(self, message: protocol.ClientMessage) -> None:
        server = self._server
        match message:
            case protocol.Subscribe(pairs):
                for subscription, channel in pairs:
                    await self._take_subscription(subscription, channel)
            case protocol.Unsubscribe(subscriptions):
                for subscription in subscriptions:
                    if subscription in self._subscribed:
                        await self._unsubscribe(subscription)
                    else:
                        text = f"there is no subscription {subscription}"
                        await self._status(Level.WARNING, text)
            case protocol.GetParameters(names, request):
                await self._send_parameters(names, request)
            case protocol.SetParameters(names, request):
                await self._status(Level.WARNING, "the parameters cannot be changed")
                await self._send_parameters(names, request)
            case protocol.ServiceCall():
                if len(self._calls) >= MOST_CALLS:
                    await self._refuse(message, "too many calls wait for an answer")
                else:
                    self._calls.add(task := asyncio.create_task(self._call(message)))
                    task.add_done_callback(self._handle_call_end)
            case protocol.PlaybackRequest():
                if self._playback is None:
                    raise ProtocolError(f"{server.name} is live: there is no playback to control")
                await self._playback.handle(message)
            case protocol.Ignored():
                pass

    async def _send_parameters(self, names: tuple[str, ...], request: str | None) -> None:
        known = await self._server.parameters()
        chosen = {name: known[name] for name in names if name in known} if names else known
        parameters: list[dict[str, Any]] = []
        for name, value in chosen.items():
            kind = {"type": "float64"} if isinstance(value, float) else {}
            parameters.append({"name": name, "value": value, **kind})
        await self._outbox.answer(protocol.parameter_values(parameters, request))

    async def _call(self, call: protocol.ServiceCall) -> None:
        op, _ = self._server.services.get(call.service, ("", None))
        try:
            if not op:
                raise ProtocolError(f"there is no service {call.service}")
            if call.encoding != "json":
                raise ProtocolError(f"{op}: the encoding is {call.encoding[:40]!r}, not json")
            reply = await self._server.request(op, parse_arguments(op, call.payload))
        except RecorderError as error:
            await self._refuse(call, str(error))
            return
        values = {"ok": True, "session": str(reply.get("session") or ""), "error": ""}
        payload = json.dumps(values).encode()
        await self._outbox.answer(protocol.service_response(call.service, call.call, payload))

    def _handle_call_end(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._handle_end(task)

    async def _refuse(self, call: protocol.ServiceCall, why: str) -> None:
        failure = protocol.service_failure(call.service, call.call, why)
        await self._outbox.answer(failure)

    # Subscriptions

    async def _take_subscription(self, subscription: int, channel: int) -> None:
        taken = {number for number, _ in self._subscribed.values()}
        if channel not in self._offered:
            await self._status(Level.ERROR, f"there is no channel {channel}")
        elif subscription in self._subscribed:
            await self._status(Level.ERROR, f"there is a subscription {subscription} already")
        elif channel in taken:
            topic = self._offered[channel][0].topic
            await self._status(Level.WARNING, f"{topic} is subscribed already")
        else:
            self._subscribe(subscription, channel)

    def _subscribe(self, subscription: int, channel: int) -> None:
        task = asyncio.create_task(self._serve(subscription, self._offered[channel][1]))
        task.add_done_callback(self._handle_end)
        self._subscribed[subscription] = channel, task

    async def _unsubscribe(self, subscription: int) -> None:
        _, task = self._subscribed.pop(subscription, (0, None))
        if task is not None:  # else it ended meanwhile
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._outbox.drop(subscription)

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        """Handle the end of one of the viewer's tasks: an error ends the connection."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _serve(self, subscription: int, channel: Channel) -> None:
        if isinstance(channel, SampleChannel):
            await self._serve_stream(subscription, channel)
        elif isinstance(channel, TimedChannel):
            await self._serve_time(subscription, channel)
        else:
            await self._serve_log(subscription)

    async def _serve_stream(self, subscription: int, channel: SampleChannel) -> None:
        news = asyncio.Event()
        loop, server = asyncio.get_running_loop(), self._server
        watch = server.hub.watch(
            channel.stream, news.set, every=channel.every, most_bytes=_SERIES_BYTES
        )
        due_s, complained = 0.0, False
        try:
            while True:
                await news.wait()
                await asyncio.sleep(due_s - loop.time())
                await self._outbox.until_idle(subscription)
                async with self._encoding:
                    news.clear()
                    taken = watch.take_every() if channel.every else [watch.take()]
                    messages = [m for m in taken if m is not None and m.kind is Kind.DATA]
                    due_s = loop.time() + (1 / channel.most_hz if channel.most_hz else 0.0)
                    try:
                        encoded = await self._encode(channel, messages)
                    except Exception as error:  # noqa: BLE001  # a strange sample ends no viewer
                        if not complained:
                            complained = True
                            await self._cannot_show(channel, error)
                        continue
                    complained = False
                    await self._put(subscription, encoded)
        finally:
            watch.close()

    async def _encode(self, channel: SampleChannel, messages: list[Message]) -> Encoded:
        if channel.every:
            return await self._server.encode_every(channel, messages)
        return await self._server.encode(channel, messages[-1]) if messages else []

    async def _serve_time(self, subscription: int, channel: TimedChannel) -> None:
        server = self._server
        due, jumps, complained = channel.timed(), server.jumps, False
        while True:
            if jumps != server.jumps:  # the viewer forgot what it has
                due, jumps = channel.timed(), server.jumps
            await self._outbox.until_idle(subscription)
            async with self._encoding:
                t_ns = server.now_ns()
                try:
                    await self._put(subscription, await server.in_thread(lambda: due(t_ns)))  # noqa: B023
                    complained = False
                except (RecorderError, OSError) as error:
                    if not complained:
                        complained = True
                        await self._cannot_show(channel, error)
            await asyncio.sleep(_TICK_S if server.playback is None else _PLAYBACK_TICK_S)

    async def _serve_log(self, subscription: int) -> None:
        queue: asyncio.Queue[Note] = asyncio.Queue(_MOST_EVENTS)
        self._logs[subscription] = queue
        try:
            while True:
                encoded = [log_message(await queue.get())]
                await self._put(subscription, encoded)
                await self._outbox.until_idle(subscription)
        finally:
            del self._logs[subscription]

    # Sending

    async def _put(self, subscription: int, encoded: Encoded) -> None:
        if encoded:
            frames = [protocol.message_data(subscription, t_ns, *parts) for t_ns, parts in encoded]
            await self._outbox.put(subscription, frames)

    async def _cannot_show(self, channel: Channel, error: Exception) -> None:
        kind = "" if isinstance(error, RecorderError) else f"{type(error).__name__}: "
        why = strip_paths(f"{kind}{error}")
        await self._status(Level.WARNING, f"{channel.topic}: cannot be shown: {why}")

    async def _status(self, level: Level, text: str) -> None:
        await self._outbox.answer(protocol.status(level, text))

    async def _send(self) -> None:
        while True:
            await send_message(self._socket, await self._outbox.take(), "viewer")
