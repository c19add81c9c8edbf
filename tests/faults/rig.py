"""A writer's service with its real sockets and threads, and drivers' links, in one process."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from drivers.kit.writer_link import WriterLink
from recorder.bus.messages import AnnouncedSession as Session
from recorder.bus.sockets import DriverSocket
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import SystemClock
from recorder.common.files import Disk
from recorder.recording.writer.service import WriterService
from recorder.session.layout import SessionPlan
from tests.faults.numbers import message
from tests.support.waiting import PATIENCE_S, wait_until


class Bench(Protocol):
    """The folder of a writer's sockets, and the clock."""

    folder: Path
    clock: SystemClock


class Sensor:
    """A driver's link; the test is its main thread.

    Attributes:
        sent: samples offered in this session.
        refused: how many of them the ring refused.
    """

    def __init__(self, rig: Bench, spec: StreamSpec) -> None:
        self.spec = spec
        self.sent = self.refused = 0
        self._reports: list[str] = []
        self.link = WriterLink(spec.name, (spec,), rig.folder, rig.clock, self._report)
        self.link.start()
        wait_until("armed", lambda: "armed" in self._reports)

    def _report(self, event: str, **values: Any) -> None:
        self._reports.append(event)

    def session(self) -> Session:
        session = self.link.wait_for_session(PATIENCE_S)
        assert session is not None
        return session

    def publish(self, count: int = 1, session: Session | None = None) -> bool:
        """Offer the next numbers; False where they were refused."""
        numbers = list(range(self.sent, self.sent + count))
        item = message(self.spec, numbers, time.monotonic_ns())
        taken = self.link.publish(item, session or self.session())
        self.sent += count
        self.refused += 0 if taken else count
        return taken

    def drain(self) -> None:
        assert self.link.drain(PATIENCE_S)


class Rig:
    """Writer, sensors, and the supervisor's questions::

    with rig(disk) as r:
        sensor = r.sensor(stream("a"))
        r.start(root)
        sensor.publish()
        r.stop()
    """

    def __init__(self, disk: Disk, buffer_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="faults-"))
        self.clock = SystemClock()
        self.sensors: list[Sensor] = []
        self.service = WriterService(self.folder, buffer_bytes, self.clock, disk)
        self.thread = threading.Thread(target=self.service.run, name="service")
        self.thread.start()
        self._socket = DriverSocket(self.folder)
        self._asked = 0

    def sensor(self, spec: StreamSpec) -> Sensor:
        self.sensors.append(Sensor(self, spec))
        return self.sensors[-1]

    def ask(self, seconds: float = PATIENCE_S, **command: Any) -> dict[str, Any]:
        self._asked += 1
        self._socket.send(Message(Kind.COMMAND, number=self._asked, values=command))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._socket.wait(0.05)
            while (reply := self._socket.receive()) is not None:
                if reply.number == self._asked:
                    return reply.values
        raise AssertionError(f"no answer: {command}")

    def start(self, root: Path, name: str = "s", **plan: Any) -> Path:
        values = SessionPlan(str(root), name, True, "version: 1\n", sync_interval_ms=20)
        reply = self.ask(op="start", plan=values.to_wire() | plan)
        assert "error" not in reply, reply
        for sensor in self.sensors:
            sensor.sent = sensor.refused = 0
            sensor.session()
        return Path(reply["session"])

    def stop(self) -> dict[str, Any]:
        return self.ask(op="stop", live=[s.spec.name for s in self.sensors], grace_s=10.0)

    def ended(self) -> dict[str, Any]:
        """How the session ended by itself."""
        ends: list[dict[str, Any]] = []

        def over() -> bool:
            ends[:] = [end] if (end := self.ask(op="status")["ended"]) else []
            return bool(ends)

        wait_until("the session's end", over)
        return ends[0]

    def close(self) -> None:
        for sensor in self.sensors:
            sensor.link.close()
        self.service.quit()
        self.thread.join(PATIENCE_S)
        self._socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not self.thread.is_alive(), "the writer's service hangs"


@contextmanager
def rig(disk: Disk, buffer_bytes: int = 8_000_000) -> Iterator[Rig]:
    made = Rig(disk, buffer_bytes)
    try:
        yield made
    finally:
        made.close()
