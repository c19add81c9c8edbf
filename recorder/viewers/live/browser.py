"""Connection of one browser: its watches, and the messages that are sent to it.

At most one sample of each watch is in flight until the browser reports it as drawn.  So no older
sample waits in any buffer on the way, and the newest sample is drawn when the browser is ready.  Of
notes that replace each other (`LATEST`) only the newest waits.  So a stalled browser holds a
bounded number of bytes, and it is disconnected after `STALL_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import RecorderError, UsageError
from recorder.viewers.live.backend import LATEST, Backend, Note, read_send_ms
from recorder.viewers.live.hub import Hub, Watch
from recorder.viewers.live.views import Drawing, View, make_view
from recorder.viewers.live.views.drawing import pack, to_json

MOST_WATCHES = 32
MOST_HZ = 30.0
MOST_WAITING = 256
"""Largest number of queued notes for a browser, besides those that replace each other."""
MOST_BYTES = 16 << 20
"""Largest sample that is sent, in bytes."""
MOST_ERRORS = 20
"""Number of consecutive malformed messages after which a browser is disconnected."""
STALL_S = 15.0
"""Time after which a client that accepts no data is disconnected, in seconds."""
_MOST_ID = 1 << 31
_CLOSE_S = 1.0

T = TypeVar("T")


_EARLY: Final = 0.3
"""Share of the stream's interval by which a sample may precede its turn."""


class RateLimit:
    """Rate limit of a viewer that prefers samples that have just come over samples that waited.

    ::

        pace = Pace(period_s, rate_hz)
        ...                                     # a sample has come
        pause_s, patience_s = pace.compute_wait(now_s)  # sleep, then wait for a newer sample
        pace.record_shown(now_s)

    Turns are one period apart on average: a turn that waited for its sample does not delay the
    turns after it.

    Args:
        period_s: interval between two samples that the viewer is shown.
        rate_hz: the stream's rate, if it is known.
    """

    def __init__(self, period_s: float, rate_hz: float | None) -> None:
        self._period_s = period_s
        self._interval_s = min(1.0 / rate_hz, period_s) if rate_hz else 0.0
        self._due_s = float("-inf")

    def compute_wait(self, now_s: float) -> tuple[float, float]:
        """Return how long to let samples pass, and then how long to wait for the next, in seconds.

        Both are 0 from the turn on.  A sample that came before the turn would be old at the turn:
        the next sample is shown instead, or the newest sample if none comes for an interval.
        """
        wait_s = self._due_s - now_s
        if wait_s <= 0.0:
            return 0.0, 0.0
        pause_s = max(0.0, wait_s - _EARLY * self._interval_s)
        return pause_s, (wait_s - pause_s + self._interval_s) if self._interval_s else 0.0

    def record_shown(self, now_s: float) -> None:
        """Record that a sample is shown now."""
        waited = now_s - self._due_s <= self._interval_s  # else the stream paused
        self._due_s = (self._due_s if waited else now_s) + self._period_s


class Socket(Protocol):
    """Interface of a browser's WebSocket."""

    async def send_text(self, data: str) -> None:
        """Send a text message; return when there is room for another."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message; return when there is room for another."""


class DisconnectError(RecorderError):
    """End of a client's connection, with the reason that the client is sent."""


