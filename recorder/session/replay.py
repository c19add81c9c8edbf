"""The replay of a recorded session on a live tap, at its own speed or another.

Subscribers receive the same as from a live recording (`recorder.bus.sockets.TapSubscriber`): the
same declarations, the same encoded frames, ``t_mono`` on this machine's monotonic clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from recorder.bus.wire import Kind, Message
from recorder.codecs import CHANNEL_FORMATS, Framing, payload
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock
from recorder.common.errors import SessionError
from recorder.common.files import Buffer
from recorder.session.playback import (
    Chunk,
    Hole,
    get_play_time_ns,
    play,
    read_chunk,
    recorded_spec,
)
from recorder.session.reader import Session
from recorder.session.stream import Stream

_MAX_WAIT_S = 0.2


class Publisher(Protocol):
    """The tap that a replay publishes to; see `recorder.bus.sockets.TapPublisher`."""

    def declare(self, spec: StreamSpec) -> None:
        """Announce a stream, also to subscribers that come later."""

    def wanted(self, stream: str) -> bool:
        """Return whether any subscriber wants the stream."""

    def publish(self, message: Message) -> None:
        """Publish under the stream's name."""


class Replay:
    """The replay of a session on a tap.

    ::

        replay = Replay(session, speed=2.0)
        sent = replay.run(publisher, SystemClock(), stop)    # {stream: samples}

    Args:
        session: the recorded session.
        streams: names of its streams; None: all.
        speed: recorded seconds per second.

    Raises:
        SessionError: there is no stream of that name, or no sample at all.
        FormatError: a stream cannot be declared.
    """

    def __init__(
        self, session: Session, streams: Sequence[str] | None = None, *, speed: float = 1.0
    ) -> None:
        self._session = session
        self._speed = speed
        chosen = [session.stream(name) for name in streams or session.streams]
        self.specs: Mapping[str, StreamSpec] = {
            stream.name: recorded_spec(stream) for stream in chosen if stream.has_times
        }
        origin = session.first_ns
        if origin is None or not any(len(stream) for stream in chosen):
            raise SessionError(f"{session.path}: has no sample to replay")
        self._origin_ns = origin

    def run(
        self, publisher: Publisher, clock: Clock, stop: threading.Event, *, loop: bool = False
    ) -> dict[str, int]:
        """Publish until the session's end, or until `stop` is set.

        Returns:
            Played samples by stream, with or without subscribers.

        Raises:
            FormatError: a channel's bytes do not fit its format.
        """
        for spec in self.specs.values():
            publisher.declare(spec)
        passed = dict.fromkeys(self.specs, 0)
        number = dict.fromkeys(self.specs, 0)
        begin_ns = clock.monotonic_ns()
        pace = Pace(0, begin_ns, self._speed)
        lap_ns = 0  # recorded time of earlier laps
        while not stop.is_set():
            last_ns = 0
            for item, due_ns in self._schedule():
                last_ns = due_ns
                if not wait_until(pace.due_ns(lap_ns + due_ns), clock, stop):
                    break
                name = item.stream
                if publisher.wanted(name):
                    shift_ns = begin_ns + lap_ns - self._origin_ns
                    message = create_message(item, self.specs[name], shift_ns)
                    message.number = number[name]
                    publisher.publish(message)
                number[name] += 1
                passed[name] += len(item.t_ns) if isinstance(item, Chunk) else 0
            if not loop:
                break
            lap_ns += last_ns + self._compute_pause_ns()
        return passed

    def _schedule(self) -> Iterator[tuple[Chunk | Hole, int]]:
        """Yield items with their due times in ns after the session's first sample."""
        for item in play(self._session, list(self.specs)):
            yield item, max(0, get_play_time_ns(item) - self._origin_ns)

    def _compute_pause_ns(self) -> int:
        """Return the pause between two laps: the longest sample interval, ns."""
        rates = (spec.rate_hz for spec in self.specs.values())
        return round(1e9 / min((rate for rate in rates if rate), default=10.0))


