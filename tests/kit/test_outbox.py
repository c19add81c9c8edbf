"""The ring: what is taken is sent once and in order, refusals are counted, budgets hold."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from drivers._kit.outbox import Outbox
from recorder.contract.errors import ProtocolError
from recorder.contract.streams import ChannelSpec, StreamSpec
from recorder.contract.wire import Kind, Message
from recorder.writer.sequencing import Position, Verdict

NAMES = ("a", "b")
SPECS = [StreamSpec(name, (ChannelSpec("x", "raw", "u1", (1,)),)) for name in NAMES]
HEADER = Message(Kind.DATA).nbytes


def data(stream: str, size: int = 36, count: int = 1) -> Message:
    """A data message of `size` + 64 bytes."""
    times = np.arange(count, dtype=np.int64)
    return Message(Kind.DATA, stream=stream, count=count, t_mono_ns=times, frames=[bytes(size)])


def ready(buffer_bytes: int = 1000, window_bytes: int = 1000) -> Outbox:
    outbox = Outbox(SPECS, epoch=7)
    outbox.hello({}, buffer_bytes=buffer_bytes, window_bytes=window_bytes)
    return outbox


def sent(outbox: Outbox) -> list[Message]:
    messages = []
    while (message := outbox.next_to_send()) is not None:
        outbox.mark_sent(message)
        messages.append(message)
    return messages


def test_numbers_are_gap_free_and_a_refusal_takes_seq_in_order() -> None:
    outbox = ready(buffer_bytes=200)
    assert outbox.offer(data("a", count=3))  # the first uses no budget
    assert outbox.offer(data("a"))
    assert outbox.offer(data("a"))
    assert outbox.offer(data("a", count=5)) is False
    assert not outbox.offer(data("a", count=2))
    assert outbox.refused == {"a": 7}
    outbox.offer(Message(Kind.STATE, stream="a", values={"x": 1}))
    outbox.offer(Message(Kind.LOST, stream="a", count=2, values={"cause": "device"}))
    outbox.end("eof")
    out = [(m.kind, m.number, m.seq, m.count) for m in sent(outbox) if m.stream == "a"]
    assert out == [
        (Kind.DATA, 0, 0, 3),
        (Kind.DATA, 1, 3, 1),
        (Kind.DATA, 2, 4, 1),
        (Kind.LOST, 3, 5, 7),  # before what came after the refused samples
        (Kind.STATE, 4, 12, 0),
        (Kind.LOST, 5, 12, 2),
        (Kind.END, 6, 14, 0),
    ]


def test_refusals_are_told_when_there_is_room_even_if_nothing_follows() -> None:
    outbox = ready(buffer_bytes=100)
    assert outbox.offer(data("a"))
    assert outbox.offer(data("a"))
    assert not outbox.offer(data("a", count=4))
    assert not outbox.empty
    sent(outbox)
    outbox.acknowledge({"a": (7, 2, 2)})
    assert [(m.kind, m.count, m.seq) for m in sent(outbox)] == [(Kind.LOST, 4, 2)]


def test_a_message_larger_than_the_ring_is_refused_and_told_at_once() -> None:
    """Also as a stream's first, and in an empty ring: nothing would ever make room for it."""
    outbox = ready(buffer_bytes=200)
    for _ in range(3):
        assert not outbox.offer(data("a", 5000))
    assert [(m.kind, m.number, m.seq, m.count) for m in sent(outbox)] == [(Kind.LOST, 0, 0, 3)]
    assert outbox.offer(data("a", 136))
    assert outbox.offer(data("a", 136))
    assert not outbox.offer(data("a", 137))
    out = [(m.kind, m.number, m.seq, m.count) for m in sent(outbox)]
    assert out == [(Kind.DATA, 1, 3, 1), (Kind.DATA, 2, 4, 1), (Kind.LOST, 3, 5, 1)]
    assert outbox.refused == {"a": 4} and outbox.bytes_held == 2 * 200 + 2 * HEADER


