"""Child processes of the supervisor: the writer and the drivers."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recorder.contract.settings import ProcessSettings, SensorEntry
from recorder.daemon.catalog import driver_command
from recorder.daemon.processes.priority import apply

Event = tuple[str, dict[str, Any]]
"""(child's name, what it reported)."""

_LONGEST_LINE = 1 << 20


class Child:
    """A child process whose standard output is a stream of JSON lines.

    The lines, and the end of the process as ``{"event": "exit", "code": N}``, go to `events`;
    `wake` is called after each.

    Attributes:
        refused: what of `priority` the kernel did not permit.
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
            encoding="utf-8",
            errors="replace",  # a library may print anything
            # Numeric libraries start a thread per core unless told; recording wants none.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        # Before it has threads: these inherit.
        self.refused = apply(priority, self.process.pid)
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(stdin)
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; its exit is reported like any other
        self._thread = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL where that does not help in time."""
        if self.alive:
            self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            while line := stdout.readline(_LONGEST_LINE):
                try:
                    report = json.loads(line)
                except (ValueError, RecursionError):
                    report = None
                if not isinstance(report, dict) or not isinstance(report.get("event"), str):
                    with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                        sys.stderr.write(f"{self.name}: {line}")  # a library that prints
                    continue
                self._events.put((self.name, report))
                self._wake()
        self._events.put((self.name, {"event": "exit", "code": self.process.wait()}))
        self._wake()


def writer_command(run_folder: Path, buffer_mb: float, resume: str | None) -> list[str]:
    """Command line of the writer process."""
    command = [sys.executable, "-m", "recorder.writer", "--bus", str(run_folder)]
    command += ["--parent", str(os.getpid()), "--buffer-mb", str(buffer_mb)]
    return command + (["--resume", resume] if resume else [])


def run_command(run_folder: Path, entry: SensorEntry) -> list[str]:
    """Command line of a driver process."""
    command = driver_command(entry.driver, "run")
    return [*command, "--bus", str(run_folder), "--parent", str(os.getpid())]
