"""The link, over real sockets, against a writer that the test plays."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.kit.writer_link import WriterLink
from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.sockets import TapSubscriber, WriterSocket, tap_address
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ProtocolError
from tests.manual_clock import ManualClock
from tests.support.waiting import PATIENCE_S, wait_until

SPEC = StreamSpec("imu", (ChannelSpec("x", "raw", "u1", (10_000,)),))


def data(number: int = 0, count: int = 1) -> Message:
    times = np.arange(number, number + count)
    return Message(Kind.DATA, "imu", count=count, t_mono_ns=times, frames=[bytes(10_000 * count)])


class Stage:
    """A link and its scripted writer."""

    def __init__(self, sensor: str = "imu", specs: tuple[StreamSpec, ...] = (SPEC,)) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="r"))
        self.writer = WriterSocket(self.folder)
        self.clock = ManualClock(monotonic_ns=10**12)
        self.reports: list[str] = []
        self.stats: list[dict[str, Any]] = []
        self.link = WriterLink(sensor, specs, self.folder, self.clock, self.note)
        self.peer = b""

    def note(self, event: str, **values: Any) -> None:
        self.reports.append(event)
        if event == "stats":
            self.stats.append(values)

    def close(self) -> None:
        if self.link._thread.ident is not None:
            self.link.close()
        self.writer.close()
        shutil.rmtree(self.folder)

    def hear(self, *kinds: Kind) -> Message:
        """The next message of one of these kinds (pings pass by, unless asked for)."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.writer.wait(0.05)
            while (received := self.writer.receive()) is not None:
                self.peer, message = received
                assert isinstance(message, Message), message
                if message.kind in kinds:
                    return message
                assert message.kind is Kind.PING, message
        raise AssertionError(f"no {kinds} came")

    def say(self, kind: Kind, **values: Any) -> None:
        assert self.writer.send(self.peer, Message(kind, values=values))

    def hello(
        self,
        key: str | None = "s1",
        window: int = 10**6,
        buffer: int = 10**6,
        **positions: Any,
    ) -> None:
        session = {"key": key, "start_ns": 5, "until_ns": None, "last_ns": None} if key else None
        self.say(
            Kind.HELLO,
            session=session,
            next=None,
            crossing=None,
            positions=positions,
            buffer_bytes=buffer,
            window_bytes=window,
        )

    def joined(self, **hello: Any) -> Session:
        self.link.start()
        assert self.hear(Kind.JOIN).values["sensor"] == "imu"
        self.hello(**hello)
        session = self.link.wait_for_session(PATIENCE_S)
        assert session is not None
        return session


@pytest.fixture
def stage() -> Iterator[Stage]:
    with closing(Stage()) as made:
        yield made


def test_a_link_introduces_itself_and_is_armed_by_the_answer(stage: Stage) -> None:
    stage.link.start()
    join = stage.hear(Kind.JOIN)
    assert [StreamSpec.from_wire(s) for s in join.values["streams"]] == [SPEC]
    assert stage.reports == []
    stage.hello(key=None)
    wait_until("the link", lambda: stage.reports == ["armed"])
    assert stage.link.wait_for_session(0.0) is None
    stage.say(Kind.WHO)  # another writer, perhaps
    assert stage.hear(Kind.JOIN).values == join.values
    stage.hello()
    session = stage.link.wait_for_session(PATIENCE_S)
    assert session is not None and (session.key, session.start_ns) == ("s1", 5)
    assert stage.reports == ["armed"]


def test_what_is_published_arrives_and_is_released_when_it_is_durable(stage: Stage) -> None:
    session = stage.joined()
    assert stage.link.publish(data(0), session)
    assert stage.link.publish(data(1), session)
    first, second = stage.hear(Kind.DATA), stage.hear(Kind.DATA)
    assert [(m.number, m.seq) for m in (first, second)] == [(0, 0), (1, 1)]
    stage.say(Kind.ACK, positions={"imu": [first.epoch, 0, 2]})
    assert not stage.link.drain(0.01)
    stage.link.end(session, "eof", "")
    end = stage.hear(Kind.END)
    assert (end.number, end.values) == (2, {"reason": "eof"})
    assert not stage.link.is_open(session)
    assert "ended" not in stage.reports
    stage.say(Kind.ACK, positions={"imu": [first.epoch, 3, 3]})
    assert stage.link.drain(PATIENCE_S)
    wait_until("the link", lambda: "ended" in stage.reports)


def test_a_hello_sends_it_back_to_the_message_that_is_expected(stage: Stage) -> None:
    session = stage.joined()
    for number in range(4):
        stage.link.publish(data(number), session)
    epochs = [stage.hear(Kind.DATA).epoch for _ in range(4)]
    stage.hello(imu=[epochs[0], 1, 1])
    assert [stage.hear(Kind.DATA).number for _ in range(3)] == [1, 2, 3]


def test_credit_holds_back_what_is_not_received_yet(stage: Stage) -> None:
    session = stage.joined(window=25_000)
    for number in range(4):
        stage.link.publish(data(number), session)
    epoch, _ = [stage.hear(Kind.DATA).epoch for _ in range(2)]
    stage.writer.wait(0.1)
    assert stage.writer.receive() is None
    stage.say(Kind.ACK, positions={"imu": [epoch, 0, 1]})
    assert stage.hear(Kind.DATA).number == 2
    stage.say(Kind.ACK, positions={"imu": [epoch, 3, 3]})
    assert stage.hear(Kind.DATA).number == 3


