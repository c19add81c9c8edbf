"""Supervisor that starts writer and drivers, restarts dead processes, and watches progress.

Drivers live as long as the supervisor; a session starts and ends in the writer.  Only `turn`
waits, and it does all due work.  A request to the writer is a `WriterRequest`, which is done after
some turns::

    with Supervisor(config, SystemClock(), print) as supervisor:
        supervisor.launch()
        while not supervisor.settled:            # every stream is declared or known to be missing
            supervisor.turn(0.1)
        question = supervisor.begin(plan)
        while not question.done:
            supervisor.turn(0.1)

`recorder.recording.foreground` records one session with it, `recorder.recording.daemon.daemon`
several.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from msgspec import UNSET

from recorder.bus.messages import (
    FROZEN,
    MOVES,
    AskStatus,
    Command,
    Ending,
    PutEvent,
    SessionPlan,
    Split,
    Start,
    Status,
    Stop,
)
from recorder.bus.sockets import DriverSocket, Waker
from recorder.codecs.streams import StreamSpec
from recorder.common.clock import Clock
from recorder.common.errors import ConfigError, DeviceError, ProtocolError
from recorder.common.secret_masking import mask_passwords
from recorder.config.loading import Config
from recorder.recording.logs import ERROR, INFO, WARNING, LogLine
from recorder.recording.supervisor.children import Child, Event, run_command, writer_command
from recorder.recording.supervisor.progress import Progress
from recorder.recording.supervisor.sensors import ABSENT, LOST, PRESENT, Sensor, find_outage
from recorder.recording.supervisor.writer_client import (
    Line,
    WriterClient,
    WriterProcess,
    WriterRequest,
)
from recorder.session.events import format_event, format_event_line, make_event

MOST = 100
MOST_TEXT = 300


class RecentEvents:
    """Ring of the last `MOST` events.

    ::

        events.add(clock.realtime_ns(), "device", "imu", "lost", detail="no answer")
        events.list()      # [{"number": 0, "t_ns": ..., "kind": "device", "stream": "imu", ...}]
    """

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=MOST)
        self._number = 0

    def add(self, t_ns: int, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Add an event at `t_ns`, epoch ns; `more` is its text, or values from which it is made."""
        text = format_event(make_event(kind, t_ns, stream, cause, **more))
        # Cut before: masking takes long for long texts.  Cut after: no half of a password is left.
        text, cause = mask_passwords(text[: 4 * MOST_TEXT])[:MOST_TEXT], cause[:MOST_TEXT]
        event = {"number": self._number, "t_ns": t_ns, "kind": kind}
        self._events.append(event | {"stream": stream or None, "cause": cause, "text": text})
        self._number += 1

    def list(self) -> list[dict[str, Any]]:
        """Return the events, oldest first; their numbers count from the daemon's start."""
        return list(self._events)


WRITER = ""  # the writer's name among the children; no sensor has it
COMMAND_S = 60.0
FINISH_S = 10.0
_MOST_FAULTS = 100  # a session may last for months
_END_S = 5.0
_PAUSE_NS = 5_000_000_000  # between turns: this process was stopped
_HUNG_S = 120.0  # a writer is killed after this silence; the system's watchdog acts earlier


