"""The supervisor: starts writer and drivers, restarts what dies, records one session.

Drivers live as long as the supervisor; a session starts and ends in the writer::

    with Supervisor(config, SystemClock()) as supervisor:
        supervisor.arm()                         # every source open, every stream declared
        supervisor.start(plan)
        outcome = supervisor.record(watch)       # until the sources end, or `stop` is called
"""

from __future__ import annotations

import json
import queue
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from recorder.contract.bus import DriverSocket, Waker, tap_address
from recorder.contract.clock import Clock
from recorder.contract.config import Config
from recorder.contract.errors import (
    ConfigError,
    DeviceError,
    RecorderError,
    SourceError,
    StorageError,
    UsageError,
)
from recorder.contract.settings import SensorEntry
from recorder.contract.streams import StreamSpec
from recorder.contract.wire import Kind, Message
from recorder.daemon.children import Child, Event, run_command, writer_command
from recorder.session.layout import SessionPlan

_WRITER = ""  # the writer's name among the children; no sensor has it
_POLL_S = 0.1
_ARM_S = 60.0
_COMMAND_S = 60.0
_STATUS_S = 0.25
_OVERTIME_S = 30.0  # beyond a duration, for sources that play slower than time
_FINISH_S = 10.0
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_WRITER_STARTS = 20  # without one answer in between

Watch = Callable[["Status"], None]


@dataclass(slots=True)
class Sensor:
    """A sensor as the supervisor sees it."""

    entry: SensorEntry
    child: Child | None = None
    armed: bool = False
    ended: bool = False
    fault: str | None = None
    given_up: bool = False
    starts: int = 0
    restart_at_ns: int | None = None
    specs: dict[str, StreamSpec] = field(default_factory=dict)
    ring_held: int = 0
    ring_size: int = 0


@dataclass(slots=True)
class Status:
    """How a recording stands; what a watcher is shown.

    Attributes:
        elapsed_s: seconds since the session's start.
        session: its folder.
        streams: by stream, the writer's account (samples, bytes, lost, ended, ...).
        sensors: by sensor, its state here.
    """

    elapsed_s: float
    session: Path
    streams: dict[str, dict[str, Any]]
    sensors: dict[str, Sensor]


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


