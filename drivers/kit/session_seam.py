"""The sessions of a driver around a seam: the one before it, the present one, and the next.

A state machine without sockets and threads; the clock is injectable.  `assign` and `record_refusal`
belong to the thread that reads the driver; the caller protects all other methods with a lock::

    seam = SessionSeam(specs, clock, watchdog)
    seam.follow(hello)                                      # the writer's sessions
    for part, owner in seam.assign(item, session):
        if seam.begins(owner):
            seam.cross()
        seam.offer(message_of(part), owner)
    while (found := seam.next_to_send()) is not None:
        ring, message = found
        ... send ...
        ring.mark_sent(message)
    seam.acknowledge(positions)

A session of video begins, and continues after a loss, only with a keyframe:

- Samples before a session's first keyframe belong to no session, as samples before its start do.
- Samples between a loss and the next keyframe cannot be decoded without the lost pictures: each is
  counted as lost, cause ``corrupt``.
- At a seam the session before gets the samples up to the next keyframe, so that each part begins
  with one.  A stream that has none for `KEYFRAME_PATIENCE_NS` crosses without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from msgspec import UNSET

from drivers.kit.driver import Item, Lost, Sample
from drivers.kit.read_watchdog import ReadWatchdog
from drivers.kit.sample_batches import keep_samples, last_ns, single_samples
from drivers.kit.send_ring import SMALL_BYTES, RingPosition, SendRing
from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.messages import Hello
from recorder.bus.messages import Lost as LostInterval
from recorder.bus.wire import Message
from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock

KEYFRAME_PATIENCE_NS = 8_000_000_000
"""Longest wait for a keyframe after a seam; the writer closes the session before after 10 s."""
_REASON = "refers to a picture that is lost, or of another session"


class KeyframeGate:
    """Gate of the samples of one stream whose samples are not all decodable alone; see the module.

    A pure state machine::

        gate = KeyframeGate(spec)
        admitted, session = gate.admit(item, session)
        gate.record_refusal()                          # the ring refused the item

    Args:
        spec: of a stream with a channel whose format is keyed.
    """

    patience_ns = KEYFRAME_PATIENCE_NS

    def __init__(self, spec: StreamSpec) -> None:
        (channel,) = [c for c in spec.channels if CHANNEL_FORMATS[c.format].keyed]
        self._channel = channel.name
        self._starts = CHANNEL_FORMATS[channel.format].can_start
        self._session: Session | None = None
        self._waits = False  # for a keyframe
        self._counts = False  # samples before the keyframe are lost

    def is_key(self, sample: Sample) -> bool:
        """Return whether a decoder can begin with a sample."""
        return self._starts(sample.data[self._channel][0])

    def crosses(self, item: Item, seam_ns: int) -> bool:
        """Return whether an item from behind a seam belongs to the session that begins there."""
        if isinstance(item, Sample):
            return self.is_key(item) or int(item.t_ns[-1]) >= seam_ns + self.patience_ns
        return False

    def admit(self, item: Item, session: Session | None) -> tuple[Item, Session | None]:
        """Return the item, or the loss that replaces it, with its session, if any.

        Args:
            item: a sample alone, a state, or a loss.
            session: the session that is open.
        """
        if session is None:
            self._session = None
            return item, None
        if self._session is None or session.key != self._session.key:
            self._waits = True
            self._counts = self._session is not None and session.continues(self._session)
            self._session = session
        if isinstance(item, Sample) and self.is_key(item):
            self._waits = False
        if not self._waits:
            if isinstance(item, Lost) and item.count != 0:
                self._waits = self._counts = True
            return item, session
        if isinstance(item, Lost):
            return item, session if self._counts else None
        if not isinstance(item, Sample):
            return item, session
        if not self._counts:
            return item, None
        t_ns = int(item.t_ns[-1])
        return Lost(item.stream, t_ns, "corrupt", 1, detail={"reason": _REASON}), session

    def record_refusal(self) -> None:
        """Wait for the next keyframe, because the item was not recorded."""
        self._waits = self._counts = True


_SEAM_PATIENCE_NS = 1_000_000_000  # after a seam, for a driver that publishes nothing


@dataclass(slots=True)
class Part:
    """A session and its messages.

    Attributes:
        session: as announced by the writer.
        ring: its unacknowledged messages.
        admitted: the writer accepts the messages.
        finishing: the writer has ended the session.
        ended_by: reason and detail of the end of its streams.
    """

    session: Session
    ring: SendRing
    admitted: bool = False
    finishing: bool = False
    ended_by: tuple[str, str] = ("", "")

    @property
    def open(self) -> bool:
        return not self.ring.ended and not self.finishing

    def hello(self, hello: Hello) -> None:
        buffer, window = hello.buffer_bytes, hello.window_bytes
        self.ring.hello(hello.positions, buffer_bytes=buffer, window_bytes=window)


class SessionSeam:
    """Sessions of a driver around a seam; see the module.

    Args:
        specs: the driver's streams.
        clock: injectable.
        stall: detects that the driver hangs, which costs the rest of a session.

    Attributes:
        present: the session that the driver is in.
        leaving: the session before the seam, until all its messages are durable.
        next: the session that continues the present one.
        granted_bytes: capacity of the rings of both sessions at a seam.
        last_ns: CLOCK_MONOTONIC of each stream's latest sample.
    """

    def __init__(self, specs: tuple[StreamSpec, ...], clock: Clock, stall: ReadWatchdog) -> None:
        self._specs, self._clock, self._stall = specs, clock, stall
        self._gates = {spec.name: KeyframeGate(spec) for spec in specs if spec.keyed}
        self._patience_ns = KEYFRAME_PATIENCE_NS if self._gates else _SEAM_PATIENCE_NS
        self.present: Part | None = None
        self.leaving: Part | None = None
        self.next: Session | None = None
        self.granted_bytes = 0
        self.last_ns: dict[str, int] = {}
        self._absent_since_ns: int | None = None

    def declare(self, spec: StreamSpec) -> None:
        """Add a stream; in a session whose streams have ended, the new stream ends at once."""
        self._specs = (*self._specs, spec)
        if spec.keyed:
            self._gates[spec.name] = KeyframeGate(spec)
            self._patience_ns = KEYFRAME_PATIENCE_NS
        for part in self.parts:
            has_ended = part.ring.ended
            part.ring.declare(spec)
            if has_ended:
                part.ring.end(*part.ended_by)

    @property
    def session(self) -> Session | None:
        """The session that accepts the driver's samples; None if no session is open."""
        present = self.present
        return present.session if present is not None and present.open else None

    @property
    def ring(self) -> SendRing | None:
        """The messages of the present session."""
        return None if self.present is None else self.present.ring

    @property
    def parts(self) -> Iterator[Part]:
        """The sessions that may have messages, in order."""
        return (part for part in (self.leaving, self.present) if part is not None)

    @property
    def empty(self) -> bool:
        """True if all messages are durable at the writer."""
        return all(part.ring.empty for part in self.parts)

    @property
    def bytes_held(self) -> int:
        """Bytes in the rings."""
        return sum(part.ring.bytes_held for part in self.parts)

    def is_current(self, session: Session) -> bool:
        """Return whether the present session is this one, or continues it."""
        return self.present is not None and self.present.session.continues(session)

    def is_open(self, session: Session) -> bool:
        """Return whether the session, or its continuation, accepts the driver's samples."""
        present = self.present
        return present is not None and present.open and present.session.continues(session)

    def begins(self, session: Session | None) -> bool:
        """Return whether a session is the next one, so that its first message crosses the seam."""
        return session is not None and self.next is not None and self.next.key == session.key

    def assign(self, item: Item, session: Session | None) -> list[tuple[Item, Session | None]]:
        """Return an item, or its parts on both sides of a seam, each with its session.

        Items from a seam on belong to the session that begins there.  Video crosses the seam with
        its next keyframe (`KeyframeGate`).

        Args:
            item: in order of time.
            session: the open session; None: the item belongs to none.
        """
        following = self.next if session is not None else None
        seam_ns = None if following is None else following.seam_ns
        if (gate := self._gates.get(item.stream)) is not None:
            assigned: list[tuple[Item, Session | None]] = []
            owner = None if session is None else self.session
            for one in single_samples(item) if isinstance(item, Sample) else [item]:
                if seam_ns is not None and last_ns(one) >= seam_ns and gate.crosses(one, seam_ns):
                    owner, seam_ns = following, None
                assigned.append(gate.admit(one, owner))
            return assigned
        if seam_ns is None or last_ns(item) < seam_ns:
            return [(item, session)]
        if not isinstance(item, Sample) or int(item.t_ns[0]) >= seam_ns:
            return [(item, following)]
        before, behind = replace(item), item.t_ns >= seam_ns
        keep_samples(before, ~behind)
        keep_samples(item, behind)
        return [(before, session), (item, following)]

    def record_refusal(self, stream: str) -> None:
        """Record that a message of a stream was refused: video continues with a keyframe."""
        if (gate := self._gates.get(stream)) is not None:
            gate.record_refusal()

    def offer(self, message: Message, session: Session) -> bool:
        """Store a message of a session; False: refused and counted.

        A message of a session that is no longer open is dropped.
        """
        return self.present is None or not self.is_open(session) or self.present.ring.offer(message)

    def next_to_send(self) -> tuple[SendRing, Message] | None:
        """Return the next message within the credit, of the session before the seam first."""
        for part in self.parts:
            if part is self.leaving or part.admitted:
                message = part.ring.next_to_send()
                if message is not None:
                    return part.ring, message
        return None

    def acknowledge(self, positions: dict[str, RingPosition]) -> None:
        """Release durable messages and renew the credit; see `SendRing.acknowledge`."""
        for part in self.parts:
            part.ring.acknowledge(positions)
            self._share_ring()  # the session before releases room for the present one

    def follow(self, hello: Hello) -> None:
        """Enter the writer's present session."""
        self.granted_bytes = hello.buffer_bytes
        self._follow(hello)
        self._share_ring()

    def finish(self, session_key: str) -> None:
        """End the present session because the writer has ended it."""
        if self.present is not None and self.present.session.key == session_key:
            self.present.finishing = True
            self.end("stopped")

    def end(self, reason: str, detail: str = "") -> None:
        """End the streams of the present session."""
        present = self.present
        if present is None or present.ring.ended:
            return
        if self._absent_since_ns is not None:
            self._report_absence("absent")
        elif reason == "stopped":
            self._report_stall()
        present.ring.end(reason, detail)
        present.ended_by = reason, detail

    def cross(self) -> None:
        """End the present session and begin the next, if one is known."""
        if self.next is None or self.present is None:
            return
        before, went_on = self.present, not self.present.ring.ended
        self.end("split")
        self.leaving, following, self.next = before, self.next, None
        self._begin(following)
        self._share_ring()
        if not went_on:
            self.end(*before.ended_by)

    def cross_when_silent(self, now_ns: int) -> None:
        """Cross a seam behind which the driver has published nothing for some time."""
        if self.next is not None and now_ns > self.next.begin_ns + self._patience_ns:
            self.cross()

    def report_late_device(self, since_ns: int) -> None:
        """Report a device that has been absent since `since_ns`, at the driver's first start."""
        first = self.present is not None and self.present.session.last_ns is None
        for spec in self._specs if first else ():
            self._report_loss(spec, "device", since_ns)

    def mark_device_lost(self) -> None:
        """Record that the device is lost: sessions get an interval of loss until it is back."""
        if self._absent_since_ns is None:
            self._absent_since_ns = self._clock.monotonic_ns()

    def mark_device_back(self) -> None:
        """Report to the session how long the device was absent."""
        self._report_absence("device")
        self._absent_since_ns = None

    def _follow(self, hello: Hello) -> None:
        session = hello.session
        if self.leaving is not None:
            if session is not None and self.leaving.session.key == session.key:
                self.leaving.hello(hello)  # a restarted writer resumes that session
                return
            if self.leaving.session.key != hello.crossing:
                self.leaving = None  # that session is closed
        if session is None:
            self.present = self.next = None
            return
        if self.present is None or self.present.session.key != session.key:
            self.next = session
            if self.present is not None and self.present.session.key == hello.crossing:
                self.cross()  # the writer has all messages before the seam
            else:
                self._begin_unexpected(session)
        self.next = hello.next
        if self.present is not None:
            self.present.admitted = True
            self.present.hello(hello)
            if self.present.ring.ended:
                self.cross()  # no more messages will be published

    def _begin(self, session: Session) -> None:
        epoch = self._clock.realtime_ns()
        ring = SendRing(self._specs, epoch=epoch, merge_bytes=SMALL_BYTES, session=session.key)
        self.present = Part(session, ring)

    def _begin_unexpected(self, session: Session) -> None:
        before, self.next, self.leaving = self.present, None, None
        self._begin(session)
        if before is None or not session.continues(before.session):
            return
        if before.ring.ended and before.ended_by[0] != "stopped":
            self.end(*before.ended_by)  # an ended stream does not restart in a later part
        elif not before.ring.empty:
            # The part before is closed already: its unacknowledged messages are lost.
            for spec in self._specs:
                self._report_loss(spec, "driver", session.begin_ns)

    def _share_ring(self) -> None:
        """Reduce the ring by the bytes that it still holds for the session before the seam."""
        if self.present is not None:
            held = 0 if self.leaving is None else self.leaving.ring.bytes_held
            self.present.ring.buffer_bytes = max(0, self.granted_bytes - held)
            self.present.ring.ring_bytes = self.granted_bytes

    def _report_absence(self, cause_of_all: str) -> None:
        """Report the loss while the device is absent; `cause_of_all`: for a whole session."""
        if self._absent_since_ns is None or self.present is None:
            return
        for spec in self._specs:
            since_ns = self.last_ns.get(spec.name, self._absent_since_ns)
            cause = cause_of_all if since_ns <= self.present.session.begin_ns else "device"
            self._report_loss(spec, cause, since_ns)

    def _report_stall(self) -> None:
        """Report the loss of a driver that hangs or is late when its session ends."""
        if self.present is None:
            return
        session = self.present.session
        late = session.until_ns is not None and self._clock.monotonic_ns() >= session.until_ns
        cause = self._stall.find_cause_of_loss(late=late)
        for spec in self._specs if cause is not None else ():
            since_ns = self.last_ns.get(spec.name, session.begin_ns)
            self._report_loss(spec, cause or "", since_ns, self._stall.stalled_ns)

    def _report_loss(
        self, spec: StreamSpec, cause: str, since_ns: int, at_least_ns: int | None = None
    ) -> None:
        """Report an uncounted loss up to now, limited to the present session."""
        if self.present is None or self.present.ring.ended:
            return
        span_ns = since_ns, self._clock.monotonic_ns()
        lost = make_interval_of_loss(self.present.session, spec, cause, span_ns, at_least_ns)
        if lost is not None:
            assert isinstance(lost.t_mono_ns, int)
            self.last_ns[spec.name] = lost.t_mono_ns
            self.present.ring.offer(lost)


def make_interval_of_loss(
    session: Session,
    spec: StreamSpec,
    cause: str,
    span_ns: tuple[int, int],
    at_least_ns: int | None = None,
) -> Message | None:
    """Make a message for an uncounted loss within a session; None if the loss is outside it.

    Args:
        session: the present session.
        spec: the stream.
        cause: of the loss.
        span_ns: CLOCK_MONOTONIC of the start of the loss, and of now.
        at_least_ns: length of the loss where the span is empty; the loss then ends with the
            session's duration.
    """
    since_ns, now_ns = span_ns
    if at_least_ns is not None and session.until_ns is not None:
        now_ns = min(now_ns, session.until_ns)
    gap_ns = now_ns - max(since_ns, session.begin_ns)
    if gap_ns <= 0:  # at full pace the samples' times are ahead of the clock
        gap_ns = at_least_ns or 0
    if gap_ns <= 0:
        return None
    estimate = round(gap_ns * spec.rate_hz / 1e9) if spec.rate_hz else UNSET
    lost = LostInterval(cause, gap_ns, estimate).message()
    lost.stream, lost.count, lost.t_mono_ns = spec.name, None, now_ns
    return lost
