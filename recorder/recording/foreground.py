"""Recording of one session in the foreground, for `recorder run`.

::

    with Foreground(config, SystemClock(), print) as foreground:
        foreground.arm()                         # every source open, every stream declared
        foreground.start(plan)
        outcome = foreground.record(watch)       # until the sources end, or `stop` is called
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET

from recorder.bus.messages import Ending
from recorder.common.clock import Clock
from recorder.common.errors import ConfigError, ConfigFaultsError, RecorderError, StorageError
from recorder.config.loading import Config
from recorder.recording.host.clocks import ClockRecord
from recorder.recording.logs import WARNING, LogLine
from recorder.recording.supervisor.sensors import Sensor, Status
from recorder.recording.supervisor.supervisor import Supervisor
from recorder.recording.supervisor.writer_client import WriterRequest
from recorder.session.incidents import END
from recorder.session.layout import SessionPlan

_POLL_S = 0.1
_ARM_S = 30.0  # for drivers to open their sources; slower drivers join the session late
_WAIT_S = 1.0  # before a message names the drivers that the start waits for
_FAULTS_S = 5.0  # for the other drivers, once one reports a fault of the config
_STATUS_S = 0.25
_OVERTIME_S = 30.0  # beyond a duration, for sources that play slower than real time
_TRIAL_S = 5.0  # of the overtime: to measure such a source's speed, and for drivers to restart
_MISSING_S = 1.0  # beyond a duration, for drivers that cannot report their end

Watch = Callable[[Status], None]


@dataclass(slots=True)
class Outcome:
    """Result of a recording.

    Attributes:
        session: the session's folder.
        streams: by stream, the writer's account.
        faults: one sentence per fault.
        sealed: the disk's failure; None without one.
        full: message that the session ended early on a nearly full disk; None if it did not.
        why: end reason, a word of `recorder.session.incidents`.
    """

    session: Path
    streams: dict[str, dict[str, Any]]
    faults: list[str]
    sealed: str | None = None
    full: str | None = None
    why: str | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0, 1 for a failed disk, 3 for losses, faults or a full disk."""
        if self.sealed:
            return 1
        missing = ("lost", "unknown_losses", "incomplete")
        lost = any(stream.get(key) for stream in self.streams.values() for key in missing)
        return 3 if lost or self.faults or self.full else 0


