"""A driver's ring against a writer: any order of messages, refusals, deaths and answers."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from drivers.kit.send_ring import SendRing
from recorder.bus.wire import Kind, Message
from recorder.recording.writer.sequencing import Position, Verdict
from tests.drivers.kit.test_outbox import NAMES, SPECS, data


@dataclass
class Writer:
    """A model of a writer: real positions, what it appended, and what of that is durable."""

    positions: dict[str, Position] = field(default_factory=lambda: {n: Position() for n in NAMES})
    taken: dict[str, list[Message]] = field(default_factory=lambda: {n: [] for n in NAMES})
    appended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))


class DataPlane(RuleBasedStateMachine):
    """An ring and a writer over a transport that forgets whatever a dead writer had."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.offered: dict[str, list[tuple[int, int]]] = {n: [] for n in NAMES}
        self.refused: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.lost: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.next_id = 0
        self.up: deque[Message] = deque()
        self.down: deque[tuple[str, object]] = deque()
        self.writer = Writer()
        self.durable = Writer()
        self.window = 400

    @initialize()
    def begin(self) -> None:
        self.start_driver()

    def start_driver(self) -> None:
        self.epoch += 1
        self.ring = SendRing(SPECS[:-1], epoch=self.epoch, merge_bytes=250)
        self.unfound = SPECS[-1:]
        self.buffer = 700
        self.ring.hello({}, buffer_bytes=self.buffer, window_bytes=self.window)
        self.ids: dict[str, list[int]] = {n: [] for n in NAMES}

    @precondition(lambda self: self.unfound)
    @rule()
    def find_stream(self) -> None:
        """As `SessionSeam.declare` does."""
        has_ended = self.ring.ended
        self.ring.declare(self.unfound[0])
        self.unfound = []
        if has_ended:
            self.ring.end("eof")

    def takes(self, stream: str) -> bool:
        """Whether the driver may offer a message of the stream."""
        return not self.ring.ended and stream not in [spec.name for spec in self.unfound]

    @rule(stream=st.sampled_from(NAMES), size=st.sampled_from([1, 50, 300, 2000]))
    def offer_data(self, stream: str, size: int) -> None:
        if not self.takes(stream):
            return
        self.next_id += 1
        message = data(stream, size)
        message.t_mono_ns = np.array([self.next_id])
        held = self.ring.bytes_held
        if self.ring.offer(message):
            self.offered[stream].append((self.epoch, self.next_id))
        else:
            self.refused[stream] += 1
            assert held or not self.ring.fits(message.nbytes), "an empty ring takes what fits"

    @rule(stream=st.sampled_from(NAMES), count=st.integers(1, 9))
    def offer_loss(self, stream: str, count: int) -> None:
        if self.takes(stream):
            values = {"cause": "device"}
            self.ring.offer(Message(Kind.LOST, stream=stream, count=count, values=values))
            self.lost[stream] += count

    @rule(stream=st.sampled_from(NAMES))
    def offer_state(self, stream: str) -> None:
        if self.takes(stream):
            self.ring.offer(Message(Kind.STATE, stream=stream, values={"x": 1}))

    @rule(most=st.integers(1, 20))
    def send(self, most: int) -> None:
        for _ in range(most):
            message = self.ring.next_to_send()
            if message is None:
                return
            self.ring.mark_sent(message)
            self.up.append(copy.copy(message))

    @rule(most=st.integers(1, 20))
    def arrive(self, most: int) -> None:
        for _ in range(min(most, len(self.up))):
            message = self.up.popleft()
            match self.writer.positions[message.stream].judge(message):
                case Verdict.ACCEPT:
                    self.writer.taken[message.stream].append(message)
                case Verdict.HOLE:
                    self.say_hello()
                case _:
                    pass

    def say_hello(self) -> None:
        positions = {
            n: (p.epoch, p.number, self.appended_number(n))
            for n, p in self.writer.positions.items()
        }
        self.down.append(("hello", positions))

    def appended_number(self, stream: str) -> int:
        """Number behind what was appended of the latest epoch."""
        epoch = self.writer.positions[stream].epoch
        done = self.writer.taken[stream][: self.writer.appended[stream]]
        return max((m.number + 1 for m in done if m.epoch == epoch), default=0)

    @rule(stream=st.sampled_from(NAMES), most=st.integers(1, 10))
    def append(self, stream: str, most: int) -> None:
        writer = self.writer
        writer.appended[stream] = min(writer.appended[stream] + most, len(writer.taken[stream]))

    @rule()
    def commit(self) -> None:
        durable = Writer()
        for name in NAMES:
            taken = self.writer.taken[name][: self.writer.appended[name]]
            durable.taken[name] = taken
            durable.appended[name] = len(taken)
            position = Position()
            for message in taken:
                position.judge(message)
            durable.positions[name] = position
        self.durable = durable
        self.acknowledge()

    @rule()
    def acknowledge(self) -> None:
        positions = {}
        for name in NAMES:
            epoch = self.writer.positions[name].epoch
            durable = self.durable.positions[name]
            number = durable.number if durable.epoch == epoch else 0
            positions[name] = (epoch, number, self.appended_number(name))
        self.down.append(("ack", positions))

    @rule(most=st.integers(1, 5))
    def hear(self, most: int) -> None:
        for _ in range(min(most, len(self.down))):
            kind, positions = self.down.popleft()
            if kind == "ack":
                self.ring.acknowledge(positions)  # type: ignore[arg-type]
            else:
                self.ring.hello(
                    positions,  # type: ignore[arg-type]
                    buffer_bytes=self.buffer,
                    window_bytes=self.window,
                )

    @rule(survive=st.integers(0, 30), heard=st.integers(0, 10))
    def kill_writer(self, survive: int, heard: int) -> None:
        """What lies behind the kernel arrives late at the next writer; the rest is gone."""
        self.up = deque(list(self.up)[-survive:] if survive else [])
        self.down = deque(list(self.down)[:heard])
        self.writer = copy.deepcopy(self.durable)
        self.say_hello()  # the new writer is joined by the driver

    @rule()
    def kill_driver(self) -> None:
        self.down.clear()
        self.start_driver()

    @rule(size=st.sampled_from([200, 700, 1500]))
    def share_out_anew(self, size: int) -> None:
        self.buffer = size
        self.say_hello()

    @precondition(lambda self: len(self.up) > 2)
    @rule()
    def end_streams(self) -> None:
        self.ring.end("eof")

    @invariant()
    def nothing_acknowledged_is_missing(self) -> None:
        for name, stream in self.ring._streams.items():
            durable = self.durable.positions[name]
            if stream.base:
                assert durable.epoch == self.epoch and durable.number >= stream.base

    @invariant()
    def budgets_hold(self) -> None:
        ring = self.ring
        data_bytes = [
            m.nbytes
            for s in ring._streams.values()
            for m in s.ring
            if m.kind is Kind.DATA and m.number != s.first
        ]
        assert ring._budgeted == sum(data_bytes)
        assert sum(data_bytes) <= 1500 or len(data_bytes) == 1  # 1500: the largest share ever
        assert ring.bytes_held == sum(m.nbytes for s in ring._streams.values() for m in s.ring)
        flight = [
            m.nbytes
            for s in ring._streams.values()
            for m in list(s.ring)[s.received - s.base : s.sent - s.base]
        ]
        assert ring._in_flight == sum(flight)
        assert sum(flight) <= self.window or len(flight) == 1

    @invariant()
    def what_the_writer_has_is_what_was_offered(self) -> None:
        for name in NAMES:
            had = samples(self.writer.taken[name])
            for epoch in {e for e, _ in had}:
                ours = [row for row in had if row[0] == epoch]
                assert ours == [r for r in self.offered[name] if r[0] == epoch][: len(ours)]

    def teardown(self) -> None:
        """Once everything works again, everything becomes durable, and all is accounted for."""
        if self.epoch == 0:
            return
        before = self.writer.positions
        epochs = {n: {m.epoch for m in self.writer.taken[n]} | {self.epoch} for n in NAMES}
        assert all(before[n].epoch in epochs[n] | {0} for n in NAMES)
        self.ring.end("stopped")
        for _ in range(300):
            if self.ring.empty:
                break
            self.send(20)
            self.arrive(20)
            for name in NAMES:
                self.append(name, 20)
            self.commit()
            self.hear(1000)
            if not self.up and not self.down and not self.ring.empty:
                self.say_hello()  # as the answer to a ping
        assert self.ring.empty, "a livelock"
        for name in NAMES:
            of_epoch = [m for m in self.durable.taken[name] if m.epoch == self.epoch]
            assert [m.number for m in of_epoch] == list(range(len(of_epoch)))
            at = 0
            for message in of_epoch:
                assert message.seq == at
                at = message.next_seq if message.kind in (Kind.DATA, Kind.LOST) else at
            assert samples(of_epoch) == [o for o in self.offered[name] if o[0] == self.epoch]
        if self.epoch == 1:  # one start of the driver: every number is a sample or a loss
            for name in NAMES:
                counts: dict[str, int] = {}
                for m in self.durable.taken[name]:
                    if m.kind is Kind.LOST:
                        cause = m.values["cause"]
                        counts[cause] = counts.get(cause, 0) + (m.count or 0)
                assert counts.get("refused", 0) == self.refused[name]
                assert counts.get("device", 0) == self.lost[name]


def samples(messages: list[Message]) -> list[tuple[int, int]]:
    """(epoch, id) of every sample."""
    rows: list[tuple[int, int]] = []
    for message in messages:
        if message.kind is Kind.DATA:
            assert isinstance(message.t_mono_ns, np.ndarray)
            assert len(message.t_mono_ns) == message.count
            rows += [(message.epoch, int(t)) for t in message.t_mono_ns]
    return rows


TestDataPlane = DataPlane.TestCase
TestDataPlane.settings = settings(stateful_step_count=60)
