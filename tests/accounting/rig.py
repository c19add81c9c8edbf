"""A driver's half and a writer's half of one stream, with the kills between them in our hands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from drivers.kit.driver import incomplete
from drivers.kit.send_ring import SendRing
from recorder.bus.wire import Kind, Message, decode, encode
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import AppendFile, PosixDisk, _PosixAppendFile
from recorder.recording.writer.recovery import RecoveryReport, recover
from recorder.recording.writer.sequencing import Position, Verdict
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.journal.digests import DigestedFile
from recorder.session.layout import SessionPlan
from tests.manual_clock import ManualClock

NAME = "radar"
SPEC = StreamSpec(NAME, (ChannelSpec("id", "raw", "u8", (8,), "which sample"),), rate_hz=100.0)
BUFFER_BYTES = 4000  # about 30 samples


class KillableDisk(PosixDisk):
    """A disk whose files can be dropped as SIGKILL drops them: what was gathered is gone."""

    def __init__(self) -> None:
        self.files: list[AppendFile] = []

    def create(self, path: Path) -> AppendFile:
        self.files.append(super().create(path))
        return self.files[-1]

    def reopen(self, path: Path, length: int) -> AppendFile:
        self.files.append(super().reopen(path, length))
        return self.files[-1]

    def kill(self, reached: Callable[[str], bool]) -> None:
        """Close all files; those that `reached` names had just been handed to the kernel."""
        for file in self.files:
            assert isinstance(file, _PosixAppendFile)
            if file._fd < 0:
                continue
            if reached(file.path.name):
                file.flush()
            file._pending.clear()
            file._pending_bytes = 0
            file.close()
        self.files = []


class Rig:
    """One stream from its driver's ring to the disk, one step at a time.

    ::

        rig = Rig(tmp_path)
        rig.data(3)
        rig.lose(2)
        rig.commit()
        rig.end("eof")
        path = rig.close()

    Attributes:
        sent: by epoch that ended, the samples that its driver sent.
        taken: by epoch, ids of the samples that its ring took.
        counted: by epoch, samples that were counted as lost, by the device or by the ring.
    """

    def __init__(self, root: Path, spec: StreamSpec = SPEC) -> None:
        self.clock = ManualClock(monotonic_ns=10_000_000_000)
        self.disk = KillableDisk()
        plan = SessionPlan(str(root), "rig", True, "version: 1\n")
        plan.sensors = {spec.name: {"driver": "mmwave", "source": "file", "streams": [spec.name]}}
        plan.sensors[spec.name]["max_incomplete"] = 0.5
        self.writer = SessionWriter.create(self.disk, plan, self.clock)
        self.writer.declare(spec)
        self.path = self.writer.path
        self.spec = spec
        self.position = Position()
        self.sent: dict[int, int] = {}
        self.taken: dict[int, list[int]] = {}
        self.counted: dict[int, int] = {}
        self._id = 0
        self._epoch = 100
        self._start_driver()

    def _start_driver(self) -> None:
        self._epoch += 1
        self.ring = SendRing([self.spec], self._epoch)
        self.taken[self._epoch], self.counted[self._epoch] = [], 0
        self._hello()

    def _hello(self) -> None:
        number = self.position.number
        expected = {self.spec.name: (self.position.epoch, number, number)}
        self.ring.hello(expected, buffer_bytes=BUFFER_BYTES, window_bytes=BUFFER_BYTES)

    def data(self, count: int) -> None:
        """A batch of samples; the ring may refuse it."""
        if self.ring.ended:
            return
        self.clock.advance(count / 100)
        ids = np.arange(self._id, self._id + count, dtype="<u8")
        self._id += count
        times = self.clock.monotonic_ns() - np.arange(count)[::-1] * 10_000_000
        frame = np.repeat(ids, 8).tobytes()
        message = Message(Kind.DATA, NAME, count=count, t_mono_ns=times, frames=[frame])
        if self.ring.offer(message):
            self.taken[self._epoch] += ids.tolist()
        else:
            self.counted[self._epoch] += count

    def lose(self, count: int | None) -> None:
        """The device lost samples; None: nobody knows how many."""
        if self.ring.ended:
            return
        self.clock.advance(0.01)
        values = {"cause": "device"}
        t_ns = self.clock.monotonic_ns()
        message = Message(Kind.LOST, NAME, count=count, t_mono_ns=t_ns, values=values)
        self.ring.offer(message)
        self.counted[self._epoch] += count or 0

    def incomplete(self, cause: str, samples: int, parts: int) -> None:
        """The driver reports that of the samples that it has sent, some lack parts."""
        if self.ring.ended:
            return
        values = incomplete(cause, parts, samples)
        t_ns = self.clock.monotonic_ns()
        self.ring.offer(Message(Kind.STATE, NAME, t_mono_ns=t_ns, values=values))

    def end(self, reason: str = "stopped") -> None:
        """The driver ends its stream."""
        if not self.ring.ended:
            self.ring.end(reason)
            self.sent[self._epoch] = len(self.taken[self._epoch]) + self.counted[self._epoch]

    def pump(self) -> None:
        """All that credit allows goes over to the writer and is appended."""
        while (message := self.ring.next_to_send()) is not None:
            self.ring.mark_sent(message)
            arrived = decode(encode(message))
            if self.position.judge(arrived) is Verdict.ACCEPT:
                self.writer.append(arrived)

    def commit(self) -> None:
        """A sync interval is over."""
        self.pump()
        self.writer.commit()
        epoch, number = self.writer.durable.get(NAME, (0, 0))
        _, appended = self.writer.appended.get(NAME, (0, 0))
        self.ring.acknowledge({NAME: (epoch, number, appended)})

    def restart_driver(self) -> None:
        """SIGKILL for the driver: its ring is gone; after a while another start of it."""
        self.clock.advance(0.2)
        self._start_driver()

    def kill_writer(self, reached: Callable[[str], bool]) -> None:
        """SIGKILL for the writer; digests are handed to the kernel before what they are of."""
        for file in self.writer._files():
            if isinstance(file, DigestedFile) and (entries := file.announcements()):
                file._announce(entries)
        self.disk.kill(reached)
        os.close(self.writer._lock_fd)

    def restart_writer(self, reached: Callable[[str], bool]) -> None:
        """SIGKILL for the writer, and another that goes on."""
        self.kill_writer(reached)
        self.writer = SessionWriter.resume(self.disk, self.path, self.clock)
        self.writer.declare(self.spec)
        state = self.writer.positions()[NAME]
        self.position = Position(
            state["epoch"], state["number"], state["seq"], state["ended"], set(state["past"])
        )
        self._hello()

    def close(self) -> Path:
        """The session's end, with what still comes from the driver."""
        for _ in range(3):  # what was refused is told when there is room again
            self.commit()
        for name, state in self.writer.positions().items():
            if state["ended"] is None:
                self.writer.lose_tail(name)
        self.writer.close("clean")
        return self.path

    def recover(self, reached: Callable[[str], bool]) -> RecoveryReport:
        """Everything is killed at once, and recovered."""
        self.kill_writer(reached)
        return self.recover_only()

    def recover_only(self) -> RecoveryReport:
        """Recover a session whose writer was killed."""
        return recover(self.path, PosixDisk(), self.clock)
