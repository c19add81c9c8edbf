"""A process beside the recording, the live view's or the triggers', started again when it dies.

::

    live = LiveProcess(LIVE, live_request(config, settings, socket), clock, say)
    while serving:
        live.turn(now_ns)                # never waits
    live.close()

Nothing that is recorded depends on it: its death is a warning, and no fault.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recorder.contract.clock import Clock
from recorder.contract.closing import Closing
from recorder.contract.config.loading import Config
from recorder.contract.config.settings import LiveSettings, plain_settings
from recorder.daemon.preflight import extra_problem
from recorder.daemon.processes.children import Child, Event
from recorder.daemon.processes.process_table import LIVE, STEADY_S, VIEW_RESTART, ProcessSpec
from recorder.daemon.service_notifier import INFO, WARNING, Say

_END_S = 3.0
_MOST_LINES = 100


class LiveProcess(Closing):
    """See the module's example.

    Args:
        spec: the process, `LIVE` or `TRIGGERS`.
        request: what the process reads as JSON from its standard input; never logged.
        clock: injectable.
        say: takes one line for people.
        spawn: as `Child`: injectable.

    Attributes:
        child: the process that runs; None if none does.
        url: where it serves; None while it does not.
        fault: why it does not serve; None if that is not known.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        request: Mapping[str, Any],
        clock: Clock,
        say: Say,
        *,
        spawn: Callable[..., Child] = Child,
    ) -> None:
        self.request = json.dumps(request)
        self.child: Child | None = None
        self.url: str | None = None
        self.fault = extra_problem() if spec is LIVE else None
        self._name = spec.name
        self._clock = clock
        self._say = say
        self._spawn = spawn
        self._command = spec.command()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._start_at_ns = clock.monotonic_ns() if self.fault is None else None
        self._started_ns = 0
        self._starts = 0
        self._quick_deaths = 0
        self._lines: set[str] = set()  # of this process, and of the one that died before it
        self._repeated: set[str] = set()
        if self.fault is not None:
            self._tell(self.fault, WARNING)

    @property
    def restarts(self) -> int:
        """Count of processes started after the first."""
        return max(0, self._starts - 1)

    def status(self) -> dict[str, Any]:
        """What the daemon's status has of it (docs/daemon.md)."""
        pid = None if self.child is None else self.child.process.pid
        return {"url": self.url, "pid": pid, "restarts": self.restarts, "fault": self.fault}

    def turn(self, now_ns: int) -> None:
        """Take what the process reports; start it if that is due."""
        self._take_reports(now_ns)
        if self._start_at_ns is not None and now_ns >= self._start_at_ns:
            self._start(now_ns)

    def close(self) -> None:
        """End the process, in bounded time."""
        self._start_at_ns = None
        if self.child is not None:
            self.child.end(_END_S)
            self.child = None
            self._take_reports(self._clock.monotonic_ns())  # its last words

    def _start(self, now_ns: int) -> None:
        self._start_at_ns, self._started_ns = None, now_ns
        self._starts += 1
        try:
            self.child = self._spawn(
                self._name, self._command, self._events, lambda: None, stdin=self.request
            )
        except (OSError, RuntimeError) as error:  # no process, thread or descriptor is left
            self._ended(f"cannot be started: {getattr(error, 'strerror', None) or error}", now_ns)

    def _take_reports(self, now_ns: int) -> None:
        while not self._events.empty():
            _, report = self._events.get()
            match report["event"]:
                case "listening":
                    self.url, self.fault = str(report.get("url")), None
                    self._say(f"{self._name}: {self.url}")
                case "printed":
                    self._tell(report["line"])
                case "exit" if self.child is not None:
                    last = f": {report['last']}" if report.get("last") else ""
                    self._ended(f"ended with code {report['code']}{last}", now_ns)

    def _ended(self, fault: str, now_ns: int) -> None:
        self.child = self.url = None
        if now_ns - self._started_ns >= STEADY_S * 1e9:
            self._quick_deaths = 0
            self._lines.clear()
        self._quick_deaths += 1
        self._start_at_ns = now_ns + round(VIEW_RESTART.pause_s(self._quick_deaths) * 1e9)
        self.fault = fault
        self._tell(f"{fault}; starting it again", WARNING)
        self._repeated, self._lines = self._lines, set()

    def _tell(self, text: str, level: str = INFO) -> None:
        """Log a line, unless the process that died before it ended with the same line."""
        if len(self._lines) < _MOST_LINES:
            self._lines.add(text)
        if text not in self._repeated:
            self._say(f"{self._name}: {text}", level)


def trigger_request(config: Config, socket: Path) -> dict[str, Any]:
    """What the process of the triggers has to know from its start.

    Args:
        config: has the triggers.
        socket: the control socket.
    """
    triggers = [plain_settings(trigger) for trigger in config.triggers]
    return {"socket": str(socket.absolute()), "triggers": triggers}


def live_request(
    config: Config, settings: LiveSettings, socket: Path, root: Path | None = None
) -> dict[str, Any]:
    """What the live process has to know from its start.

    Args:
        config: what is recorded.
        settings: where it serves.
        socket: the control socket.
        root: folder of sessions; the config's unless given.
    """
    calibration = None if config.calibration is None else str(config.calibration)
    return {
        "socket": str(socket.absolute()),
        "live": plain_settings(settings),
        "root": str(root or config.session.root),
        "calibration": calibration,
    }
