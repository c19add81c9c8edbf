"""Services that run beside a daemon: metrics, clocks, the session's log, viewers, triggers."""

from __future__ import annotations

from pathlib import Path

from recorder.common.files import Closeable
from recorder.recording.daemon.daemon import Daemon
from recorder.recording.daemon.logs import Log
from recorder.recording.daemon.metrics import MetricsServer, render
from recorder.recording.host.clock_record import ClockRecord
from recorder.recording.supervisor.sidecar_process import SidecarProcess

_METRICS_NS = 1_000_000_000


class Sidecars(Closeable):
    """Metrics server, clock record, session log and sidecar processes of a daemon.

    The constructor attaches them to the daemon.

    Args:
        daemon: a daemon that is not yet open.
        log: the log that follows the sessions.
        clocks: record of the clocks' states; created if it is None.
        live: the live process; None if the config has none.
        triggers: the process of the triggers; None if the config has none.

    Raises:
        StorageError: the metrics port is in use.
    """

    def __init__(
        self,
        daemon: Daemon,
        log: Log,
        clocks: ClockRecord | None = None,
        live: SidecarProcess | None = None,
        triggers: SidecarProcess | None = None,
    ) -> None:
        self._log = log
        self._clocks = clocks or ClockRecord()
        self._processes = [process for process in (live, triggers) if process is not None]
        self._text = ""
        self._due_ns = 0
        port = daemon.config.metrics.port
        self.metrics = None if port is None else MetricsServer(port, lambda: self._text)
        daemon.live, daemon.triggers = live, triggers
        daemon.on_tick.append(self._tick)

    def close(self) -> None:
        """Stop the metrics server, the clock record and the processes."""
        if self.metrics is not None:
            self.metrics.close()
        self._clocks.close()
        for process in self._processes:
            process.close()

    def _tick(self, daemon: Daemon, now_ns: int) -> None:
        for process in self._processes:
            process.turn(now_ns)
        session = daemon.sessions.machine.session
        self._log.follow(None if session is None else Path(session))
        self._clocks.tick(session, now_ns, daemon.supervisor.put, daemon.supervisor.report)
        daemon.supervisor.clock_state = self._clocks.last
        if self.metrics is not None and now_ns >= self._due_ns:
            self._due_ns = now_ns + _METRICS_NS
            self._text = render(daemon.status())
