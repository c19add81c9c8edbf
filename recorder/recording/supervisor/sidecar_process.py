"""Sidecar process of a recording (live view or triggers), restarted when it dies.

::

    live = SidecarProcess(LIVE, live_request(config, settings, socket), clock, say)
    while serving:
        live.turn(now_ns)                # never waits
    live.close()

The recording does not depend on it: its death is a warning, not a fault.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recorder.common.clock import Clock
from recorder.common.files import Closeable
from recorder.config.loading import Config
from recorder.config.settings import LiveSettings, plain_settings
from recorder.recording.logs import INFO, WARNING, LogLine
from recorder.recording.preflight import extra_problem
from recorder.recording.supervisor.children import Child, Event
from recorder.recording.supervisor.process_table import LIVE, STEADY_S, VIEW_RESTART, ProcessSpec

_END_S = 3.0
_MOST_LINES = 100


class SidecarProcess(Closeable):
    """Sidecar process that is kept running; see the module's example.

    Args:
        spec: the process, `LIVE` or `TRIGGERS`.
        request: values that the process reads as JSON from its standard input; never logged.
        clock: injectable.
        say: logs one line for users.
        spawn: a constructor like `Child`; injectable.

    Attributes:
        child: the running process; None without one.
        url: address at which it serves; None while it does not serve.
        fault: why it does not serve; None if it serves, or the reason is unknown.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        request: Mapping[str, Any],
        clock: Clock,
        say: LogLine,
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
        self._lines: set[str] = set()  # lines of this process
        self._repeated: set[str] = set()
        if self.fault is not None:
            self._log(self.fault, WARNING)

    @property
    def restarts(self) -> int:
        """Number of processes started after the first."""
        return max(0, self._starts - 1)

    def status(self) -> dict[str, Any]:
        """Return the process's part of the daemon's status (docs/daemon.md)."""
        pid = None if self.child is None else self.child.process.pid
        return {"url": self.url, "pid": pid, "restarts": self.restarts, "fault": self.fault}

    def turn(self, now_ns: int) -> None:
        """Take the reports of the process; start it if a start is due."""
        self._take_reports(now_ns)
        if self._start_at_ns is not None and now_ns >= self._start_at_ns:
            self._start(now_ns)

    def close(self) -> None:
        """End the process, in bounded time."""
        self._start_at_ns = None
        if self.child is not None:
            self.child.end(_END_S)
            self.child = None
            self._take_reports(self._clock.monotonic_ns())  # its last output

    def _start(self, now_ns: int) -> None:
        self._start_at_ns, self._started_ns = None, now_ns
        self._starts += 1
        try:
            self.child = self._spawn(
                self._name, self._command, self._events, lambda: None, stdin=self.request
            )
        except (OSError, RuntimeError) as error:  # no process, thread or descriptor is left
            self._handle_exit(
                f"cannot be started: {getattr(error, 'strerror', None) or error}", now_ns
            )

    def _take_reports(self, now_ns: int) -> None:
        while not self._events.empty():
            _, report = self._events.get()
            match report["event"]:
                case "listening":
                    self.url, self.fault = str(report.get("url")), None
                    self._say(f"{self._name}: {self.url}")
                case "printed":
                    self._log(report["line"])
                case "exit" if self.child is not None:
                    last = f": {report['last']}" if report.get("last") else ""
                    self._handle_exit(f"ended with code {report['code']}{last}", now_ns)

    def _handle_exit(self, fault: str, now_ns: int) -> None:
        self.child = self.url = None
        if now_ns - self._started_ns >= STEADY_S * 1e9:
            self._quick_deaths = 0
            self._lines.clear()
        self._quick_deaths += 1
        self._start_at_ns = now_ns + round(VIEW_RESTART.pause_s(self._quick_deaths) * 1e9)
        self.fault = fault
        self._log(f"{fault}; starting it again", WARNING)
        self._repeated, self._lines = self._lines, set()

    def _log(self, text: str, level: str = INFO) -> None:
        """Log a line unless the previous process, which died, logged the same line."""
        if len(self._lines) < _MOST_LINES:
            self._lines.add(text)
        if text not in self._repeated:
            self._say(f"{self._name}: {text}", level)


def trigger_request(config: Config, socket: Path) -> dict[str, Any]:
    """Return the request that starts the process of the triggers.

    Args:
        config: the config with the triggers.
        socket: path of the control socket.
    """
    triggers = [plain_settings(trigger) for trigger in config.triggers]
    return {"socket": str(socket.absolute()), "triggers": triggers}


def live_request(
    config: Config, settings: LiveSettings, socket: Path, root: Path | None = None
) -> dict[str, Any]:
    """Return the request that starts the live process.

    Args:
        config: the config of the recording.
        settings: settings of the live view.
        socket: path of the control socket.
        root: folder of sessions; the config's if it is None.
    """
    calibration = None if config.calibration is None else str(config.calibration)
    return {
        "socket": str(socket.absolute()),
        "live": plain_settings(settings),
        "root": str(root or config.session.root),
        "calibration": calibration,
    }