def test_a_ring_that_is_in_use_elsewhere_takes_one_that_fits() -> None:
    outbox = ready(buffer_bytes=200)
    assert outbox.offer(data("a"))
    outbox.buffer_bytes = 0  # a session that ends holds the bytes
    assert outbox.offer(data("a", 136))
    assert not outbox.offer(data("a"))


def test_refusals_in_a_row_are_one_message_until_it_is_sent() -> None:
    outbox = ready(buffer_bytes=200)
    for t_ns in (5, 7, 11):
        message = data("a", 5000)
        message.t_mono_ns = np.array([t_ns])
        assert not outbox.offer(message)
        if t_ns == 7:
            (lost,) = sent(outbox)
            assert (lost.count, lost.t_mono_ns, lost.values["duration_ns"]) == (2, 7, 2)
    (lost,) = sent(outbox)
    assert (lost.number, lost.seq, lost.count, lost.t_mono_ns) == (1, 2, 1, 11)


def test_credit_holds_back_but_always_lets_one_message_through() -> None:
    outbox = ready(buffer_bytes=10_000, window_bytes=250)
    for size in (36, 36, 36, 5000, 36):
        assert outbox.offer(data("a", size))
    assert len(sent(outbox)) == 2
    outbox.acknowledge({"a": (7, 0, 2)})  # received, not durable: credit is renewed
    assert len(sent(outbox)) == 1
    outbox.acknowledge({"a": (7, 0, 3)})
    assert len(sent(outbox)) == 1  # larger than the window: alone
    assert outbox.bytes_held == 4 * 100 + 5064
    outbox.acknowledge({"a": (7, 5, 5)})
    assert outbox.bytes_held == 0


def test_a_hello_that_expects_the_acknowledged_again_is_an_error() -> None:
    outbox = ready()
    for _ in range(3):
        outbox.offer(data("a"))
    sent(outbox)
    outbox.acknowledge({"a": (7, 2, 3)})
    for number in (1, 4):
        with pytest.raises(ProtocolError, match=f"a: the writer expects message {number}"):
            outbox.hello({"a": (7, number, number)}, buffer_bytes=1000, window_bytes=1000)
    outbox.hello({"a": (7, 2, 2)}, buffer_bytes=1000, window_bytes=1000)
    assert [m.number for m in sent(outbox)] == [2]


def test_a_hello_does_not_forgive_what_still_waits_for_the_disk() -> None:
    outbox = ready(window_bytes=300)
    for _ in range(5):
        outbox.offer(data("a"))
    assert len(sent(outbox)) == 3
    outbox.hello({"a": (7, 3, 0)}, buffer_bytes=1000, window_bytes=300)
    assert sent(outbox) == []
    outbox.acknowledge({"a": (7, 0, 3)})
    assert len(sent(outbox)) == 2


def test_acknowledgements_of_other_epochs_and_streams_mean_nothing() -> None:
    outbox = ready()
    outbox.offer(data("a"))
    outbox.acknowledge({"a": (6, 1, 1), "z": (7, 1, 1)})
    assert not outbox.empty
    outbox.hello({"a": (6, 40, 40)}, buffer_bytes=1000, window_bytes=1000)
    assert [m.number for m in sent(outbox)] == [0]


def numbered(outbox: Outbox) -> list[tuple[int, int, int | None]]:
    return [(m.number, m.seq, m.count) for m in sent(outbox)]


def test_few_bytes_join_the_message_before_until_that_was_sent() -> None:
    outbox = Outbox(SPECS, epoch=7, merge_bytes=236)
    outbox.hello({}, buffer_bytes=1000, window_bytes=1000)
    for _ in range(5):
        assert outbox.offer(data("a"))
    # The first has a budget of its own; two and one are 136 + 100 bytes, which is the limit.
    held = outbox.bytes_held
    assert numbered(outbox) == [(0, 0, 1), (1, 1, 3), (2, 4, 1)]
    assert outbox.offer(data("a", count=2))  # what was sent stays as it was
    assert outbox.bytes_held == held + 100
    assert numbered(outbox) == [(3, 5, 2)]
    outbox.hello({"a": (7, 1, 1)}, buffer_bytes=1000, window_bytes=1000)  # to another writer, too
    assert outbox.offer(data("a"))
    assert outbox.offer(data("a"))
    assert numbered(outbox) == [(1, 1, 3), (2, 4, 1), (3, 5, 2), (4, 7, 2)]


