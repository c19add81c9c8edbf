"""One session in the foreground: what `recorder run` does with the supervisor's processes.

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

from recorder.contract.clock import Clock
from recorder.contract.config import Config
from recorder.contract.errors import (
    DeviceError,
    RecorderError,
    SourceError,
    StorageError,
    UsageError,
)
from recorder.daemon.host.clock_record import ClockRecord
from recorder.daemon.processes.questions import Question
from recorder.daemon.processes.sensors import Sensor, Status
from recorder.daemon.processes.supervisor import Supervisor
from recorder.session.layout import SessionPlan

_POLL_S = 0.1
_ARM_S = 60.0
_STATUS_S = 0.25
_OVERTIME_S = 30.0  # beyond a duration, for sources that play slower than time
_MISSING_S = 1.0  # beyond a duration, for devices that are away and cannot say that it is over

Watch = Callable[[Status], None]


@dataclass(slots=True)
class Outcome:
    """How a recording ended.

    Attributes:
        session: its folder.
        streams: by stream, the writer's account.
        faults: one sentence per fault.
        sealed: why the disk failed; None where it did not.
        full: why the session ended before its time: its disk is nearly full; None where not.
    """

    session: Path
    streams: dict[str, dict[str, Any]]
    faults: list[str]
    sealed: str | None = None
    full: str | None = None

    @property
    def exit_code(self) -> int:
        """0, 1 where the disk failed, 3 where data was lost or the disk is full."""
        if self.sealed:
            return 1
        lost = any(s["lost"] or s["unknown_losses"] for s in self.streams.values())
        return 3 if lost or self.faults or self.full else 0


class Foreground(Supervisor):
    """A supervisor whose methods wait; see the module's example."""

    def __init__(
        self, config: Config, clock: Clock, say: Callable[[str], None], **more: Any
    ) -> None:
        super().__init__(config, clock, say, **more)
        self._stopping = False

    def stop(self) -> None:
        """End the recording; safe in a signal handler."""
        self._stopping = True
        self.wake()

    def arm(self) -> None:
        """Start writer and drivers; return when every stream is declared or its device missing.

        Raises:
            SourceError, ConfigError, DeviceError: a driver could not open its source.
        """
        self.launch()
        deadline = self._clock.monotonic_ns() + round(_ARM_S * 1e9)
        while not self.settled:
            self._turn()
            for sensor in self.sensors.values():
                self._check(sensor)
            if self._stopping:
                raise RecorderError("stopped before the recording began")
            if self._clock.monotonic_ns() > deadline:
                late = ", ".join(n for n, s in self.sensors.items() if not s.settled)
                raise DeviceError(f"{late}: not ready within {_ARM_S:g} s")
        for sensor in self.sensors.values():
            self._check(sensor)

    def start(self, plan: SessionPlan) -> Path:
        """Begin a session; every played source begins to play.

        Raises:
            UsageError, StorageError: as `layout.create_session` has it.
        """
        reply = self._wait_for(self.begin(plan))
        if "error" in reply:
            raise (UsageError if reply["exit_code"] == 2 else StorageError)(reply["error"])
        return Path(reply["session"])

    def record(self, watch: Watch, duration_s: float | None = None) -> Outcome:
        """Watch over the session until its sources end or `stop` is called; close it.

        Args:
            watch: called with the state a few times a second.
            duration_s: as in the plan; sources end by themselves at that time.
        """
        assert self.session is not None
        session = Path(self.session)
        started_ns = self._clock.monotonic_ns()
        clocks = ClockRecord()
        while not self._stopping and not self._all_ended(duration_s, started_ns):
            self.look()
            self._turn_for(_STATUS_S)
            clocks.tick(self.session, self._clock.monotonic_ns(), self.tell)
            if (ended := self.take_ended()) is not None:
                return self._outcome(session, ended)
            elapsed = (self._clock.monotonic_ns() - started_ns) / 1e9
            watch(Status(elapsed, session, self.streams, self.sensors))
            if duration_s is not None and elapsed > duration_s + _OVERTIME_S:
                self._say(f"sources still play {_OVERTIME_S:g} s after the duration; stopping")
                break
        self.finishing()
        outcome = self._outcome(session, self._wait_for(self.close()))
        elapsed = (self._clock.monotonic_ns() - started_ns) / 1e9
        watch(Status(elapsed, session, outcome.streams, self.sensors))
        return outcome

    def _check(self, sensor: Sensor) -> None:
        """A driver that does not come up ends the run before it has begun."""
        if sensor.given_up:
            raise SourceError(sensor.fault or "a driver ended")
        if sensor.deaths and not sensor.armed:
            if sensor.open_failed:
                raise DeviceError(sensor.fault or "a driver ended")
            raise SourceError(sensor.fault or "a driver ended")

    def _outcome(self, session: Path, ended: dict[str, Any]) -> Outcome:
        streams = ended.get("streams") or self.streams
        sealed = ended.get("error") or ended.get("sealed")
        return Outcome(session, streams, self.faults, sealed, ended.get("full"))

    def _all_ended(self, duration_s: float | None, started_ns: int) -> bool:
        """Whether every source that can end has ended (a failed one has, too)."""
        elapsed = (self._clock.monotonic_ns() - started_ns) / 1e9
        over = duration_s is not None and elapsed > duration_s + _MISSING_S

        def has_ended(sensor: Sensor) -> bool:
            gone = sensor.given_up or sensor.changed or (over and sensor.missing)
            return sensor.ended or gone

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

    def _wait_for(self, question: Question) -> dict[str, Any]:
        """The writer's reply, across writers if need be."""
        while not question.done:
            self._turn()
        return question.value()

    def _turn(self) -> None:
        self.turn(_POLL_S)
        if self.writer_failed is not None:
            raise StorageError(self.writer_failed)

    def _turn_for(self, seconds: float) -> None:
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        while self._clock.monotonic_ns() < until and not self._stopping:
            self._turn()
