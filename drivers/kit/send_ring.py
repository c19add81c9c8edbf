"""The ring of unacknowledged messages, the driver's side of the data plane.

A pure state machine: no sockets, no threads, no clock.  The caller protects it with a lock.  The
writer's counterpart is `recorder.recording.writer.sequencing`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from msgspec import UNSET

from recorder.bus.messages import End, Lost
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError

SMALL_BYTES = 4096
"""Data messages below this size wait for others, and are sent with them."""

RingPosition = tuple[int, int, int]
"""(epoch, number of the next expected message, number before which all messages are appended)."""


@dataclass(slots=True)
class _Refused:
    """A run of refused samples that is not yet reported to the writer."""

    seq: int
    count: int
    first_ns: int
    last_ns: int


@dataclass(slots=True)
class _Stream:
    spec: StreamSpec
    number: int = 0  # of the next message
    seq: int = 0  # of the next sample
    first: int | None = None  # number of its first data message
    base: int = 0  # number of ring[0]: all earlier messages are durable
    sent: int = 0  # number of the next message to send
    touched: int = 0  # number of the first message that was never sent
    received: int = 0  # the writer has received all messages before this number
    ring: deque[Message] = field(default_factory=deque)
    refused: _Refused | None = None
    ended: bool = False


class SendRing:
    """Store of a driver's numbered messages until they are durable at the writer.

    All streams of the driver share one budget of bytes (the ring) and one window of bytes for
    messages in transit to the writer (the credit)::

        ring = SendRing(specs, epoch=clock.realtime_ns())
        ring.hello({}, buffer_bytes=..., window_bytes=...)
        ring.offer("camera", message)           # False: refused, counted, reported in order
        while (message := ring.next_to_send()) is not None:
            ... send ...
            ring.mark_sent(message)
        ring.acknowledge({"camera": (epoch, durable, received)})

    Args:
        specs: the driver's streams.
        epoch: see below.
        merge_bytes: samples of raw channels are merged into the previous message, if that is still
            unsent, up to this size.
        session: key of the session, stored in the first message of every stream.

    Attributes:
        epoch: identifies this start of the driver in this session.
        bytes_held: bytes in the ring.
        buffer_bytes: present capacity of the ring.
        ring_bytes: capacity when no part is in use elsewhere; a larger message never fits.
        refused: number of refused samples, by stream.
    """

    def __init__(
        self, specs: Iterable[StreamSpec], epoch: int, merge_bytes: int = 0, session: str = ""
    ) -> None:
        self.epoch = epoch
        self._session = session
        self.bytes_held = 0
        self.buffer_bytes = self.ring_bytes = 0
        self.refused: dict[str, int] = {}
        self._budgeted = 0  # bytes of data in the ring, without the first message of every stream
        self._window_bytes = 0
        self._in_flight = 0
        self._streams = {spec.name: _Stream(spec) for spec in specs}
        self._open_streams = len(self._streams)
        self._merge_bytes = merge_bytes
        self._mergeable = {name for name, stream in self._streams.items() if stream.spec.joinable}

    def declare(self, spec: StreamSpec) -> None:
        """Add a stream, which is open even if all others have ended."""
        self._streams[spec.name] = _Stream(spec)
        self._open_streams += 1
        if spec.joinable:
            self._mergeable.add(spec.name)

    def fits(self, size: int) -> bool:
        """Return whether the ring can ever accept a data message of that many payload bytes."""
        return size <= self.ring_bytes

    def room_for(self, stream: str, size: int) -> bool:
        """Return whether the ring accepts a data message of that many payload bytes now.

        An empty ring accepts every message that fits, even if a part of the ring is in use
        elsewhere.  A stream's first message uses no budget: the writer makes it durable only after
        the second message has arrived, so a ring that waited for this would never drain.
        """
        return self.fits(size) and (
            self._budgeted + size <= self.buffer_bytes
            or not self._budgeted
            or self._stream(stream).first is None
        )

    def offer(self, message: Message) -> bool:
        """Store a data, state or lost message under its next number.

        Returns:
            False where a data message was refused because the ring is full, or smaller than the
            message.  Its samples are counted, and a ``lost`` message reports them to the writer as
            soon as there is room.

        Raises:
            ProtocolError: the stream has ended or was never declared.
        """
        stream = self._stream(message.stream)
        if stream.ended:
            raise ProtocolError(f"{message.stream}: a message after the stream's end")
        if message.kind is Kind.DATA and not self.room_for(message.stream, message.nbytes):
            self._refuse(stream, message)
            if not self.fits(message.nbytes):  # no acknowledgement makes room for it
                self._report_refused(stream)
            return False
        self._report_refused(stream)  # before a message takes the next numbers
        if not self._merge(stream, message):
            self._append(stream, message)
        return True

    def end(self, reason: str, detail: str = "") -> None:
        """Close every stream with an ``end`` message."""
        for name, stream in self._streams.items():
            if stream.ended:
                continue
            self._report_refused(stream)
            values = End(reason, detail or UNSET).to_wire()
            self._append(stream, Message(Kind.END, stream=name, values=values))
            stream.ended = True
            self._open_streams -= 1

    @property
    def ended(self) -> bool:
        """True if every stream has ended."""
        return not self._open_streams

    @property
    def empty(self) -> bool:
        """True if all messages are durable at the writer."""
        return not any(s.ring or s.refused for s in self._streams.values())

    def next_to_send(self) -> Message | None:
        """Return the next message within the credit; None if all are sent or no credit is left."""
        if self._in_flight and self._in_flight >= self._window_bytes:
            return None
        for stream in self._streams.values():
            at = stream.sent - stream.base
            if at < len(stream.ring):
                message = stream.ring[at]
                if self._in_flight and self._in_flight + message.nbytes > self._window_bytes:
                    return None
                return message
        return None

    def mark_sent(self, message: Message) -> None:
        """Record that the message from `next_to_send` was passed to the socket."""
        stream = self._streams[message.stream]
        stream.sent += 1
        stream.touched = max(stream.touched, stream.sent)
        self._in_flight += message.nbytes

    def hello(
        self, positions: dict[str, RingPosition], *, buffer_bytes: int, window_bytes: int
    ) -> None:
        """Process the writer's answer: continue with the next message that it expects per stream.

        Args:
            positions: by stream, the next message that the writer expects, and the number before
                which its messages are appended (later messages still use credit).  A stream that
                is missing, or has another epoch, is expected from its first message.
            buffer_bytes: budget of the ring.
            window_bytes: credit.

        Raises:
            ProtocolError: the writer expects a message that it had already acknowledged.
        """
        self.buffer_bytes = self.ring_bytes = buffer_bytes
        self._window_bytes = window_bytes
        for name, stream in self._streams.items():
            epoch, number, appended = positions.get(name, (self.epoch, 0, 0))
            if epoch != self.epoch:
                number = appended = 0
            if not stream.base <= number <= stream.number:
                raise ProtocolError(
                    f"{name}: the writer expects message {number} of epoch {self.epoch}, but the "
                    f"driver holds messages {stream.base} to {stream.number}"
                )
            stream.sent = number
            stream.received = min(max(appended, stream.base), number)
        self._count_in_flight()

    def acknowledge(self, positions: dict[str, tuple[int, int, int]]) -> None:
        """Release durable messages and renew the credit.

        Args:
            positions: by stream: epoch, number before which all messages are durable, number
                before which all messages are received.  Other epochs are ignored.
        """
        for name, (epoch, durable, received) in positions.items():
            stream = self._streams.get(name)
            if stream is None or epoch != self.epoch:
                continue
            while stream.ring and stream.base < durable:
                message = stream.ring.popleft()
                self.bytes_held -= message.nbytes
                if message.kind is Kind.DATA and message.number != stream.first:
                    self._budgeted -= message.nbytes
                stream.base += 1
            stream.received = max(stream.received, min(received, stream.number), stream.base)
            stream.sent = max(stream.sent, stream.base)
            if stream.refused and self._budgeted < self.buffer_bytes:
                self._report_refused(stream)
        self._count_in_flight()

    def _stream(self, name: str) -> _Stream:
        try:
            return self._streams[name]
        except KeyError:
            raise ProtocolError(f"{name}: a message of a stream that was not declared") from None

    def _append(self, stream: _Stream, message: Message) -> None:
        message.epoch = self.epoch
        message.number = stream.number
        if not message.number:
            message.session = self._session
        message.seq = stream.seq
        stream.number += 1
        # State and end have no samples; a lost message of unknown count takes no sample numbers.
        if message.kind in (Kind.DATA, Kind.LOST):
            stream.seq = message.next_seq
        else:
            message.count = 0
        stream.ring.append(message)
        self.bytes_held += message.nbytes
        if message.kind is Kind.DATA:
            if stream.first is None:
                stream.first = message.number
            else:
                self._budgeted += message.nbytes

    def _merge(self, stream: _Stream, message: Message) -> bool:
        """Append a small message's samples to the previous message, unless that was already sent.

        This saves a message per sample for a sensor with small, frequent samples.  A message that
        was ever sent, even to a writer that has ended, must not change.
        """
        last = stream.ring[-1] if stream.ring else None
        if (
            last is None
            or last.kind is not Kind.DATA
            or message.kind is not Kind.DATA
            or last.number < stream.touched
            or last.number == stream.first  # has a budget of its own
            or stream.spec.name not in self._mergeable
            or last.nbytes + message.nbytes > self._merge_bytes
        ):
            return False
        before = last.nbytes
        last.join(message)
        message.epoch, message.number, message.seq = last.epoch, last.number, stream.seq
        stream.seq = last.next_seq
        self.bytes_held += last.nbytes - before
        self._budgeted += last.nbytes - before
        return True

    def _refuse(self, stream: _Stream, message: Message) -> None:
        count = message.count or 0
        times = np.atleast_1d(message.t_mono_ns)
        first, last = int(times[0]), int(times[-1])
        if stream.refused is None:
            stream.refused = _Refused(stream.seq, count, first, last)
        else:
            stream.refused.count += count
            stream.refused.last_ns = last
        self.refused[stream.spec.name] = self.refused.get(stream.spec.name, 0) + count

    def _report_refused(self, stream: _Stream) -> None:
        if stream.refused is None:
            return
        run, stream.refused = stream.refused, None
        last = stream.ring[-1] if stream.ring else None
        if (
            last is not None
            and last.number >= stream.touched
            and last.values.get("cause") == "refused"
            and last.count is not None
        ):  # the same run, not yet reported to the writer
            assert isinstance(last.t_mono_ns, int)
            last.values["duration_ns"] += run.last_ns - last.t_mono_ns
            last.count, last.t_mono_ns = last.count + run.count, run.last_ns
            stream.seq = last.next_seq
            return
        lost = Lost("refused", run.last_ns - run.first_ns).message()
        lost.stream, lost.count, lost.t_mono_ns = stream.spec.name, run.count, run.last_ns
        self._append(stream, lost)

    def _count_in_flight(self) -> None:
        self._in_flight = sum(
            message.nbytes
            for stream in self._streams.values()
            for message in islice(
                stream.ring, stream.received - stream.base, stream.sent - stream.base
            )
        )