class Foreground(Supervisor):
    """Supervisor with blocking methods; see the module's example.

    Attributes:
        on_turn: callbacks that receive CLOCK_MONOTONIC ns after every turn (at least ten a second);
            a slow callback delays the whole recording.
        stopping: whether `stop` was called.
    """

    def __init__(self, config: Config, clock: Clock, say: LogLine, **more: Any) -> None:
        super().__init__(config, clock, say, **more)
        self.on_turn: list[Callable[[int], object]] = []
        self.stopping = False
        self._look_due = False
        self._stopped_by = ""
        self._stopped_why = ""
        self._overtime: dict[str, tuple[float, float]] = {}  # elapsed and played at its start

    def stop(self, by: str = "", why: str = "signal") -> None:
        """End the recording; safe in a signal handler.

        Args:
            by: name of the signal.
            why: end reason of the session, a word of `recorder.session.incidents`.
        """
        self.stopping, self._stopped_by, self._stopped_why = True, by, why
        self.wake()

    def arm(self) -> None:
        """Start writer and drivers; return when every driver has settled or timed out.

        A driver that raises, exits or hangs in `open` is a fault of the session; the other drivers
        record.

        Raises:
            ConfigFaultsError: drivers reject their options or sources; contains the faults of all
                sensors.
            RecorderError: no driver is armed, and no missing device may still appear.
        """
        self.launch()
        began_ns = self.clock.monotonic_ns()
        deadline_ns = began_ns + round(_ARM_S * 1e9)
        waiting = False
        wrong: list[Sensor] = []
        while not self.settled and self.clock.monotonic_ns() <= deadline_ns:
            self._turn()
            slow = [sensor.name for sensor in self.sensors.values() if not sensor.settled]
            if slow and not waiting and self.clock.monotonic_ns() - began_ns > _WAIT_S * 1e9:
                waiting = True
                self._say(f"waiting for {', '.join(slow)} to open")
            if self.stopping:
                raise RecorderError("stopped before the recording began")
            if not wrong and (wrong := self._find_misconfigured()):
                soon_ns = self.clock.monotonic_ns() + round(_FAULTS_S * 1e9)
                deadline_ns = min(deadline_ns, soon_ns)
        if wrong := self._find_misconfigured():
            raise ConfigFaultsError([self._config_fault(sensor) for sensor in wrong])
        for sensor in self.sensors.values():
            if not sensor.settled:
                sensor.fault = sensor.fault or f"{sensor.name}: did not open within {_ARM_S:g} s"
                self._say(f"{sensor.fault}; the others record")
        if not any(sensor.armed or sensor.missing for sensor in self.sensors.values()):
            why = "; ".join(str(sensor.fault) for sensor in self.sensors.values())
            raise RecorderError(f"nothing can be recorded: {why}")

    def start(self, plan: SessionPlan) -> Path:
        """Begin a session; every played source begins to play.

        Raises:
            UsageError, StorageError: see `layout.create_session`.
        """
        question = self._wait_for(self.begin(plan))
        if question.session is None:
            raise question.problem or StorageError("the writer began no session")
        return Path(question.session)

    def record(self, watch: Watch, duration_s: float | None = None) -> Outcome:
        """Record until all sources end or `stop` is called; close the session.

        Args:
            watch: receives the status a few times a second.
            duration_s: the plan's duration; sources end by themselves at that time.
        """
        assert self.session is not None
        session = Path(self.session)
        started_ns = self.clock.monotonic_ns()
        clocks = ClockRecord()
        why = "sources" if duration_s is None else "duration"
        while not self.stopping and not self._all_ended(duration_s, started_ns):
            self.look()
            self._turn_for(_STATUS_S, lambda: self._all_ended(duration_s, started_ns))
            clocks.tick(self.session, self.clock.monotonic_ns(), self.put, self.report)
            self.clock_state = clocks.last
            if (ended := self.take_ending()) is not None:
                return self._outcome(session, ended)
            elapsed = (self.clock.monotonic_ns() - started_ns) / 1e9
            watch(Status(elapsed, session, self.streams, self.sensors, self.outages()))
            if duration_s is not None and elapsed > duration_s + _OVERTIME_S:
                late = f"sources still play {_OVERTIME_S:g} s after the duration; stopping"
                self._say(late, WARNING)
                why = "overtime"
                break
        if self.stopping:
            why = self._stopped_why
        self.stop_restarts()
        self.record_event(END, cause=why, detail=self._stopped_by or None)
        outcome = self._outcome(session, self._wait_for(self.close()).ending)
        outcome.why = outcome.why or why
        elapsed = (self.clock.monotonic_ns() - started_ns) / 1e9
        watch(Status(elapsed, session, outcome.streams, self.sensors))
        return outcome

    def _find_misconfigured(self) -> list[Sensor]:
        return [sensor for sensor in self.sensors.values() if sensor.misconfigured]

    def _config_fault(self, sensor: Sensor) -> ConfigError:
        """Return a driver's fault as a config error, with its place in the config."""
        option, text = sensor.fault_key, sensor.fault or f"{sensor.name}: its driver ended"
        if option.startswith(f"{sensor.name}."):
            return self.config.error(f"sensors.{option}", text.removeprefix(f"{option}: "))
        text = text.removeprefix(f"{sensor.name}: ")
        return self.config.error(f"sensors.{sensor.name}.source", text)

    def _outcome(self, session: Path, ended: Ending) -> Outcome:
        why = "sealed" if ended.sealed else "floor" if ended.full else None
        streams = ended.streams or self.streams
        return Outcome(session, streams, self.faults, ended.sealed, ended.full, why)

    def _all_ended(self, duration_s: float | None, started_ns: int) -> bool:
        """Return whether every source that can end has ended or failed."""
        elapsed = (self.clock.monotonic_ns() - started_ns) / 1e9
        over = duration_s is not None and elapsed > duration_s + _MISSING_S

        def has_ended(sensor: Sensor) -> bool:
            gone = sensor.given_up or sensor.changed
            stuck = over and self._is_stuck(sensor, elapsed, duration_s or 0.0)
            return sensor.ended or gone or stuck

        can_end = [
            sensor
            for sensor in self.sensors.values()
            if duration_s is not None
            or sensor.given_up
            or sensor.changed
            or (not sensor.entry.loop and any(s.finite for s in sensor.specs.values()))
        ]
        everything = can_end and all(map(has_ended, can_end))
        return bool(everything and (duration_s is None or len(can_end) == len(self.sensors)))

    def _is_stuck(self, sensor: Sensor, elapsed_s: float, duration_s: float) -> bool:
        """Return whether an unfinished sensor will not reach the duration in time."""
        if not sensor.armed and sensor.specs and sensor.alive:  # it is being started again
            return elapsed_s > duration_s + _TRIAL_S
        if sensor.missing or sensor.stalled or not sensor.armed:
            return True
        started_ns = self.status.start_mono_ns
        last = [self.streams.get(name, {}).get("last_ns") for name in sensor.specs]
        reached = [t_ns for t_ns in last if t_ns is not None and t_ns >= 0]
        if sensor.entry.live or started_ns is UNSET or not reached:
            return False
        # The source plays slower than real time: does its speed suffice for the rest?
        played_s = (max(reached) - started_ns) / 1e9
        since_s, before_s = self._overtime.setdefault(sensor.name, (elapsed_s, played_s))
        tried_s = elapsed_s - since_s
        speed = (played_s - before_s) / tried_s if tried_s else 0.0
        return tried_s >= _TRIAL_S and duration_s - played_s > speed * _OVERTIME_S

    def _wait_for(self, question: WriterRequest) -> WriterRequest:
        """Run turns until the request is done, even across restarts of the writer."""
        while not question.done:
            self._turn()
        return question

    def _turn(self) -> None:
        self.turn(_POLL_S)
        if self._look_due and not self.silent_s:
            self._look_due = False
            self.look()
        for callback in self.on_turn:
            callback(self.clock.monotonic_ns())
        if self.writer.failed is not None:
            raise StorageError(self.writer.failed)

    def _turn_for(self, seconds: float, done: Callable[[], bool]) -> None:
        until = self.clock.monotonic_ns() + round(seconds * 1e9)
        while self.clock.monotonic_ns() < until and not self.stopping and not done():
            self._turn()

    def _on_sensor(self, sensor: Sensor, report: dict[str, Any]) -> None:
        super()._on_sensor(sensor, report)
        if report["event"] == "ended":  # the writer has the end and can report it now
            self._look_due = True
