"""Child processes of the supervisor: the writer and the drivers."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from recorder.common.process_setup import start_thread
from recorder.config.settings import ProcessSettings, SensorEntry
from recorder.recording.supervisor.background_process import apply
from recorder.recording.supervisor.child_output import ChildOutput
from recorder.recording.supervisor.driver_registry import driver_command
from recorder.recording.supervisor.process_table import DRIVER, WRITER

Event = tuple[str, dict[str, Any]]
"""(child's name, its report)."""

_LONGEST_REPORT = 1 << 20
_CHUNK = 1 << 16
_TICK_MS = 1000
_MOST_LEFT = 64  # chunks to read after the end, if others hold the pipes


class Child:
    """A child process whose standard output is a stream of JSON lines.

    Each line, and the end of the process as ``{"event": "exit", "code": N, "last": TEXT}``, goes to
    `events`; `wake` is called after each.  Other output, mostly on standard error, becomes
    ``{"event": "printed", "line": TEXT}``, cleaned and limited (see `ChildOutput`).  ``last`` is
    the latest such line of a failed process.  A child never waits for the reader of the events.

    Attributes:
        refused: settings of `priority` that the kernel did not permit.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        events: queue.SimpleQueue[Event],
        wake: Callable[[], None],
        *,
        stdin: str = "",
        priority: ProcessSettings = ProcessSettings(),  # noqa: B008  frozen
    ) -> None:
        self.name = name
        self._events = events
        self._wake = wake
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # only the supervisor gets Ctrl-C, even before a child ignores it
            # Numeric libraries start a thread per core by default.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        try:
            # Open it before any thread can wait for the process.
            self._ended = os.pidfd_open(self.process.pid)
        except OSError:  # no descriptor is left: counts as a failed start
            self._give_up()
            raise
        # Apply it before the process has threads, which inherit the priority.
        self.refused = apply(priority, self.process.pid)
        self._report = bytearray()  # of the line that has not ended
        self._printed = ChildOutput()
        self._thread = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        try:
            start_thread(self._thread)
        except OSError:
            os.close(self._ended)
            self._give_up()
            raise
        with contextlib.suppress(BrokenPipeError):  # it died at once; its exit is reported as usual
            assert self.process.stdin is not None
            with self.process.stdin as given:
                given.write(stdin.encode())

    def _give_up(self) -> None:
        """Kill a process that cannot be supervised."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self, grace_s: float) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end in time."""
        if self.alive:
            self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._thread.join()

    def _read(self) -> None:
        """Read both pipes until the process has ended; its descendants may hold them longer."""
        assert self.process.stdout is not None and self.process.stderr is not None
        try:
            with self.process.stdout as stdout, self.process.stderr as stderr:
                takers = {stdout.fileno(): self._take_reports, stderr.fileno(): self._take_printed}
                poller = select.poll()
                poller.register(self._ended, select.POLLIN)
                for fd in takers:
                    os.set_blocking(fd, False)
                    poller.register(fd, select.POLLIN)
                gone = False
                while not gone:
                    for fd, _ in poller.poll(_TICK_MS):
                        if fd == self._ended:
                            gone = True
                        elif chunk := _read_some(fd):
                            takers[fd](chunk)
                        elif chunk is not None:
                            poller.unregister(fd)
                    self._pass_on(self._printed.tick(time.monotonic()))
                for fd, take in takers.items():
                    for _ in range(_MOST_LEFT):
                        if not (chunk := _read_some(fd)):
                            break
                        take(chunk)
        finally:
            os.close(self._ended)
        code = self.process.wait()
        self._pass_on(self._printed.end(failed=code != 0))
        last = self._printed.last if code > 0 else ""  # of a traceback: the error itself
        self._report_event({"event": "exit", "code": code, "last": last})

    def _take_reports(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line = bytes(self._report) + piece
            self._report.clear()
            self._take_line(line)
        self._report += rest
        if len(self._report) > _LONGEST_REPORT:
            self._take_line(bytes(self._report))
            self._report.clear()

    def _take_line(self, line: bytes) -> None:
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            report = None
        if isinstance(report, dict) and isinstance(report.get("event"), str):
            self._report_event(report)
        else:
            self._take_printed(line + b"\n")  # a library that prints

    def _take_printed(self, chunk: bytes) -> None:
        self._pass_on(self._printed.feed(chunk, time.monotonic()))

    def _pass_on(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._report_event({"event": "printed", "line": line})

    def _report_event(self, report: dict[str, Any]) -> None:
        self._events.put((self.name, report))
        self._wake()


def _read_some(fd: int) -> bytes | None:
    """Return the bytes that can be read now; empty at the end, None if there are none yet."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None


def writer_command(run_folder: Path, buffer_mb: float, resume: str | None) -> list[str]:
    """Return the command line of the writer process."""
    command = WRITER.command("--bus", str(run_folder), "--parent", str(os.getpid()))
    command += ["--buffer-mb", str(buffer_mb)]
    return command + (["--resume", resume] if resume else [])


def run_command(run_folder: Path, entry: SensorEntry) -> list[str]:
    """Return the command line of a driver process."""
    command = driver_command(entry.driver, *DRIVER.arguments)
    return [*command, "--bus", str(run_folder), "--parent", str(os.getpid())]
