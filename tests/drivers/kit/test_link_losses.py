"""What a link puts down itself: intervals without a device, seams that it crosses, its figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.sockets import TapSubscriber, tap_address
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.drivers.kit.test_link import Stage
from tests.support.waiting import PATIENCE_S, wait_until

S = 1_000_000_000
T0 = 1000 * S  # the stage's clock at first
CHANNELS = (ChannelSpec("x", "raw", "u1", (10_000,)),)
RING = {"buffer_bytes": 100_000, "window_bytes": 10**6}
SPECS = (StreamSpec("imu", CHANNELS, rate_hz=200.0), StreamSpec("gnss", CHANNELS))


class TwoStreams(Stage):
    def announce(self, session: dict[str, Any], **more: Any) -> None:
        whole = {"key": "s1", "start_ns": T0, "until_ns": None, "last_ns": None, **session}
        values = {"session": whole, "next": None, "crossing": None, "positions": {}, **more}
        self.say(Kind.HELLO, **RING, **values)

    def enter(self, **session: Any) -> Session:
        self.link.start()
        self.hear(Kind.JOIN)
        self.announce(session)
        entered = self.link.wait_for_session(PATIENCE_S)
        assert entered is not None
        return entered

    def give(self, stream: str, t_ns: int, session: Session) -> Message:
        frames = [bytes(10_000)]
        times = np.array([t_ns])
        message = Message(Kind.DATA, stream, count=1, t_mono_ns=times, frames=frames)
        assert self.link.publish(message, session)
        return self.hear(Kind.DATA)

    def losses(self) -> dict[str, tuple[int, int, int | None]]:
        """Of each stream's one: when it ended and how long it was, s after T0, and the estimate."""
        found: dict[str, tuple[int, int, int | None]] = {}
        while len(found) < len(SPECS):
            message = self.hear(Kind.LOST, Kind.END)
            if message.kind is Kind.END:
                continue
            assert message.count is None and message.values["cause"] in ("device", "absent")
            assert isinstance(message.t_mono_ns, int)
            length, estimate = message.values["duration_ns"], message.values.get("estimate")
            found[message.stream] = ((message.t_mono_ns - T0) // S, length // S, estimate)
        return found

    def silent(self) -> None:
        """Nothing more comes: what is asked now is answered, and nothing was before it."""
        self.say(Kind.WHO)
        self.hear(Kind.JOIN)


@pytest.fixture
def stage() -> Iterator[TwoStreams]:
    with closing(TwoStreams("rig", SPECS)) as made:
        yield made


def test_a_device_is_away_since_the_last_sample_of_each_stream(stage: TwoStreams) -> None:
    session = stage.enter()
    stage.give("imu", T0 + S, session)
    stage.clock.advance(3.0)
    stage.link.mark_device_lost()
    stage.clock.advance(1.0)
    stage.link.mark_device_lost()  # said again: away since the first time
    stage.clock.advance(2.0)
    stage.link.mark_device_back()
    assert stage.losses() == {"imu": (6, 5, 1000), "gnss": (6, 3, None)}


def test_a_second_absence_begins_where_the_first_ended(stage: TwoStreams) -> None:
    session = stage.enter()
    for absence, reported in ((2.0, {"imu": (2, 2, 400), "gnss": (2, 2, None)}),
                          (3.0, {"imu": (5, 3, 600), "gnss": (5, 3, None)})):  # fmt: skip
        stage.link.mark_device_lost()
        stage.clock.advance(absence)
        stage.link.mark_device_back()
        assert stage.losses() == reported
    stage.link.mark_device_back()  # it was not away
    stage.clock.advance(0.5)
    stage.give("imu", T0 + 7 * S, session)
    stage.silent()


def test_an_absence_is_of_a_session_as_far_as_it_lies_in_it(stage: TwoStreams) -> None:
    first = stage.enter()
    stage.give("imu", T0, first)
    stage.link.mark_device_lost()
    stage.clock.advance(2.0)
    stage.link.end(first, "stopped", "")
    assert stage.losses() == {"imu": (2, 2, 400), "gnss": (2, 2, None)}
    stage.announce({"key": "s2", "start_ns": T0 + 5 * S})
    wait_until("the link", lambda: [p.session.key for p in stage.link.seam.parts][-1:] == ["s2"])
    stage.clock.advance(2.0)
    stage.link.mark_device_back()  # before it begins: none of its own
    stage.link.mark_device_lost()
    stage.clock.advance(4.0)
    stage.link.mark_device_back()
    assert stage.losses() == {"imu": (8, 3, 600), "gnss": (8, 3, None)}


@pytest.mark.parametrize("last_ns", [None, T0])
def test_a_device_that_is_late_is_a_loss_where_nothing_is_recorded_yet(
    stage: TwoStreams, last_ns: int | None
) -> None:
    stage.enter(last_ns=last_ns)
    stage.clock.advance(2.0)
    stage.link.report_late_device(T0 + S // 2)
    if last_ns is None:
        assert stage.losses() == {"imu": (2, 1, 300), "gnss": (2, 1, None)}
    stage.silent()


def test_a_driver_that_publishes_nothing_crosses_the_seam_when_it_is_over(
    stage: TwoStreams,
) -> None:
    session = stage.enter()
    epoch = stage.give("imu", T0, session).epoch
    following = {"key": "s2", "start_ns": T0, "until_ns": None, "last_ns": T0, "seam_ns": T0 + S}
    stage.announce({}, next=following, positions={"imu": [epoch, 1, 1]})
    wait_until("the link", lambda: stage.link.seam.next is not None)
    stage.clock.advance(2.0)  # up to a second late a sample may still come for the first part
    stage.silent()
    assert stage.link.is_open(session) and stage.link.seam.next is not None
    stage.clock.advance(0.001)
    ends = [stage.hear(Kind.END) for _ in SPECS]
    assert [(end.stream, end.values) for end in ends] == [
        (spec.name, {"reason": "split"}) for spec in SPECS
    ]
    wait_until("the link", lambda: stage.link.seam.next is None)
    entered = stage.link.wait_for_session(PATIENCE_S)
    assert entered is not None and (entered.key, entered.begin_ns) == ("s2", T0 + S)
    assert stage.link.is_open(session), "which goes on"


def test_the_figures_are_of_both_sides_of_a_seam(stage: TwoStreams) -> None:
    session = stage.enter()
    for n in range(3):
        stage.give("imu", T0 + n, session)
    following = {"key": "s2", "start_ns": T0, "until_ns": None, "last_ns": T0, "seam_ns": T0 + S}
    before_seam = {"imu": [stage.link.seam.ring.epoch, 3, 3]} if stage.link.seam.ring else {}
    stage.announce({}, next=following, positions=before_seam)
    wait_until("the link", lambda: stage.link.seam.next is not None)
    ring = stage.link.seam.ring
    assert ring is not None
    before = ring.bytes_held
    assert before > 30_000
    stage.clock.advance(0.5)  # or both would be of one epoch
    stage.link.enter(stage.link.seam.next)
    assert [stage.hear(Kind.END).stream for _ in SPECS] == ["imu", "gnss"]
    stage.announce(following, crossing="s1")
    held = before + 2 * Message(Kind.END, stream="gnss", values={"reason": "split"}).nbytes
    epoch = stage.give("imu", T0 + 2 * S, session).epoch
    reported = len(stage.stats)
    stage.clock.advance(1.0)
    wait_until("the link", lambda: len(stage.stats) > reported)
    figures = stage.stats[-1]
    own = figures["held"] - held
    assert 10_000 < own < 10_200
    assert (figures["buffer"], figures["refused"]) == (100_000 - held, {})
    stage.say(Kind.ACK, positions={s.name: [ring.epoch, 99, 99] for s in SPECS})
    reported = len(stage.stats)
    stage.clock.advance(1.0)
    wait_until("the link", lambda: len(stage.stats) > reported)
    figures = stage.stats[-1]
    del figures["given"]
    assert figures == {"held": own, "buffer": 100_000, "refused": {}}
    assert epoch != ring.epoch


def test_figures_come_four_times_a_second(stage: TwoStreams) -> None:
    stage.enter()
    for turn in range(1, 4):
        stage.clock.advance(0.249)
        stage.silent()
        stage.silent()  # a turn of the link's thread lies between the two answers
        assert len(stage.stats) == turn - 1
        stage.clock.advance(0.001)
        wait_until("the link", lambda turn=turn: len(stage.stats) == turn)  # type: ignore[misc]


def test_what_a_driver_gave_is_reported_with_and_without_a_session(stage: TwoStreams) -> None:
    stage.link.start()
    stage.hear(Kind.JOIN)
    stage.say(Kind.HELLO, session=None, next=None, crossing=None, positions={}, **RING)
    wait_until("the link", lambda: "armed" in stage.reports)

    def reported() -> dict[str, Any]:
        before = len(stage.stats)
        stage.clock.advance(1.0)
        wait_until("the link", lambda: len(stage.stats) > before)
        return stage.stats[-1]

    stats = reported()
    assert stats["given"] == {"imu": (0, 0, None), "gnss": (0, 0, None)}
    assert (stats["held"], stats["buffer"], stats["refused"]) == (0, 100_000, {})
    stage.link.counters.count_unencoded("imu", 3, T0 + 3)  # of the declared size
    assert reported()["given"]["imu"] == (3, 30_000, T0 + 3)
    times = np.array([T0 + 4, T0 + 5])
    stage.link.publish(Message(Kind.DATA, "imu", count=2, t_mono_ns=times, frames=[bytes(8)]), None)
    stage.link.counters.count_unencoded("imu", 1, T0 + 6)  # of the size that samples have now
    assert reported()["given"]["imu"] == (6, 30_012, T0 + 6)
    stage.announce({})
    session = stage.link.wait_for_session(PATIENCE_S)
    assert session is not None
    stage.give("imu", T0 + 7, session)
    stats = reported()
    assert stats["given"]["imu"] == (7, 40_012, T0 + 7)
    assert stats["held"] > 10_000


def test_small_messages_wait_for_others_also_where_somebody_watches(stage: TwoStreams) -> None:
    session = stage.enter()
    woken: list[int] = []
    wake = stage.link._waker.wake

    def count() -> None:
        woken.append(0)
        wake()

    def publish(size: int = 100) -> int:
        before = len(woken)
        times = np.array([stage.clock.monotonic_ns()])
        message = Message(Kind.DATA, "imu", count=1, t_mono_ns=times, frames=[bytes(size)])
        assert stage.link.publish(message, session)
        return len(woken) - before

    def in_turn() -> None:
        stage.clock.advance(1.0)
        assert [publish() for _ in range(3)] == [1, 0, 0]
        stage.clock.advance(0.0499)
        assert publish() == 0
        stage.clock.advance(0.0001)
        assert [publish() for _ in range(2)] == [1, 0], "50 ms after it was woken before"
        assert publish(4096) == 1, "not small"
        assert publish() == 0

    stage.link._waker.wake = count  # type: ignore[method-assign]
    in_turn()
    with TapSubscriber([tap_address(stage.folder, "rig")]) as tap:
        wait_until("the link", lambda: stage.link.wanted("imu"))
        in_turn()
        got = 0
        while got < 8:  # the last one, too, without another sample, for which it would wait
            message = tap.receive(PATIENCE_S)
            assert message is not None
            got += message.count or 0


def test_the_link_looks_more_often_while_somebody_watches(stage: TwoStreams) -> None:
    """Else the last small samples before a pause would wait for longer than others may."""
    waits: list[float] = []
    wait = stage.link._socket.wait

    def note(seconds: float, *, until_writable: bool = False) -> None:
        waits.append(seconds)
        wait(seconds, until_writable=until_writable)

    stage.link._socket.wait = note  # type: ignore[method-assign]
    stage.enter()
    assert set(waits) == {0.25}
    with TapSubscriber([tap_address(stage.folder, "rig")]):
        wait_until("the link", lambda: 0.05 in waits)
    wait_until("the link", lambda: waits[-1] == 0.25)
