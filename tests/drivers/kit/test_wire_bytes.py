"""The bytes of every kind of message, as `wire_bytes.txt` has them.

Real are the senders: supervisor, link and writer's service.  Times, paths and the boot are fixed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drivers.kit import writer_link as link_module
from drivers.kit.send_ring import SendRing
from drivers.kit.session_seam import make_interval_of_loss
from drivers.kit.writer_link import WriterLink
from recorder.bus import sockets as bus_module
from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.wire import Kind, Message, decode, encode
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.recording.supervisor.supervisor import Supervisor
from recorder.recording.writer import service as service_module
from recorder.recording.writer import session_writer as session_writer_module
from recorder.recording.writer.service import WriterService
from recorder.session.layout import SessionPlan
from tests.config.configs import load
from tests.manual_clock import ManualClock
from tests.recording.daemon.fakes import CONFIG, FakeChild
from tests.support.waiting import PATIENCE_S, wait_until

GOLDEN = Path(__file__).with_name("wire_bytes.txt")
S = 1_000_000_000
SPEC = StreamSpec(
    "imu",
    (ChannelSpec("x", "raw", "u1", (4,), description="four", unit="mm"),),
    rate_hz=200.0,
    files={"imu.json": "{}"},
    settings={"rate": 200},
)
PLAN: dict[str, Any] = {
    "metadata": {"vehicle": "rig-1", "runs": 3, "scale": 0.5, "tags": ["a", None, True]},
    "sync_interval_ms": 3_600_000,
    "record_format": ["imu"],
    "duration_s": 12.5,
}

Sent = list[tuple[str, bytes]]


class SomeClock(ManualClock):
    """Moves only when the test says so; who waits, waits."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


def text_of(sent: Sent) -> str:
    return "".join(f"{name}: {data.hex()}\n" for name, data in sent)


def header(message: Message) -> bytes:
    return bytes(encode(message)[0])


def commands(folder: Path) -> Sent:
    """What the supervisor asks of the writer."""
    sent: Sent = []
    replies: deque[Message] = deque()
    clock = ManualClock(1000 * S)

    def send(message: Message) -> bool:
        sent.append((f"command {message.values['op']}", header(message)))
        values: dict[str, Any] = {"session": "root/s", "sensors": {}, "ended": None}
        if message.values["op"] == "stop":
            values = {"closed": "root/s", "streams": {}, "sealed": None, "full": None}
        replies.append(Message(Kind.STATUS, number=message.number, values=values))
        return True

    line: Any = SimpleNamespace(
        send=send,
        receive=lambda: replies.popleft() if replies else None,
        wait=lambda seconds: clock.advance(seconds),
        close=lambda: None,
    )
    spawn: Any = FakeChild
    with Supervisor(
        load(folder, CONFIG), clock, lambda *_, **__: None, line=line, spawn=spawn
    ) as s:
        s.launch()
        spec = SPEC.to_wire() | {"name": "cam"}
        child: Any = s.sensors["cam"].child
        child.report("armed", streams=[spec])
        s.turn(0.1)
        s.look()
        s.begin(SessionPlan("root", "s", True, "version: 1\n", "calibration", **PLAN))
        s.turn(0.1)
        s.turn(0.1)
        s.split(SessionPlan("root", "s", False, "version: 1\n"))
        s.record_event("mark", cause="here", text="here", at=1.5, n=-3, of=["a", {"b": None}])
        s.turn(0.1)
        s.turn(0.1)
        s.close()
        s.turn(0.1)
    return sent