def test_only_samples_of_raw_channels_join_and_only_samples() -> None:
    video = StreamSpec("v", (*SPECS[0].channels, ChannelSpec("y", "lzma", "u1", (1, 1))))
    outbox = Outbox([*SPECS, video], epoch=7, merge_bytes=1000)
    outbox.hello({}, buffer_bytes=1000, window_bytes=1000)
    for _ in range(3):
        assert outbox.offer(data("v"))
        assert outbox.offer(data("a"))
    assert outbox.offer(Message(Kind.STATE, stream="a", values={"x": 1}))
    assert outbox.offer(data("a"))
    assert outbox.offer(Message(Kind.LOST, stream="a", count=4, values={"cause": "device"}))
    out = [(m.stream, m.kind, m.seq, m.count) for m in sent(outbox)]
    assert out == [
        ("a", Kind.DATA, 0, 1),
        ("a", Kind.DATA, 1, 2),
        ("a", Kind.STATE, 3, 0),
        ("a", Kind.DATA, 3, 1),
        ("a", Kind.LOST, 4, 4),
        *[("v", Kind.DATA, n, 1) for n in range(3)],
    ]


def test_each_run_of_refusals_has_its_own_time_and_count() -> None:
    def timed(*times: int) -> Message:
        message = data("a", count=len(times))
        message.t_mono_ns = np.array(times)
        return message

    outbox = ready(buffer_bytes=100)
    assert outbox.offer(timed(1_000))
    assert outbox.offer(timed(2_000))
    assert not outbox.offer(timed(3_000, 3_500))
    assert not outbox.offer(timed(4_000, 4_600, 4_900))
    sent(outbox)
    outbox.acknowledge({"a": (7, 2, 2)})
    assert outbox.offer(timed(5_000))
    assert not outbox.offer(timed(6_000, 6_200))
    assert outbox.refused == {"a": 7}, "in all"
    sent_now = sent(outbox)
    outbox.acknowledge({"a": (7, 4, 4)})
    reported = [m for m in sent_now + sent(outbox) if m.kind is Kind.LOST]
    assert [(m.count, m.t_mono_ns, m.values) for m in reported] == [
        (5, 4_900, {"cause": "refused", "duration_ns": 1_900}),
        (2, 6_200, {"cause": "refused", "duration_ns": 200}),
    ]


def test_a_state_takes_no_numbers_whatever_it_counts() -> None:
    outbox = ready()
    assert outbox.offer(Message(Kind.STATE, stream="a", count=3, values={"x": 1}))
    assert outbox.offer(Message(Kind.LOST, stream="a", count=None, values={"cause": "device"}))
    assert outbox.offer(data("a"))
    assert numbered(outbox) == [(0, 0, 0), (1, 0, None), (2, 0, 1)]


def test_the_credit_is_used_to_its_last_byte() -> None:
    outbox = ready(buffer_bytes=10_000, window_bytes=300)
    for _ in range(4):
        outbox.offer(data("a"))
    assert len(sent(outbox)) == 3
    outbox.hello({"a": (7, 0, 0)}, buffer_bytes=10_000, window_bytes=299)
    assert len(sent(outbox)) == 2


def test_the_ring_is_used_to_its_last_byte() -> None:
    for size, taken in ((200, True), (199, False)):
        outbox = ready(buffer_bytes=size)
        assert outbox.offer(data("a")) and outbox.offer(data("a"))
        assert outbox.offer(data("a")) is taken