async def converse(websocket: WebSocket, work: Iterable[Awaitable[None]]) -> None:
    """Do all work of a connection until one ends; send the client the reason, if there is one."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, DisconnectError):
            with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
                async with asyncio.timeout(_CLOSE_S):
                    await websocket.close(1008, str(result))
        elif isinstance(result, Exception) and not isinstance(result, WebSocketDisconnect):
            raise result


async def send_message(socket: Socket, message: str | bytes, client: str) -> None:
    """Send a message; wait until there is room.

    Raises:
        DisconnectError: there was no room for `STALL_S`.
    """
    try:
        async with asyncio.timeout(STALL_S):
            if isinstance(message, str):
                await socket.send_text(message)
            else:
                await socket.send_bytes(message)
    except TimeoutError:
        raise DisconnectError(f"the {client} takes nothing") from None


class Browser:
    """A connected browser; `handle` its messages while `run` runs::

        browser = Browser(websocket, hub, backend, executor)
        async with asyncio.TaskGroup() as group:
            group.create_task(browser.run())
            async for text in websocket.iter_text():
                browser.handle(text)

    Args:
        socket: the connection.
        hub: the streams.
        backend: carries out its requests.
        executor: thread pool that draws.
    """

    def __init__(self, socket: Socket, hub: Hub, backend: Backend, executor: Executor) -> None:
        self.hub = hub
        self.executor = executor
        self.live = backend.mode == "live"
        self._socket = socket
        self._backend = backend
        self._shown: dict[int, _WatchTask] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._latest: dict[str, Note] = {}
        self._waiting: deque[Note] = deque()
        self._news = asyncio.Event()
        self._sending = asyncio.Lock()
        self._errors = 0
        self.numbers = itertools.count(1)  # of samples, so that none is reported for another watch
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def notify(self, note: Note) -> None:
        """Send a note when there is room; never blocks."""
        if note["type"] in LATEST:
            self._latest[note["type"]] = note
        elif len(self._waiting) < MOST_WAITING:
            self._waiting.append(note)
        else:
            self.fail(DisconnectError("too many notes wait"))
        self._news.set()

    def fail(self, error: BaseException) -> None:
        """Have `run` end with this error."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def run(self) -> None:
        """Send notes until the connection is lost or the browser stalls.

        Raises:
            DisconnectError: the browser must be disconnected.
        """
        sender = asyncio.create_task(self._send_notes())
        try:
            await asyncio.wait({sender, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (self._failed, sender):
                if ended.done():
                    ended.result()
        finally:
            self._failed.cancel()
            tasks = [sender, *self._requests, *(shown.task for shown in self._shown.values())]
            for shown in self._shown.values():
                shown.close()
            self._shown.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def handle(self, text: str | bytes | None) -> None:
        """Handle one message of the browser; answer a malformed one with an error."""
        try:
            values = _parse(text)
            op = values.get("op")
            match op:
                case "watch":
                    self._watch(values)
                case "unwatch":
                    shown = self._shown.pop(_identifier(values), None)
                    if shown is not None:
                        shown.close()
                case "drawn":
                    shown = self._shown.get(_identifier(values))
                    if shown is not None:
                        shown.confirm_drawn(values.get("number"))
                case str() if op in self._backend.ops:
                    self._request(op, values)
                case _:
                    raise UsageError(f"there is no op {str(op)[:40]!r} here")
            self._errors = 0
        except UsageError as error:
            self._errors += 1
            if self._errors > MOST_ERRORS:
                self.fail(DisconnectError("too many malformed messages"))
            self.notify({"type": "error", "text": str(error)})

    def refresh(self) -> None:
        """Restart the watches of streams that were declared again or removed."""
        for shown in self._shown.values():
            shown.news.set()

    def _watch(self, values: Mapping[str, Any]) -> None:
        number = _identifier(values)
        stream, view, options = values.get("stream"), values.get("view"), values.get("options")
        if not isinstance(stream, str) or not isinstance(view, str):
            raise UsageError("watch: stream and view are texts")
        if not isinstance(options, dict | None):
            raise UsageError("watch: options is not an object")
        if number in self._shown:
            self._shown.pop(number).close()
        if len(self._shown) >= MOST_WATCHES:
            raise UsageError(f"watch: {MOST_WATCHES} is the most")
        hz = values.get("max_hz")
        hz = MOST_HZ if hz is None else hz
        if isinstance(hz, bool) or not isinstance(hz, int | float) or not 0.01 <= hz <= 1000.0:
            raise UsageError("watch: max_hz is not a number from 0.01 to 1000")
        shown = _WatchTask(self, number, stream, view, options or {}, 1.0 / min(hz, MOST_HZ))
        self._shown[number] = shown

    def _request(self, op: str, values: Mapping[str, Any]) -> None:
        if len(self._requests) >= MOST_WATCHES:
            raise UsageError(f"{op}: too many requests wait for an answer")
        task = asyncio.create_task(self._answer(op, values))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _answer(self, op: str, values: Mapping[str, Any]) -> None:
        reply: Note = {"type": "reply", "request": values.get("request"), "op": op}
        try:
            reply |= {"ok": True, "error": None, **await self._backend.request(op, values)}
        except RecorderError as error:
            reply |= {"ok": False, "error": str(error)}
        if isinstance(reply["request"], int | str):
            self.notify(reply)
        elif not reply["ok"]:
            self.notify({"type": "error", "text": reply["error"]})

    async def _send_notes(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._latest or self._waiting:
                if self._waiting:
                    note = self._waiting.popleft()
                else:
                    note = self._latest.pop(next(iter(self._latest)))
                await self.send(to_json(note))

    async def send(self, message: str | bytes) -> None:
        """Send a message; see `send_message`."""
        async with self._sending:
            await send_message(self._socket, message, "browser")


@dataclass(eq=False)
class _WatchTask:
    """One watch of a browser; draws the newest sample when the browser has drawn the last one."""

    browser: Browser
    watch_id: int
    stream: str
    view: str
    options: dict[str, Any]
    period_s: float

    def __post_init__(self) -> None:
        self.news = asyncio.Event()  # a message, or another declaration
        self._complained, self._drawn, self._sample = False, asyncio.Event(), 0
        self._watch: Watch | None = None
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(self._handle_end)

    def confirm_drawn(self, number: Any) -> None:
        """Take the browser's report that it has drawn the sample of that number."""
        if number == self._sample:
            self._drawn.set()

    def close(self) -> None:
        self.task.cancel()
        if self._watch is not None:
            self._watch.close()

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.browser.fail(error)

    async def _run(self) -> None:
        hub = self.browser.hub
        while True:
            spec = hub.specs.get(self.stream)
            if spec is not None:
                await self._show(spec)
            while hub.specs.get(self.stream) == spec:
                await self._wait_for_news()

    async def _show(self, spec: StreamSpec) -> None:
        """Show samples until the stream's declaration changes, or its view is refused."""
        hub = self.browser.hub
        try:
            view = await self._in_thread(lambda: make_view(spec, self.view, self.options))
        except RecorderError as error:  # no such view, a wrong option, or a damaged file of optics
            self._complain(str(error))
            return
        if view.static is not None:
            await self._send(view.static, self._values(static=True))
        self._watch = watch = hub.watch(self.stream, self.news.set, every=view.every)
        rate_limit = RateLimit(self.period_s, spec.rate_hz)
        try:
            while hub.specs.get(self.stream) == spec:
                await self._wait_for_news()
                await self._wait_for_turn(rate_limit)
                messages = watch.take_every() if view.every else [watch.take()]
                data = [m for m in messages if m is not None and m.kind is Kind.DATA]
                if data:
                    rate_limit.record_shown(time.monotonic())
                    await self._draw(view, data)
        finally:
            watch.close()

    async def _wait_for_news(self) -> None:
        await self.news.wait()
        self.news.clear()

    async def _wait_for_turn(self, rate_limit: RateLimit) -> None:
        """Wait for the watch's turn, and then for a sample that is due soon."""
        pause_s, patience_s = rate_limit.compute_wait(time.monotonic())
        if pause_s + patience_s > 0.0:
            await asyncio.sleep(pause_s)
            self.news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._wait_for_news()

    async def _draw(self, view: View, messages: list[Message]) -> None:
        try:
            drawing = await self._in_thread(lambda: view.draw(messages))
        except Exception as error:  # noqa: BLE001  # a strange sample ends no viewer
            self._complain(f"{self.stream}: cannot be drawn: {type(error).__name__}: {error}")
            return
        if drawing is None:
            return
        self._complained = False
        self._drawn.clear()
        self._sample = next(self.browser.numbers)
        newest = messages[-1]
        times = newest.t_mono_ns
        mono_ns = int(times[-1] if isinstance(times, np.ndarray) else times)
        age_ms = None  # of a played sample: the position says
        if self.browser.live:
            age_ms = round(max(0, time.monotonic_ns() - mono_ns) / 1e6, 1)
        values = self._values(
            seq=newest.next_seq - 1,
            t_ns=str(mono_ns + self.browser.hub.offset_ns),
            age_ms=age_ms,
            sent_ms=read_send_ms(),
            static=False,
        )
        if await self._send(drawing, values):
            await self._drawn.wait()

    def _values(self, **more: Any) -> dict[str, Any]:
        return {
            "id": self.watch_id,
            "number": self._sample,
            "stream": self.stream,
            "view": self.view,
            **more,
        }

    async def _send(self, drawing: Drawing, values: dict[str, Any]) -> bool:
        """Send a drawing; return False if it is too large."""
        packed = await self._in_thread(lambda: pack(values, drawing))
        if len(packed) > MOST_BYTES:
            self._complain(f"{self.stream}: a sample of {len(packed)} bytes is not sent")
            return False
        await self.browser.send(packed)
        return True

    def _complain(self, text: str) -> None:
        """Report a problem once, until a drawing succeeds again."""
        if not self._complained:
            self._complained = True
            self.browser.notify({"type": "error", "text": text, "id": self.watch_id})

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.browser.executor, work)


def _parse(text: str | bytes | None) -> dict[str, Any]:
    if not isinstance(text, str):
        raise UsageError("a message is a text")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError("the message is not JSON") from None
    if not isinstance(values, dict):
        raise UsageError("the message is not an object")
    return values


def _identifier(values: Mapping[str, Any]) -> int:
    number = values.get("id")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _MOST_ID:
        raise UsageError("id is not a whole number")
    return number