@dataclass(frozen=True, slots=True)
class Pace:
    """A mapping between recorded time and a clock.

    Attributes:
        t_ns: a recorded time.
        clock_ns: when it is played.
        speed: recorded seconds per second, above 0; infinite: everything is due at once.
    """

    t_ns: int
    clock_ns: int
    speed: float

    def due_ns(self, t_ns: int) -> int:
        """Return when a recorded time is played, ns of the clock."""
        return self.clock_ns + round((t_ns - self.t_ns) / self.speed)

    def at_ns(self, clock_ns: int) -> int:
        """Return the recorded time that is played at a time of the clock; the speed is finite."""
        return self.t_ns + round((clock_ns - self.clock_ns) * self.speed)


def create_message(item: Chunk | Hole, spec: StreamSpec, shift_ns: int = 0) -> Message:
    """Convert a recorded item to a message of its driver's tap, with the stored frames.

    Args:
        item: samples, or a loss.
        spec: the stream's declaration.
        shift_ns: added to the epoch ns of the stamps for ``t_mono``.
    """
    if not isinstance(item, Chunk):
        values: dict[str, Any] = {"cause": item.cause or "recorded"}
        if item.estimate is not None:
            values["estimate"] = item.estimate
        return Message(
            Kind.LOST,
            stream=item.stream,
            count=item.count,
            t_mono_ns=item.t_ns + shift_ns,
            values=values,
        )
    encoded: list[Sequence[Buffer]] = [
        CHANNEL_FORMATS[channel.format].encode(samples)
        if isinstance(samples := item.data[channel.name], np.ndarray)
        else samples
        for channel in spec.channels
    ]
    frames, sizes = payload(spec.channels, encoded)
    return Message(
        Kind.DATA,
        stream=item.stream,
        seq=item.seq,
        count=len(item.t_ns),
        t_mono_ns=item.t_ns + shift_ns,
        t_dev_ns=item.t_dev_ns,
        sizes=sizes,
        frames=frames,
    )


def wait_until(t_ns: int, clock: Clock, stop: threading.Event) -> bool:
    """Wait for a monotonic time, ns; return False if `stop` was set."""
    while (left := t_ns - clock.monotonic_ns()) > 0:
        if clock.wait(stop, min(left / 1e9, _MAX_WAIT_S)):
            return False
    return not stop.is_set()


def playable_spec(stream: Stream) -> StreamSpec:
    """Return a stream's declaration as recorded, but without compressing again.

    Channels whose samples were compressed together are declared as raw values.

    Raises:
        FormatError: the stream cannot be declared.
    """
    spec = recorded_spec(stream)
    channels = (
        replace(channel, format="raw")
        if CHANNEL_FORMATS[channel.format].framing is Framing.JOINT
        else channel
        for channel in spec.channels
    )
    return replace(spec, channels=tuple(channels))


def messages(session: Session, stream: str, spec: StreamSpec) -> Iterator[Message]:
    """Yield the samples of a stream as data messages in order; large ones each in its own.

    Small samples within `recorder.session.playback.BATCH_NS` go together.  ``t_mono_ns`` is epoch
    ns.

    Args:
        session: the recorded session.
        stream: name of the stream.
        spec: its declaration, as `playable_spec` makes it.

    Raises:
        SessionError: there is no stream of that name.
        FormatError: a channel's bytes do not fit its format.
    """
    for item in play(session, [stream]):
        if isinstance(item, Chunk):
            yield create_message(item, spec)


def sample_message(stream: Stream, index: int, spec: StreamSpec) -> Message:
    """Return one sample as a data message; several threads may call at once.

    The message's ``number`` is the index of the sample.

    Args:
        stream: the recorded stream.
        index: of the sample.
        spec: the stream's declaration, as `playable_spec` makes it.

    Raises:
        IndexError: there is no such sample.
        FormatError: a channel's bytes do not fit its format.
    """
    times = stream.times(index, index + 1)
    seq = index
    if "seq" in stream.meta:
        seq = int(stream.channels["seq"].read(index, index + 1).astype(np.int64)[0])
    message = create_message(read_chunk(stream, index, seq, times), spec)
    message.number = index
    return message