def test_after_its_end_a_stream_takes_nothing() -> None:
    outbox = ready()
    assert outbox.offer(data("b"))
    states = [outbox.ended]
    outbox.end("changed", "now 3 x 4")
    states.append(outbox.ended)
    assert states == [False, True]
    for stream in ("a", "b"):
        with pytest.raises(ProtocolError, match=f"{stream}: a message after the stream's end"):
            outbox.offer(data(stream))
    outbox.end("stopped")
    ends = [(m.stream, m.values) for m in sent(outbox) if m.kind is Kind.END]
    assert ends == [(s, {"reason": "changed", "detail": "now 3 x 4"}) for s in ("a", "b")]
    with pytest.raises(ProtocolError, match="c: a message of a stream that was not declared"):
        outbox.offer(data("c"))


@dataclass
class Writer:
    """A model of a writer: real positions, what it appended, and what of that is durable."""

    positions: dict[str, Position] = field(default_factory=lambda: {n: Position() for n in NAMES})
    taken: dict[str, list[Message]] = field(default_factory=lambda: {n: [] for n in NAMES})
    appended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))


class DataPlane(RuleBasedStateMachine):
    """An outbox and a writer over a transport that forgets whatever a dead writer had."""

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
        self.outbox = Outbox(SPECS, epoch=self.epoch, merge_bytes=250)
        self.buffer = 700
        self.outbox.hello({}, buffer_bytes=self.buffer, window_bytes=self.window)
        self.ids: dict[str, list[int]] = {n: [] for n in NAMES}

    @rule(stream=st.sampled_from(NAMES), size=st.sampled_from([1, 50, 300, 2000]))
    def offer_data(self, stream: str, size: int) -> None:
        if self.outbox.ended:
            return
        self.next_id += 1
        message = data(stream, size)
        message.t_mono_ns = np.array([self.next_id])
        held = self.outbox.bytes_held
        if self.outbox.offer(message):
            self.offered[stream].append((self.epoch, self.next_id))
        else:
            self.refused[stream] += 1
            assert held or not self.outbox.fits(message.nbytes), "an empty ring takes what fits"

    @rule(stream=st.sampled_from(NAMES), count=st.integers(1, 9))
    def offer_loss(self, stream: str, count: int) -> None:
        if not self.outbox.ended:
            values = {"cause": "device"}
            self.outbox.offer(Message(Kind.LOST, stream=stream, count=count, values=values))
            self.lost[stream] += count

    @rule(stream=st.sampled_from(NAMES))
    def offer_state(self, stream: str) -> None:
        if not self.outbox.ended:
            self.outbox.offer(Message(Kind.STATE, stream=stream, values={"x": 1}))

    @rule(most=st.integers(1, 20))
    def send(self, most: int) -> None:
        for _ in range(most):
            message = self.outbox.next_to_send()
            if message is None:
                return
            self.outbox.mark_sent(message)
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
                self.outbox.acknowledge(positions)  # type: ignore[arg-type]
            else:
                self.outbox.hello(
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
        self.outbox.end("eof")

    @invariant()
    def nothing_acknowledged_is_missing(self) -> None:
        for name in NAMES:
            stream = self.outbox._streams[name]
            durable = self.durable.positions[name]
            if stream.base:
                assert durable.epoch == self.epoch and durable.number >= stream.base

    @invariant()
    def budgets_hold(self) -> None:
        outbox = self.outbox
        data_bytes = [
            m.nbytes
            for s in outbox._streams.values()
            for m in s.ring
            if m.kind is Kind.DATA and m.number != s.first
        ]
        assert outbox._budgeted == sum(data_bytes)
        assert sum(data_bytes) <= 1500 or len(data_bytes) == 1  # 1500: the largest share ever
        assert outbox.bytes_held == sum(m.nbytes for s in outbox._streams.values() for m in s.ring)
        flight = [
            m.nbytes
            for s in outbox._streams.values()
            for m in list(s.ring)[s.received - s.base : s.sent - s.base]
        ]
        assert outbox._in_flight == sum(flight)
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
        self.outbox.end("stopped")
        for _ in range(300):
            if self.outbox.empty:
                break
            self.send(20)
            self.arrive(20)
            for name in NAMES:
                self.append(name, 20)
            self.commit()
            self.hear(1000)
            if not self.up and not self.down and not self.outbox.empty:
                self.say_hello()  # as the answer to a ping
        assert self.outbox.empty, "a livelock"
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