class Supervisor:
    """Supervisor of the processes of one config; see the module's example.

    Args:
        config: the sensors to record, and the settings.
        clock: injectable.
        say: logs one line for users (restarts, faults).
        line: connection to the writer; injectable.
        spawn: a constructor like `Child`; injectable.

    Attributes:
        clock: the given clock.
        sensors: the sensors' states, by name.
        session: folder of the open session; None without one.
        streams: the writer's account by stream, from its last status.
        status: the writer's last status.
        heard_ns: CLOCK_MONOTONIC of the writer's last message.
        writer: the writer's process.
        faults: one sentence per fault of this session.
        events: the latest events.
        progress: rates of the streams, losses, and commits.
        warnings: settings of the config that could not be applied, once each.
        clock_state: state from `recorder.recording.host.clocks`; None before the first.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        say: LogLine,
        *,
        line: Line | None = None,
        spawn: Callable[..., Child] = Child,
    ) -> None:
        self.config = config
        self.clock = clock
        self._say = say
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._waker = Waker()
        place = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or None  # systemd.exec(5)
        self.run_folder = Path(tempfile.mkdtemp(prefix="recorder-", dir=place))
        self._socket: Line = line or DriverSocket(self.run_folder, self._waker)
        self._spawn = spawn
        self._questions = WriterClient(self._socket, clock)
        self.sensors = {entry.name: Sensor(entry) for entry in config.sensors}
        self.writer = WriterProcess(clock, say, self._spawn_writer)
        self.session: str | None = None
        self.streams: dict[str, dict[str, Any]] = {}
        self.status = self._session_status = Status()  # latest; latest of the open session
        self.heard_ns = self._turned_ns = clock.monotonic_ns()
        self._paused_ns = 0
        self.faults: list[str] = []
        self._early: list[tuple[Sensor, dict[str, Any]]] = []  # reports before the writer's answer
        self.events = RecentEvents()
        self.progress = Progress(say, self.report, self.show)
        self.warnings: list[str] = []
        self.clock_state: dict[str, Any] | None = None
        self._ending = self._shut = False
        self._ended: Ending | None = None
        self._status_question: WriterRequest | None = None
        self._plan_question: WriterRequest | None = None
        self._close_question: WriterRequest | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """End drivers, then the writer, in bounded time."""
        self._ending = self._shut = True
        drivers = [sensor.child for sensor in self.sensors.values() if sensor.child is not None]
        for driver in drivers:
            driver.process.terminate()
        deadline_ns = self.clock.monotonic_ns() + round(_END_S * 1e9)
        for driver in drivers:
            driver.end(max(0.0, (deadline_ns - self.clock.monotonic_ns()) / 1e9))
        if self.writer.child is not None:
            self.writer.child.end(_END_S)
        self._take_events()  # the last output of the processes
        self._socket.close()
        shutil.rmtree(self.run_folder, ignore_errors=True)

    @property
    def settled(self) -> bool:
        """Whether every sensor is ready or known to be unavailable."""
        return all(sensor.settled for sensor in self.sensors.values())

    def wake(self) -> None:
        """Wake a waiting `turn`; safe from any thread and in a signal handler."""
        self._waker.wake()

    def stop_restarts(self) -> None:
        """Stop restarting drivers; the writer is still restarted, to close its session."""
        self._ending = True

    def launch(self) -> None:
        """Start writer and drivers."""
        self.writer.start()
        for sensor in self.sensors.values():
            self._start_driver(sensor)

    def begin(self, plan: SessionPlan) -> WriterRequest:
        """Ask the writer to begin a session; restart failed sensors.

        `session` is set when the request is answered.
        """
        for sensor in self.sensors.values():
            if sensor.given_up or sensor.changed:
                self.restart(sensor)
        return self._ask_with(Start(plan))

    def split(self, plan: SessionPlan) -> WriterRequest:
        """Ask the writer to continue in a new part; no sample is lost or repeated between parts."""
        return self._ask_with(Split(plan, live=[], session=self.session))

    def close(self, patience_s: float = COMMAND_S) -> WriterRequest:
        """Ask the writer to end the session once every driver has delivered its samples."""
        for sensor in self.sensors.values():
            if sensor.stalled and not sensor.ended:
                self._record_hung(sensor, "it returns no data")
        self._close_question = self.ask(Stop(live=[], grace_s=FINISH_S), patience_s)
        return self._close_question

    def ask(self, command: Command, patience_s: float = COMMAND_S) -> WriterRequest:
        """Send a command to the writer."""
        return self._questions.ask(command, patience_s)

    def record_event(self, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Put an event into the open session, if there is one, and show it."""
        self.show(kind, stream, cause, **more)
        self.put(kind, stream, cause, **more)

    def report(self, level: str, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Log an event, show it, and put it into the open session."""
        line = format_event_line(make_event(kind, 0, stream, cause, **more))
        self._say(line, level, **({"stream": stream} if stream else {}))
        self.record_event(kind, stream, cause, **more)

    def put(self, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Put an event into the open session, if there is one."""
        if self.session is not None:
            self.ask(PutEvent({"kind": kind, "stream": stream, "cause": cause, **more}))

    def show(self, kind: str, stream: str = "", cause: str = "", **more: Any) -> None:
        """Show a current event in the status only."""
        mono_ns, offset_ns = self.clock.monotonic_ns(), self.offset_ns
        t_ns = self.clock.realtime_ns() if offset_ns is None else mono_ns + offset_ns
        self.events.add(t_ns - more.pop("age_ns", 0), kind, stream, cause, **more)

    @property
    def start_ns(self) -> int | None:
        """Start of the open session, epoch ns; None without one."""
        status = self._session_status
        return status.start_ns or None if self.session == status.session else None

    @property
    def offset_ns(self) -> int | None:
        """Offset from CLOCK_MONOTONIC to epoch ns (as in `ts`) of the open session, or None."""
        start_ns, mono_ns = self.start_ns, self._session_status.start_mono_ns
        return None if start_ns is None or mono_ns is UNSET else start_ns - mono_ns

    def outages(self) -> dict[str, dict[str, Any]]:
        """Return the ongoing outages of the open session, by stream (`Outage.to_wire`).

        A sensor that has declared no stream counts as one stream with the sensor's name.
        """
        offset_ns, start_ns = self.offset_ns, self._session_status.start_mono_ns
        if offset_ns is None or start_ns is UNSET:
            return {}
        now_ns, found = self.clock.monotonic_ns(), {}
        for sensor in self.sensors.values():
            specs: dict[str, StreamSpec | None] = {**sensor.specs} or {sensor.name: None}
            for name, spec in specs.items():
                account = self.streams.get(name, {})
                outage = find_outage(sensor, spec, account, start_ns, now_ns)
                if outage is not None:
                    found[name] = outage.to_wire(offset_ns)
        return found

    def look(self) -> None:
        """Ask the writer for its status, unless the last answer is still due."""
        if self._status_question is None:
            self._status_question = self.ask(AskStatus(), patience_s=1e6)

    def take_ending(self) -> Ending | None:
        """Return once how the session ended without a request (full or failed disk); else None."""
        ended, self._ended = self._ended, None
        return ended

    @property
    def silent_s(self) -> float:
        """Age of the oldest unanswered status request to the writer, in seconds."""
        if self._status_question is None:
            return 0.0
        since_ns = max(self._status_question.asked_ns, self.heard_ns)
        return (self.clock.monotonic_ns() - since_ns) / 1e9

    @property
    def uncommitted_s(self) -> float:
        """Age of the oldest received sample that is not durable, in seconds."""
        return self.status.oldest_uncommitted_s or 0.0

    def restart(self, sensor: Sensor) -> None:
        """Restart a sensor's driver now, after its samples changed or it was given up."""
        sensor.forgive()
        sensor.changed = False
        if not sensor.alive:
            sensor.restart_at_ns = self.clock.monotonic_ns()

    def forget_session(self) -> None:
        """Abandon the open session, which recovery will close."""
        self.session = None

    def turn(self, seconds: float) -> None:
        """Wait for messages; then handle replies, reports and due restarts."""
        self._socket.wait(seconds)
        now_ns = self.clock.monotonic_ns()
        if now_ns - self._turned_ns > _PAUSE_NS + seconds * 1e9:  # SIGSTOP, a disk that hangs
            self._paused_ns = now_ns
        self._turned_ns = now_ns
        if self._questions.pump(self.writer.child, self._live):
            self.writer.reset_starts()
            self.heard_ns = self.clock.monotonic_ns()
        self._take_answers()  # before a new writer learns which session to resume
        self._take_events()
        self._start_due()

    def _take_events(self) -> None:
        while not self._events.empty():
            name, report = self._events.get()
            if report["event"] == "printed":
                level = INFO if name else WARNING  # the writer prints only errors
                who = name or "writer"
                line = report["line"].removeprefix(f"{who}: ")
                self._say(f"{who}: {line}", level, sensor=name or None)
            elif name == WRITER:
                if report["event"] == "exit" and not self._shut:
                    self.writer.handle_exit(report["code"])
            else:
                self._take_report(self.sensors[name], report)

    def _take_answers(self) -> None:
        commands = (self._plan_question, self._close_question)
        answered = [command.place for command in commands if command is not None and command.done]
        status = self._status_question
        if status is not None and status.done and any(status.place < n for n in answered):
            self._status_question = None  # it describes the session before these answers
        if (question := self._plan_question) is not None and question.done:
            self._plan_question = None
            if isinstance(question.answer, Status) and question.session:
                self._session_status = question.answer
                self._enter_session(question.session)
            else:
                self._take_early()
        if (question := self._close_question) is not None and question.done:
            self._close_question = None
            if question.answer is not None:
                self._leave_session()
        if (question := self._status_question) is not None and question.done:
            self._status_question = None
            if isinstance(question.answer, Status):
                self._on_status(question.answer)

    def _ask_with(self, command: Start | Split) -> WriterRequest:
        command.plan.sensors = {name: sensor.header for name, sensor in self.sensors.items()}
        self._plan_question = self.ask(command)
        return self._plan_question

    def _enter_session(self, session: str) -> None:
        """Enter a new session or part; record which sensors are missing from its start."""
        first = self.session is None
        self.session, self.streams = session, {}
        if first:
            self.faults = []
            self.progress.reset()
        for sensor in self.sensors.values():
            if first:
                sensor.ended, sensor.reported_ns = False, None
            if sensor.missing:
                self._record_missing(sensor)
            elif not sensor.armed:
                fault = sensor.fault or f"{sensor.name}: its driver is not ready"
                self.record_event("fault", sensor.name, "driver", detail=fault)
                self._add_fault(fault)
            else:
                stepped = [] if sensor.stepped is None else [sensor.stepped]
                for report in [*stepped, *sensor.frozen.values()]:
                    self._take_report(sensor, report)
        self._take_early()

    def _take_early(self) -> None:
        early, self._early = self._early, []
        for sensor, report in early:
            self._take_report(sensor, report)

    def _leave_session(self) -> None:
        """Leave the closed session; restart the sensors that ended in it for the next one."""
        self.session, self._early = None, []
        self.progress.reset()
        for sensor in self.sensors.values():
            sensor.ended, sensor.reported_ns = False, None
            if sensor.alive and sensor.given_up:
                sensor.forgive()
            idle = sensor.restart_at_ns is None and not sensor.given_up
            if not sensor.alive and idle and not self._ending:
                self.restart(sensor)

    def _live(self) -> list[str]:
        # The writer must not wait for a driver that has never joined.
        return [name for name, s in self.sensors.items() if s.alive and s.armed]

    def _start_due(self) -> None:
        now_ns = self.clock.monotonic_ns()
        for sensor in self.sensors.values():
            if sensor.restart_at_ns is not None and now_ns >= sensor.restart_at_ns:
                self._start_driver(sensor)
        self.writer.start_due(now_ns)
        if now_ns - self._paused_ns > _PAUSE_NS:  # otherwise unread messages may be waiting
            self._kill_hung(now_ns)

    def _kill_hung(self, now_ns: int) -> None:
        if self.silent_s > _HUNG_S and (writer := self.writer.running) is not None:
            self._say(f"writer silent for {_HUNG_S:g} s; killing it", ERROR)
            self.heard_ns = now_ns
            writer.process.kill()
        for sensor in self.sensors.values():
            why = sensor.hangs(now_ns) if self.session is not None else None
            if why is not None and sensor.child is not None:
                self._record_hung(sensor, why)
                self._say(f"{sensor.fault}; killing it", ERROR, sensor=sensor.name)
                sensor.reported_ns, sensor.hung_in = None, ""
                sensor.child.process.kill()

    def _record_hung(self, sensor: Sensor, why: str) -> None:
        sensor.fault = f"{sensor.name}: its driver hangs: {why}"
        self._add_fault(sensor.fault)
        self.record_event("fault", sensor.name, "hung", detail=sensor.fault)

    def _on_status(self, status: Status) -> None:
        self.status = status
        if (ended := status.ended) is not None and ended.closed == self.session:
            if self.session is not None:
                self._ended = ended
                self._leave_session()
            return
        current = status.session
        if current is None or self._plan_question is not None or self._close_question is not None:
            return
        if self.session is None:  # begun by a writer that died before its answer
            self._say(f"{current}: was started without a request; closing it", WARNING)
            self.close()
            return
        if current != self.session:  # a writer died after a split, before its answer
            self._enter_session(current)
        self._session_status = status
        self.streams = {} if status.streams is UNSET else status.streams
        for sensor in self.sensors.values():
            ends = [self.streams.get(name, {}).get("ended") for name in sensor.specs]
            sensor.ended = bool(ends) and all(ends)
        now_ns = self.clock.monotonic_ns()
        self.progress.update(now_ns, self.sensors.values(), self.streams, self.uncommitted_s)

    def _spawn_writer(self) -> Child:
        storage, wake = self.config.storage, self._waker.wake
        command = writer_command(self.run_folder, storage.buffer_mb, self.session)
        child = self._spawn(WRITER, command, self._events, wake, priority=storage.process)
        self._warn("writer", child)
        return child

    def _start_driver(self, sensor: Sensor) -> None:
        entry = sensor.entry
        sensor.begin_start(self.clock.monotonic_ns())
        try:
            words, stdin = run_command(self.run_folder, entry), entry.for_driver()
            how = {"stdin": json.dumps(stdin), "priority": entry.process}
            sensor.child = self._spawn(entry.name, words, self._events, self._waker.wake, **how)
        except OSError as error:
            self._on_exit(sensor, str(error.strerror))
            return
        self._warn(entry.name, sensor.child)

    def _warn(self, name: str, child: Child) -> None:
        text = f"{name}: not permitted: {', '.join(child.refused)}; it runs without these"
        if child.refused and text not in self.warnings:
            self.warnings.append(text)
            self._say(text, WARNING)

    def _take_report(self, sensor: Sensor, report: dict[str, Any]) -> None:
        """Handle a report; kill a driver that breaks the protocol, and let the others continue."""
        try:
            self._on_sensor(sensor, report)
        except (KeyError, TypeError, ValueError, AttributeError, ProtocolError) as error:
            sensor.fault = f"{sensor.name}: its driver breaks the protocol: {error!r:.200}"
            self._say(sensor.fault, ERROR, sensor=sensor.name)
            if sensor.child is not None and sensor.child.alive:
                sensor.child.process.kill()

    def _on_sensor(self, sensor: Sensor, report: dict[str, Any]) -> None:
        match report["event"]:
            case "armed" | "streams" | "stats" | "stall":
                sensor.take(report, self.clock.monotonic_ns())
                if report["event"] == "stats" and self.session is None:
                    self.progress.update_idle(sensor)
            case "device":
                self._on_device(sensor, report["state"], report.get("message") or "")
            case "fault" if self._is_early(sensor) and self._plan_question is not None:
                self._early.append((sensor, report))
            case "fault":
                self._on_fault(sensor, report)
            case "event" if self._is_early(sensor):
                self._early.append((sensor, report))
            case "event" if report["stream"] or report["detail"] not in self.faults:
                # Every sensor of a recording reports an event that has no stream.
                stepped = sensor.entry.live and report["cause"] == "step"
                sensor.stepped = report if stepped else None
                if report["cause"] == FROZEN:
                    sensor.frozen[report["stream"]] = report
                elif report["cause"] == MOVES:
                    sensor.frozen.pop(report["stream"], None)
                self._say(report["detail"])
                if report["cause"] in ("step", FROZEN):
                    self._add_fault(report["detail"])
                self.record_event(**{key: value for key, value in report.items() if key != "event"})
            case "exit" if not sensor.alive:  # otherwise the report is from the previous process
                self._on_exit(sensor, report["code"], report.get("last", ""))

    def _is_early(self, sensor: Sensor) -> bool:
        """Return whether a report may be of the session that the writer has not answered for."""
        return self.session is None and not sensor.entry.live

    def _on_device(self, sensor: Sensor, state: str, message: str) -> None:
        before, sensor.device = sensor.device, state
        if state in (ABSENT, LOST):
            sensor.fault = message or f"{sensor.name}: device {state}"
            if before != state:
                self._say(sensor.fault, WARNING, sensor=sensor.name)
                self._record_missing(sensor)
        else:
            sensor.fault = None
            if before != state:
                self._say(message or f"{sensor.name}: device present", sensor=sensor.name)
                self.record_event("device", sensor.name, PRESENT, detail=message)

    def _record_missing(self, sensor: Sensor) -> None:
        self.record_event("device", sensor.name, sensor.device, detail=sensor.fault or "")
        if sensor.entry.required and sensor.fault is not None:
            self._add_fault(sensor.fault)

    def _on_fault(self, sensor: Sensor, report: dict[str, Any]) -> None:
        sensor.take(report, self.clock.monotonic_ns())
        if self.session is not None:
            self._add_fault(report["message"])
            self._say(report["message"], ERROR, sensor=sensor.name)
        if report.get("kind") == "changed" and sensor.entry.live:
            sensor.changed, sensor.changed_ns = True, self.clock.monotonic_ns()
        elif report["exit_code"] != DeviceError.exit_code:
            sensor.given_up = True

    def _add_fault(self, text: str) -> None:
        if text not in self.faults and len(self.faults) < _MOST_FAULTS:
            self.faults.append(text)

    def _on_exit(self, sensor: Sensor, code: int | str, last: str = "") -> None:
        sensor.armed = False
        if self._ending or sensor.ended or sensor.changed:
            return
        if code == ConfigError.exit_code:
            sensor.given_up = sensor.misconfigured = True
        if sensor.given_up:
            return
        why = f": {last.strip()}" if last and sensor.fault is None else ""
        ended = f"{sensor.name}: driver ended with code {code}{why}"
        wait_s = sensor.schedule_restart(self.clock.monotonic_ns())
        sensor.fault = sensor.fault or ended
        if wait_s is None:
            sensor.fault = f"{sensor.fault}; given up after {len(sensor.deaths)} starts"
            self._say(sensor.fault, ERROR, sensor=sensor.name)
            self._add_fault(sensor.fault)
            self.record_event("fault", sensor.name, "driver", detail=sensor.fault)
            return
        self._say(f"{ended}; starting another in {wait_s:g} s", ERROR, sensor=sensor.name)
        self.record_event(
            "fault", sensor.name, "driver", detail=sensor.get_reported_fault(code) or ended
        )