def link_messages(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What a driver's link sends, but for samples."""
    sent: Sent = []

    def send(message: Message) -> bool:
        sent.append((str(message.kind), header(message)))
        return True

    socket = SimpleNamespace(
        send=send,
        receive=lambda: None,
        wait=lambda *_, **__: None,
        close=lambda: None,
    )
    tap = SimpleNamespace(declare=lambda _: None, wanted=lambda _: False, close=lambda: None)
    clock = ManualClock(1000 * S)
    with monkeypatch.context() as patch:
        patch.setattr(link_module, "DriverSocket", lambda *_: socket)
        patch.setattr(link_module, "TapPublisher", lambda *_: tap)
        link = WriterLink("imu", (SPEC,), Path("run"), clock, lambda *_, **__: None)
        link._send_all()
        socket.send(Message(Kind.PING))
        session = Session("key", 900 * S, 1200 * S, None, 950 * S)
        ring = SendRing((SPEC,), epoch=7, merge_bytes=0, session="key")
        ring.hello({}, buffer_bytes=100, window_bytes=1000)
        lost = make_interval_of_loss(session, SPEC, "device", (940 * S, 1000 * S))
        assert lost is not None
        ring.offer(lost)
        ring.offer(Message(Kind.STATE, "imu", t_mono_ns=1000 * S, values={"temperature": 40.5}))
        for _ in range(2):
            times = np.arange(30) + 1000 * S
            ring.offer(Message(Kind.DATA, "imu", count=30, t_mono_ns=times, frames=[bytes(120)]))
        ring.end("fault", "it broke")
        while (message := ring.next_to_send()) is not None:
            socket.send(message)
            ring.mark_sent(message)
    return sent


def tap_messages(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Sent:
    sent: Sent = []
    monkeypatch.setattr(
        bus_module, "_send", lambda _, frames: sent.append(("tap join", bytes(frames[1])))
    )
    tap = bus_module.TapPublisher(f"ipc://{folder}/tap")
    tap.declare(SPEC)
    tap._topics[b""] += 1
    tap.publish(Message(Kind.STATE, "imu", values={"temperature": 40.5}))
    tap.close()
    return sent[:1]


class Router:
    """The writer's socket, whose peers the test plays."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.inbox: deque[tuple[bytes, Message]] = deque()
        self.sent: deque[tuple[bytes, Message, bytes]] = deque()
        self.came = threading.Condition()

    def wait(self, seconds: float) -> None:
        with self.came:
            self.came.wait_for(lambda: bool(self.inbox), min(seconds, 0.005))

    def receive(self) -> tuple[bytes, Message] | None:
        return self.inbox.popleft() if self.inbox else None

    def send(self, peer: bytes, message: Message) -> bool:
        self.sent.append((peer, message, header(message)))
        return True

    def close(self) -> None:
        pass


class Writer:
    """A service in a thread of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.router = Router()
        self.clock = SomeClock(1000 * S)
        self.sent: Sent = []
        self._asked = 0
        monkeypatch.setattr(service_module, "WriterSocket", lambda *_, **__: self.router)
        monkeypatch.setattr(session_writer_module, "boot_id", lambda: "boot")
        self.service = WriterService(Path("run"), 8_000_000, self.clock, PosixDisk())
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def tell(self, peer: bytes, message: Message) -> None:
        frames = [bytes(frame) for frame in encode(message)]
        with self.router.came:
            self.router.inbox.append((peer, decode(frames)))
            self.router.came.notify_all()

    def hear(self, name: str, peer: bytes, kind: Kind) -> Message:
        """The next message to a peer, which must be of that kind."""
        wait_until(name, lambda: self.router.sent)
        to, message, data = self.router.sent.popleft()
        assert (to, message.kind) == (peer, kind), name
        self.sent.append((name, data))
        return message

    def ask(self, **command: Any) -> None:
        self._asked += 1
        self.tell(b"supervisor", Message(Kind.COMMAND, number=self._asked, values=command))

    def answer(self, name: str) -> dict[str, Any]:
        return self.hear(name, b"supervisor", Kind.STATUS).values

    def until_status(self, ready: Callable[[dict[str, Any]], bool], name: str) -> None:
        """Only the last status counts: the threads of the session take the time that they take."""
        self._asked += 1
        number = self._asked

        def is_ready() -> bool:
            self.tell(b"supervisor", Message(Kind.COMMAND, number=number, values={"op": "status"}))
            if ready(self.answer(name)):
                return True
            self.sent.pop()
            return False

        wait_until(name, is_ready)

    def close(self) -> None:
        self.service.quit()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    made = Writer(monkeypatch)
    yield made
    made.close()


def replies(writer: Writer) -> Sent:
    """What the writer sends, in the life of two sessions."""
    driver, stranger = b"driver", b"stranger"
    plan = SessionPlan(".", "s", True, "version: 1\n", **PLAN | {"record_format": None}).to_wire()
    join = {"sensor": "imu", "streams": [SPEC.to_wire()], "since_ns": 5}

    def data(epoch: int, number: int) -> Message:
        item = Message(Kind.DATA, "imu", count=2, t_mono_ns=np.arange(2) + 1001 * S)
        item.epoch, item.number, item.seq, item.frames = epoch, number, 2 * number, [bytes(8)]
        return item

    def end(epoch: int, number: int, reason: str) -> Message:
        item = Message(Kind.END, "imu", t_mono_ns=1002 * S, values={"reason": reason})
        item.epoch, item.number, item.seq = epoch, number, 2 * number
        return item

    writer.tell(stranger, Message(Kind.PING))
    writer.hear("who", stranger, Kind.WHO)
    writer.ask(op="status")
    writer.answer("status without a session")
    writer.ask(op="stop", live=[], grace_s=1.0)
    writer.answer("stop without a session")
    writer.ask(op="split", plan=plan)
    writer.answer("split without a session")
    writer.tell(driver, Message(Kind.JOIN, values=join))
    writer.hear("hello without a session", driver, Kind.HELLO)
    writer.clock.advance(1.0)
    writer.ask(op="start", plan=plan)
    writer.hear("hello of a new session", driver, Kind.HELLO)
    writer.answer("started")
    writer.ask(op="start", plan=plan)
    writer.answer("started again")
    for number in range(2):
        writer.tell(driver, data(7, number))
    writer.until_status(lambda s: s["streams"]["imu"]["samples"] == 4, "status")
    writer.tell(driver, Message(Kind.PING))
    writer.hear("acknowledged in part", driver, Kind.ACK)
    writer.ask(op="event", event={"kind": "mark", "cause": "here"})
    writer.answer("event")
    writer.clock.advance(1.0)
    writer.ask(op="split", plan=plan | {"name": "t"}, session="s", live=["imu"])
    writer.hear("hello at the seam", driver, Kind.HELLO)
    writer.tell(driver, end(7, 2, "split"))
    writer.hear("hello behind the seam", driver, Kind.HELLO)
    for key in ("s", "t"):
        writer.hear(f"acknowledged, {key}", driver, Kind.ACK)
    writer.hear("hello when the first is closed", driver, Kind.HELLO)
    writer.answer("split")
    writer.ask(op="stop", live=["imu"], grace_s=100.0)
    writer.hear("finish", driver, Kind.FINISH)
    writer.tell(driver, end(8, 0, "stopped"))
    writer.hear("acknowledged at the end", driver, Kind.ACK)
    writer.hear("hello after the end", driver, Kind.HELLO)
    writer.answer("stopped")
    writer.ask(op="status")
    writer.answer("status after the end")
    writer.tell(driver, Message(Kind.DATA, "gnss"))
    writer.tell(stranger, Message(Kind.JOIN, values=join | {"sensor": "other"}))
    writer.hear("fault", stranger, Kind.FAULT)
    return writer.sent


def test_all_bytes_are_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Writer
) -> None:
    monkeypatch.chdir(tmp_path)
    sent = commands(tmp_path) + link_messages(monkeypatch) + replies(writer)
    sent += tap_messages(monkeypatch, Path())
    assert text_of(sent) == GOLDEN.read_text()
