"""A session with a stream of every kind of file, committed for a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recorder.bus.wire import Kind, Message
from recorder.common.files import Disk, PosixDisk
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.journal.digests import DigestedFile
from recorder.session.layout import SessionPlan
from tests.faults.numbers import message, stream
from tests.manual_clock import ManualClock

LIDAR = stream("lidar", 10.0, ("raw", "lzmaf"))
CAMERA = stream("camera", 30.0, ("mjpg",))
SPECS = {spec.name: spec for spec in (LIDAR, CAMERA)}


class Drive:
    """Sends running numbers into a session's writer.

    Attributes:
        sent: by stream, samples that were appended.
        committed: by stream, samples that were durable at the last commit.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.clock = ManualClock(5_000_000_000)
        self.disk = disk or PosixDisk()
        plan = SessionPlan(
            str(root),
            "drive",
            True,
            "version: 1\n",
            calibration_text="sensors: {}\n",
            record_format=["lidar"],
        )
        self.writer = SessionWriter.create(self.disk, plan, self.clock)
        for spec in SPECS.values():
            self.writer.declare(spec)
        self.sent = dict.fromkeys(SPECS, 0)
        self.committed = dict.fromkeys(SPECS, 0)
        self._numbers = dict.fromkeys(SPECS, 0)
        self._epoch, self._before = 7, dict.fromkeys(SPECS, 0)

    @property
    def path(self) -> Path:
        return self.writer.path

    def send(self, name: str, count: int) -> None:
        """Append a message of so many samples."""
        self.clock.advance(0.05)
        first = self.sent[name]
        numbers = list(range(first, first + count))
        item = message(SPECS[name], numbers, self.clock.monotonic_ns())
        item.epoch, item.number = self._epoch, self._numbers[name]
        item.seq = first - self._before[name]
        self._numbers[name] += 1
        self.sent[name] += count
        self.writer.append(item)

    def second(self, commits: int = 5) -> None:
        """A second of both streams, with so many commits."""
        for _ in range(commits):
            self.send("lidar", 2)
            self.send("camera", 3)
            self.writer.event("mark", cause="passing")
            self.clock.advance(0.11)
            self.commit()

    def go_on(self) -> None:
        """Let a second writer go on behind the last commit."""
        self.writer = SessionWriter.resume(PosixDisk(), self.path, self.clock)
        for spec in SPECS.values():
            self.writer.declare(spec)
        self._numbers = {name: self.writer.durable[name][1] for name in SPECS}
        self.sent = dict(self.committed)

    def restart_drivers(self) -> None:
        """What is sent from here on comes from drivers that began anew."""
        self._epoch, self._before = self._epoch + 1, dict(self.sent)
        self._numbers = dict.fromkeys(SPECS, 0)

    def commit(self) -> None:
        self.writer.commit()
        self.committed = dict(self.sent)

    def close(self) -> None:
        """End both streams, and the session."""
        for name in SPECS:
            sent = self.sent[name] - self._before[name]
            end = Message(Kind.END, name, self._epoch, self._numbers[name], sent)
            end.t_mono_ns, end.values = self.clock.monotonic_ns(), {"reason": "stopped"}
            self.writer.append(end)
        self.writer.close("clean")

    def die(self) -> None:
        """As a kill: nothing that waits in this process reaches the kernel."""
        for file in [*self.writer._files(), self.writer._session_log.journal.file]:
            inner: Any = file.inner if isinstance(file, DigestedFile) else file
            inner._failed = True  # so that closing flushes nothing
            inner.close()
        self.writer._close_files = lambda: None  # type: ignore[method-assign]
        self.writer.abandon()

    def flush(self) -> None:
        """Hand to the kernel what was appended, as a commit does before it syncs."""
        with self.writer.lock:
            self.writer._flush()