def test_finish_ends_the_streams_of_its_own_session_only(stage: Stage) -> None:
    session = stage.joined()
    stage.link.publish(data(), session)
    stage.hear(Kind.DATA)
    stage.say(Kind.FINISH, session="another")
    stage.link.publish(data(1), session)
    stage.hear(Kind.DATA)
    assert stage.link.is_open(session)
    stage.say(Kind.FINISH, session="s1")
    assert stage.hear(Kind.END).values == {"reason": "stopped"}
    assert not stage.link.is_open(session)
    assert stage.link.publish(data(2), session)  # too late for the session, and no loss of it
    stage.link.end(session, "eof", "")
    stage.writer.wait(0.05)
    assert stage.writer.receive() is None


def test_each_session_is_a_new_epoch_from_message_zero(stage: Stage) -> None:
    first = stage.joined()
    stage.link.publish(data(), first)
    before = stage.hear(Kind.DATA)
    stage.clock.advance(0.001)
    stage.hello(key=None)
    wait_until("the link", lambda: not stage.link.is_open(first))
    stage.hello(key="s2")
    second = stage.link.wait_for_session(PATIENCE_S)
    assert second is not None and second.key == "s2"
    stage.link.publish(data(), first)  # of the session before: not for this one
    stage.link.publish(data(7), second)
    after = stage.hear(Kind.DATA)
    assert (after.number, after.seq) == (0, 0) and after.epoch > before.epoch
    assert isinstance(after.t_mono_ns, np.ndarray) and after.t_mono_ns.tolist() == [7]


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        (Kind.FAULT, {"message": "imu: declares other channels"}, "imu: declares other channels"),
        (Kind.DATA, {}, "the writer sent a data message"),
    ],
)
def test_what_the_writer_refuses_is_raised_in_the_main_thread(
    stage: Stage, kind: Kind, values: dict[str, Any], text: str
) -> None:
    session = stage.joined()
    stage.say(kind, **values)
    wait_until("the link", lambda: stage.link._failure is not None)
    for call in (
        lambda: stage.link.publish(data(), session),
        lambda: stage.link.publish(data(), None),
        lambda: stage.link.is_open(session),
        lambda: stage.link.wait_for_session(0.0),
    ):
        with pytest.raises(ProtocolError, match=text):
            call()


def test_silence_makes_it_ask_sooner_where_something_is_owed(stage: Stage) -> None:
    session = stage.joined()
    stage.clock.advance(0.5)
    stage.writer.wait(0.3)
    assert stage.writer.receive() is None  # nothing is owed: no hurry
    stage.clock.advance(0.6)
    stage.hear(Kind.PING)
    stage.writer.wait(0.4)  # longer than a turn of the link's thread
    assert stage.writer.receive() is None, "it asks once, and then waits again"
    stage.link.publish(data(), session)
    stage.hear(Kind.DATA)
    stage.clock.advance(0.6)
    stage.hear(Kind.PING)


@pytest.mark.parametrize("news", ["ack", "finish", "hello"])
def test_whoever_waits_for_room_is_woken_by_what_makes_it(stage: Stage, news: str) -> None:
    session = stage.joined()
    for number in range(3):
        stage.link.publish(data(number), session)
    epoch, _, _ = [stage.hear(Kind.DATA).epoch for _ in range(3)]
    size = 10**6 - 15_000  # beside one message's budget there is room for no other

    def tell() -> None:
        match news:
            case "ack":
                stage.say(Kind.ACK, positions={"imu": [epoch, 2, 3]})
            case "finish":
                stage.say(Kind.FINISH, session="s1")
            case "hello":
                stage.hello(imu=[epoch, 3, 3], buffer=2 * 10**6)

    assert not stage.link.wait_for_room("imu", size, 0.0)
    timer = threading.Timer(0.05, tell)
    timer.start()
    before = time.monotonic()
    assert stage.link.wait_for_room("imu", size, 2 * PATIENCE_S)
    assert time.monotonic() - before < PATIENCE_S
    timer.join()


def test_a_signal_wakes_whoever_waits(stage: Stage) -> None:
    stage.link.start()
    timer = threading.Timer(0.05, stage.link.interrupt)
    timer.start()
    before = time.monotonic()
    assert stage.link.wait_for_session(PATIENCE_S) is None
    assert time.monotonic() - before < PATIENCE_S / 2
    timer.join()


def test_the_tap_has_samples_without_any_session(stage: Stage) -> None:
    stage.link.start()
    with TapSubscriber([tap_address(stage.folder, "imu")]) as tap:
        wait_until("the link", lambda: stage.link.wanted("imu"))
        got: list[Message] = []
        for number in itertools.count():
            stage.link.publish(data(number), None)
            while (message := tap.receive(0.01)) is not None:
                got.append(message)
            if len(got) > 2:
                break
            assert number < 1000
    assert got[0].kind is Kind.JOIN
    assert all(m.kind is Kind.DATA and len(m.frames[0]) == 10_000 for m in got[1:])
    wait_until("the link", lambda: not stage.link.wanted("imu"))
