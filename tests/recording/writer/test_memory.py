"""The writer's memory: it grows by the drivers' rings and 50 MB, whatever drivers send."""

from __future__ import annotations

import queue
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.bus.sockets import DriverSocket
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.clock import SystemClock
from recorder.recording.supervisor.children import Child, Event, writer_command
from recorder.session.layout import SessionPlan
from recorder.session.reader import Session as Reader
from recorder.session.validation import validate
from tests.faults.rig import Sensor
from tests.support.events import events

MB = 1_000_000
BUFFER_MB = 64
BESIDES_MB = 50
PATIENCE_S = 60.0


class WriterProcess:
    """A writer with the command line that the supervisor gives it."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.child = Child("", writer_command(folder, BUFFER_MB, None), self.events, lambda: None)
        self.socket = DriverSocket(folder)
        self.root = root
        self.clock = SystemClock()
        self._asked = 0

    def ask(self, **command: Any) -> dict[str, Any]:
        self._asked += 1
        assert self.socket.send(Message(Kind.COMMAND, number=self._asked, values=command))
        self.socket.wait(PATIENCE_S)
        reply = self.socket.receive()
        assert reply is not None and reply.number == self._asked, "the writer does not answer"
        assert "error" not in reply.values
        return dict(reply.values)

    def start(self) -> Path:
        plan = SessionPlan(str(self.root), "s", True, "version: 1\n", min_free_gb=0.0)
        return Path(self.ask(op="start", plan=plan.to_wire())["session"])

    def memory_mb(self, key: str) -> float:
        """``VmRSS``, or ``VmHWM``: the most that it ever was."""
        text = Path(f"/proc/{self.child.process.pid}/status").read_text()
        (kilobytes,) = re.findall(rf"{key}:\s+(\d+) kB", text)
        return int(kilobytes) * 1024 / MB

    def close(self) -> None:
        self.socket.close()
        self.child.end(10.0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[WriterProcess]:
    folder = Path(tempfile.mkdtemp(prefix="r"))
    made = WriterProcess(folder, tmp_path / "root")
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def connect(writer: WriterProcess, name: str, size: int) -> Sensor:
    """A driver's link for samples of so many bytes."""
    return Sensor(writer, StreamSpec(name, (ChannelSpec("b", "raw", "u1", (size,)),), rate_hz=10.0))


def give(sensor: Sensor) -> bool:
    """Offer a sample as soon as there is room."""
    frame = np.zeros(sensor.spec.channels[0].shape, "u1").data
    times = np.array([SystemClock().monotonic_ns()], np.int64)
    name = sensor.spec.name
    message = Message(Kind.DATA, stream=name, count=1, t_mono_ns=times, frames=[frame])
    assert sensor.link.wait_for_room(name, message.nbytes, PATIENCE_S)
    return sensor.link.publish(message, sensor.session())


def record(writer: WriterProcess, sensor: Sensor, count: int) -> dict[str, Any]:
    """So many samples in a session; returns the writer's account of the stream."""
    taken = [give(sensor) for _ in range(count)]
    sensor.link.end(sensor.session(), "eof", "")
    sensor.drain()
    account = writer.ask(op="stop", live=[], grace_s=PATIENCE_S)["streams"][sensor.spec.name]
    sensor.link.close()
    assert (taken.count(True), taken.count(False)) == (
        account["samples"],
        account["lost"].get("refused", 0),
    )
    return dict(account)


def test_samples_as_large_as_the_ring_go_through_one_by_one(writer: WriterProcess) -> None:
    sensor = connect(writer, "large", 60 * MB)
    before_mb = writer.memory_mb("VmRSS")
    path = writer.start()
    assert record(writer, sensor, 4)["samples"] == 4
    assert writer.memory_mb("VmHWM") - before_mb < BUFFER_MB + BESIDES_MB
    assert validate(path).sound


def test_a_sample_larger_than_the_ring_is_refused_counted_and_said_once(
    writer: WriterProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    sensor = connect(writer, "huge", 1_000 * MB)
    before_mb = writer.memory_mb("VmRSS")
    path = writer.start()
    assert record(writer, sensor, 3)["lost"] == {"refused": 3}
    assert writer.memory_mb("VmHWM") - before_mb < BESIDES_MB
    lost = events(path, type="lost")
    assert sum(event["count"] for event in lost) == 3
    assert {(event["stream"], event["cause"]) for event in lost} == {("huge", "refused")}
    said = capfd.readouterr().err
    assert said.count("is larger than the ring of its driver") == 1 and "storage.buffer_mb" in said


def test_a_peer_that_sends_more_than_any_ring_is_cut_off(writer: WriterProcess) -> None:
    writer.ask(op="status")
    before_mb = writer.memory_mb("VmRSS")
    with DriverSocket(writer.folder) as rogue:
        for _ in range(3):
            assert rogue.send(Message(Kind.DATA, stream="x", count=1, frames=[bytes(300 * MB)]))
            assert rogue.send(Message(Kind.PING))
            rogue.wait(PATIENCE_S)
            reply = rogue.receive()
            assert reply is not None and reply.kind is Kind.WHO, "it may come again, and is asked"
    sensor = connect(writer, "good", 1000)
    path = writer.start()
    assert record(writer, sensor, 5)["samples"] == 5
    assert writer.memory_mb("VmHWM") - before_mb < BUFFER_MB + BESIDES_MB
    with Reader(path) as session:
        assert len(session.streams["good"]) == 5
