"""Distribution of the watched streams: from a source's thread to the viewers in the event loop.

A source declares streams and puts messages; a viewer watches a stream and takes new messages::

    hub = Hub()                                  # in the event loop
    hub.attach(source)                           # the source receives the watched streams
    watch = hub.watch("camera", wake=event.set)
    await event.wait()
    message = watch.take()                       # the newest; earlier messages are skipped
    watch.close()

The hub does not decode, copy or wait.  A viewer that takes nothing costs one message, or
`most_bytes` if it wants every message.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec

MOST_BYTES = 4 << 20
"""Default size of the queue of a viewer that wants every message, in bytes."""


class Source(Protocol):
    """Source of messages: the drivers' taps, or the player of a recorded session."""

    def want(self, streams: frozenset[str]) -> None:
        """Deliver these streams from now on, and no others.

        Called in the event loop; never blocks.
        """

    def close(self) -> None:
        """Stop the source; return when its thread has ended."""


@dataclass(eq=False)
class Watch:
    """Subscription of one viewer to one stream; created by `Hub.watch`, used in the event loop.

    Attributes:
        hub: the hub.
        stream: name of the stream.
        wake: called in the event loop when there is a message.
        every: the viewer wants every message.
        most_bytes: size of the queue, in bytes.
        dropped: messages that were dropped because the viewer, which wants every message, was late.
    """

    hub: Hub
    stream: str
    wake: Callable[[], None]
    every: bool
    most_bytes: int
    dropped: int = 0
    _bytes: int = 0
    _waiting: deque[Message] = field(default_factory=deque)

    def take(self) -> Message | None:
        """Return the newest data message, unless it was taken before; else None."""
        with self.hub._lock:
            message = self._waiting.pop() if self._waiting else None
            self._forget()
        return message

    def take_every(self) -> list[Message]:
        """Return all messages since the last call, oldest first; `dropped` counts dropped ones."""
        with self.hub._lock:
            messages = list(self._waiting)
            self._forget()
        return messages

    def close(self) -> None:
        """End the subscription; may be called twice."""
        self.hub._unwatch(self)

    def _forget(self) -> None:
        self._waiting.clear()
        self._bytes = 0

    def _offer(self, message: Message) -> bool:
        """Add a message, with the hub's lock held; return True if the viewer must be woken."""
        if not self.every:
            if message.kind is not Kind.DATA:
                return False
            self._forget()
        self._waiting.append(message)
        self._bytes += message.nbytes
        while self._bytes > self.most_bytes and len(self._waiting) > 1:
            self._bytes -= self._waiting.popleft().nbytes
            self.dropped += 1
        return True


class Hub:
    """All watches; used in the event loop in which it is created.

    Attributes:
        specs: the streams by name, as their source declared them.
        sensors: name of the sensor of every declared stream.
        offset_ns: offset from ``t_mono`` to epoch ns; 0 for a player, whose ``t_mono`` is epoch ns.
        on_change: called in the event loop when streams were declared or removed.
    """

    def __init__(self, offset_ns: int = 0) -> None:
        self.specs: Mapping[str, StreamSpec] = {}
        self.sensors: Mapping[str, str] = {}
        self.offset_ns = offset_ns
        self.on_change: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._source: Source | None = None
        self._watches: dict[str, tuple[Watch, ...]] = {}
        self._newest: dict[str, Message] = {}  # of watched streams, for viewers who join
        self._due: dict[Watch, None] = {}
        self._newest_ns: dict[str, int] = {}
        self._changed = False
        self._called = False  # the loop will call `_deliver`

    def attach(self, source: Source) -> None:
        """Set the source, which from now on receives the names of the watched streams."""
        self._source = source
        source.want(frozenset(self._watches))

    def declare(self, spec: StreamSpec, sensor: str | None = None) -> None:
        """Register a stream's declaration; thread-safe.  Repeating it costs nothing.

        Args:
            spec: the declaration.
            sensor: name of its sensor; default: the stream's name.
        """
        with self._lock:
            if self.specs.get(spec.name) == spec:
                return
            self._newest.pop(spec.name, None)  # of another declaration
            self.sensors = {**self.sensors, spec.name: sensor or spec.name}
            self.specs = {**self.specs, spec.name: spec}  # readers keep the mapping they have
            self._changed = True
            self._call()

    def remove(self, stream: str) -> None:
        """Remove a stream that is no longer declared; thread-safe.  Its watches remain."""
        with self._lock:
            if stream not in self.specs:
                return
            self.specs = {name: spec for name, spec in self.specs.items() if name != stream}
            self._newest.pop(stream, None)
            self._changed = True
            self._call()

    def put(self, message: Message) -> None:
        """Hand a message (`Kind.DATA`, ``STATE`` or ``LOST``) to its viewers; thread-safe.

        Without a viewer the message is dropped.  Its frames must not change afterwards.
        """
        with self._lock:
            watches = self._watches.get(message.stream)
            if watches is None:
                return
            if message.kind is Kind.DATA:
                self._newest[message.stream] = message
                times = message.t_mono_ns
                last = times.max() if isinstance(times, np.ndarray) else times
                self._newest_ns[message.stream] = int(last)
            woken = [watch for watch in watches if watch._offer(message)]
            if woken:
                self._due.update(dict.fromkeys(woken))
                self._call()

    def forget(self, stream: str) -> None:
        """Drop a stream's queued messages, so that no viewer receives them; thread-safe."""
        with self._lock:
            self._newest.pop(stream, None)
            for watch in self._watches.get(stream, ()):
                watch._forget()

    def watch(
        self,
        stream: str,
        wake: Callable[[], None],
        *,
        every: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> Watch:
        """Watch a stream, declared or not; in the event loop.

        Args:
            stream: its name.
            wake: called in the event loop when there is something to take.
            every: deliver all messages of all kinds, instead of the newest data message.
            most_bytes: queue size; beyond it the oldest messages are dropped.
        """
        watch = Watch(self, stream, wake, every, most_bytes)
        with self._lock:
            before = self._watches.get(stream)
            self._watches[stream] = (*(before or ()), watch)
            newest = self._newest.get(stream)
            if newest is not None and watch._offer(newest):
                self._due[watch] = None
                self._call()
        if before is None:
            self._update_source()
        return watch

    def newest_ns(self, stream: str) -> int | None:
        """Return ``t_mono`` of the newest received sample, ns; None before the first."""
        return self._newest_ns.get(stream)

    def _unwatch(self, watch: Watch) -> None:
        with self._lock:
            before = self._watches.get(watch.stream, ())
            if watch not in before:
                return
            after = tuple(other for other in before if other is not watch)
            watch._forget()
            self._due.pop(watch, None)
            if after:
                self._watches[watch.stream] = after
                return
            del self._watches[watch.stream]
            self._newest.pop(watch.stream, None)
        self._update_source()

    def _update_source(self) -> None:
        if self._source is not None:
            self._source.want(frozenset(self._watches))

    def _call(self) -> None:
        """Schedule `_deliver` in the loop, with the lock held; many messages cost one call."""
        if self._called:
            return
        self._called = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            due, self._due = list(self._due), {}
            changed, self._changed = self._changed, False
            self._called = False
        for watch in due:
            watch.wake()
        if changed:
            for call in tuple(self.on_change):
                call()