class Supervisor:
    """Runs the processes of one config; see the module's example.

    Args:
        config: what to record.
        clock: injectable.
        say: takes one line for people (restarts, faults).
    """

    def __init__(self, config: Config, clock: Clock, say: Callable[[str], None]) -> None:
        self._config = config
        self._clock = clock
        self._say = say
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._waker = Waker()
        self.run_folder = Path(tempfile.mkdtemp(prefix="recorder-"))
        self._socket = DriverSocket(self.run_folder, self._waker)
        self.sensors = {entry.name: Sensor(entry) for entry in config.sensors}
        self._writer: Child | None = None
        self._writer_starts = 0
        self._session: str | None = None
        self._stopping = False
        self._asked = 0
        self._replies: dict[int, dict[str, Any]] = {}
        self._faults: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sensor in self.sensors.values():
            if sensor.child is not None and sensor.child.alive:
                sensor.child.process.terminate()
        for sensor in self.sensors.values():
            if sensor.child is not None:
                sensor.child.end(5.0)
        if self._writer is not None:
            self._writer.end(5.0)
        self._socket.close()
        shutil.rmtree(self.run_folder, ignore_errors=True)

    @property
    def taps(self) -> dict[str, str]:
        """Address of every sensor's tap."""
        return {name: tap_address(self.run_folder, name) for name in self.sensors}

    def stop(self) -> None:
        """End the recording; safe in a signal handler."""
        self._stopping = True
        self._waker.wake()

    def arm(self) -> None:
        """Start writer and drivers; return when every stream is declared.

        Raises:
            SourceError, ConfigError, DeviceError: a driver could not open its source.
        """
        self._start_writer()
        for sensor in self.sensors.values():
            self._start_driver(sensor)
        deadline = self._clock.monotonic_ns() + round(_ARM_S * 1e9)
        while not all(sensor.armed for sensor in self.sensors.values()):
            self._turn()
            for sensor in self.sensors.values():
                if sensor.given_up:
                    raise SourceError(sensor.fault or "a driver ended")
                if sensor.fault and not sensor.armed:
                    raise DeviceError(sensor.fault)
            if self._stopping:
                raise RecorderError("stopped before the recording began")
            if self._clock.monotonic_ns() > deadline:
                late = ", ".join(n for n, s in self.sensors.items() if not s.armed)
                raise DeviceError(f"{late}: not ready within {_ARM_S:g} s")

    def start(self, plan: SessionPlan) -> Path:
        """Begin a session; every played source begins to play.

        Raises:
            UsageError, StorageError: as `layout.create_session` has it.
        """
        plan.sensors = {
            name: {
                "driver": sensor.entry.driver,
                "source": sensor.entry.scheme,
                "streams": sorted(sensor.specs),
            }
            for name, sensor in self.sensors.items()
        }
        reply = self._ask(op="start", plan=asdict(plan))
        if "error" in reply:
            raise (UsageError if reply["exit_code"] == 2 else StorageError)(reply["error"])
        self._session = reply["session"]
        return Path(reply["session"])

    def record(self, watch: Watch, duration_s: float | None = None) -> Outcome:
        """Watch over the session until its sources end or `stop` is called; close it.

        Args:
            watch: called with the state a few times a second.
            duration_s: as in the plan; sources end by themselves at that time.
        """
        assert self._session is not None
        session = Path(self._session)
        started_ns = self._clock.monotonic_ns()
        streams: dict[str, dict[str, Any]] = {}
        while not self._stopping and not self._all_ended(duration_s):
            status = self._ask(op="status")
            if (ended := status.get("ended")) is not None:
                return self._outcome(session, streams, ended)
            streams = status.get("streams", streams)
            for sensor in self.sensors.values():
                ends = [streams.get(name, {}).get("ended") for name in sensor.specs]
                sensor.ended = bool(ends) and all(ends)
            elapsed = (self._clock.monotonic_ns() - started_ns) / 1e9
            watch(Status(elapsed, session, streams, self.sensors))
            if duration_s is not None and elapsed > duration_s + _OVERTIME_S:
                self._say(f"sources still play {_OVERTIME_S:g} s after the duration; stopping")
                break
            if not self._all_ended(duration_s):
                self._turn_for(_STATUS_S)
        reply = self._close()
        self._session = None
        streams = reply.get("streams", streams)
        elapsed = (self._clock.monotonic_ns() - started_ns) / 1e9
        watch(Status(elapsed, session, streams, self.sensors))
        return self._outcome(session, streams, reply)

    def _outcome(
        self, session: Path, streams: dict[str, dict[str, Any]], ended: dict[str, Any]
    ) -> Outcome:
        self._session = None
        streams = ended.get("streams") or streams
        sealed = ended.get("error") or ended.get("sealed")
        return Outcome(session, streams, self._faults, sealed, ended.get("full"))

    def _close(self) -> dict[str, Any]:
        self._stopping = True
        while True:
            live = [n for n, s in self.sensors.items() if s.child is not None and s.child.alive]
            reply = self._ask(op="stop", live=live, grace_s=_FINISH_S)
            if "closed" in reply or "error" in reply:
                return reply

    def _all_ended(self, duration_s: float | None) -> bool:
        """Whether every source that can end has ended (a failed one has, too)."""
        can_end = [
            sensor
            for sensor in self.sensors.values()
            if duration_s is not None
            or sensor.given_up
            or (not sensor.entry.loop and any(s.finite for s in sensor.specs.values()))
        ]
        everything = can_end and all(s.ended or s.given_up for s in can_end)
        return bool(everything and (duration_s is None or len(can_end) == len(self.sensors)))

    def _ask(self, **command: Any) -> dict[str, Any]:
        """Send a command to the writer and wait for its reply, across writers if need be."""
        deadline = self._clock.monotonic_ns() + round(_COMMAND_S * 1e9)
        self._asked += 1
        asked: Child | None = None
        while (reply := self._replies.pop(self._asked, None)) is None:
            if asked is not self._writer:  # a new writer knows nothing of the question
                if asked is not None and command["op"] == "start":
                    raise StorageError("the writer ended while it began the session")
                asked = self._writer
                self._socket.send(Message(Kind.COMMAND, number=self._asked, values=command))
            self._turn()
            if self._clock.monotonic_ns() > deadline:
                raise StorageError(f"the writer does not answer ({command['op']})")
        self._replies.clear()
        self._writer_starts = 0
        return reply

    def _turn_for(self, seconds: float) -> None:
        until = self._clock.monotonic_ns() + round(seconds * 1e9)
        while self._clock.monotonic_ns() < until and not self._stopping:
            self._turn()

    def _turn(self) -> None:
        """One turn of the loop: replies, reports, restarts that are due."""
        self._socket.wait(_POLL_S)
        while (message := self._socket.receive()) is not None:
            if message.kind is Kind.STATUS:
                self._replies[message.number] = message.values
        while not self._events.empty():
            name, report = self._events.get()
            if name == _WRITER:
                self._on_writer(report)
            else:
                self._on_sensor(self.sensors[name], report)
        for sensor in self.sensors.values():
            due = sensor.restart_at_ns
            if due is not None and self._clock.monotonic_ns() >= due:
                self._start_driver(sensor)

    def _start_writer(self) -> None:
        self._writer_starts += 1
        command = writer_command(self.run_folder, self._config.storage.buffer_mb, self._session)
        self._writer = Child(_WRITER, command, self._events, self._waker.wake)

    def _on_writer(self, report: dict[str, Any]) -> None:
        if report["event"] != "exit":
            return
        if report["code"] == 0 or self._writer_starts >= _WRITER_STARTS:
            raise StorageError(f"the writer ended with code {report['code']}")
        self._say(f"writer ended with code {report['code']}; starting another")
        self._start_writer()

    def _start_driver(self, sensor: Sensor) -> None:
        entry = sensor.entry
        sensor.restart_at_ns = None
        sensor.starts += 1
        sensor.armed = False
        sensor.child = Child(
            entry.name,
            run_command(self.run_folder, entry),
            self._events,
            self._waker.wake,
            stdin=json.dumps(self._config.sensor_for_driver(entry)),
            nice=entry.process.nice,
            cpus=entry.process.cpus,
        )

    def _on_sensor(self, sensor: Sensor, report: dict[str, Any]) -> None:
        match report["event"]:
            case "armed":
                specs = [StreamSpec.from_wire(s) for s in report["streams"]]
                sensor.specs = {spec.name: spec for spec in specs}
                sensor.armed, sensor.fault = True, None
            case "fault":
                sensor.fault = report["message"]
                if self._session is not None:
                    self._faults.append(report["message"])
                    self._say(report["message"])
                sensor.given_up = sensor.given_up or report["exit_code"] != DeviceError.exit_code
            case "stats":
                sensor.ring_held, sensor.ring_size = report["held"], report["buffer"]
            case "exit":
                self._on_exit(sensor, report["code"])

    def _on_exit(self, sensor: Sensor, code: int) -> None:
        name = sensor.entry.name
        if self._stopping or sensor.ended:
            return
        if code == ConfigError.exit_code:
            sensor.given_up = True
        if sensor.given_up:
            return
        if self._session is None and not sensor.armed:
            sensor.fault = sensor.fault or f"{name}: the driver ended with code {code}"
            sensor.given_up = True
            return
        wait = _BACKOFF_S[min(sensor.starts - 1, len(_BACKOFF_S) - 1)]
        self._say(f"{name}: driver ended with code {code}; starting another in {wait:g} s")
        sensor.restart_at_ns = self._clock.monotonic_ns() + round(wait * 1e9)
