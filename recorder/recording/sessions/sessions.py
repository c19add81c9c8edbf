"""Sessions of a daemon: execution of the state machine's decisions by writer and drivers.

The daemon calls `turn` repeatedly and receives the outcomes::

    sessions = Sessions(config, clock, supervisor, desired_state_file, say, reported)
    sessions.do(sessions.machine.start("drive"))
    sessions.turn(now_ns)          # reported.began("/data/drive"), or reported.not_begun(why)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from recorder.bus.messages import Ending, Refusal, Status
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError, StorageError
from recorder.config.loading import Config
from recorder.config.settings import SplitSettings
from recorder.recording.logs import ERROR, INFO, LogLine
from recorder.recording.sessions.desired_state import DesiredStateFile
from recorder.recording.sessions.session_plan import Planner
from recorder.recording.sessions.state_machine import (
    Begin,
    Closed,
    Effect,
    End,
    Leave,
    Machine,
    RefusedError,
    Save,
    Split,
    State,
)
from recorder.recording.supervisor.sensors import Sensor
from recorder.recording.supervisor.supervisor import Supervisor
from recorder.recording.supervisor.writer_client import WriterRequest, account
from recorder.session.incidents import END

SETTLE_S = 15.0
"""Time that a session waits for starting drivers, s."""
LOOK_S = 0.5
_CLOSE_S = 40.0
_UNCLEAR_S = 15.0
_WRITER_RETRY_S = 30.0


class SessionListener(Protocol):
    """Receiver of the outcomes."""

    def check_place(self) -> None:
        """Raise StorageError if a session cannot begin."""

    def check_room(self) -> None:
        """Raise StorageError if the disk is too full for a recording to begin."""

    def began(self, session: str) -> None:
        """Handle the start of a session; `session` is its folder."""

    def not_begun(self, error: RecorderError) -> None:
        """Handle the failed start of a session."""

    def over(self) -> None:
        """Handle the end of recording; `Sessions.last` describes it."""

    def closed(self) -> None:
        """Handle the closing of a session or part, whose archives are due."""

    def sealed(self, session: str, reason: str) -> None:
        """Handle the disk failure of a session, which is left for recovery."""

    def left(self) -> None:
        """Handle the end of all work: the daemon may end."""


class Sessions:
    """Sessions of a daemon; see the module's example.

    Args:
        config: the daemon's config.
        clock: injectable.
        supervisor: writer and drivers.
        desired_state_file: file of the desired state.
        say: logs one line for users.
        reported: receiver of the outcomes.

    Attributes:
        machine: the state machine.
        planner: planner of names and parts.
        last: how the last session ended (docs/daemon.md); None before the first.
        part_started_ns: CLOCK_MONOTONIC of the open part's start.
        state_since_ns: CLOCK_MONOTONIC of the start of the machine's state.
        desired_state_problem: why the desired state is not on disk; None if it is.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        supervisor: Supervisor,
        desired_state_file: DesiredStateFile,
        say: LogLine,
        reported: SessionListener,
    ) -> None:
        self.machine = Machine()
        self.planner = Planner(config, clock.realtime_ns)
        self.last: dict[str, Any] | None = None
        self.part_started_ns = 0
        self.desired_state_problem: str | None = None
        self.state_since_ns = clock.monotonic_ns()
        self._split_settings = config.session.split
        if config.ring is not None:
            self._split_settings = SplitSettings(minutes=config.ring.part_seconds / 60)
        self._clock = clock
        self._supervisor = supervisor
        self._desired_state_file = desired_state_file
        self._say = say
        self._reported = reported
        self._begin: Begin | None = None
        self._begin_by_ns = 0
        self._begun_name = ""
        self._opening: WriterRequest | None = None
        self._splitting: WriterRequest | None = None
        self._unclear_until_ns: int | None = None
        self._closing: WriterRequest | None = None
        self._look_at_ns = 0
        self._writer_at_ns: int | None = None
        self._state = State.IDLE

    def do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Save():
                    self._save(effect)
                case Begin():
                    self._begin = effect
                    self._begin_by_ns = self._clock.monotonic_ns() + round(SETTLE_S * 1e9)
                case Split():
                    self._split(effect)
                case End():
                    why = "shutdown" if self.machine.leaving else "stop"
                    self._supervisor.record_event(END, cause=why)
                    self._closing = self._supervisor.close(_CLOSE_S)
                case Closed():
                    self._reported.closed()
                case Leave():
                    self._reported.left()
        if self.machine.state is not self._state:
            self._state = self.machine.state
            self.state_since_ns = self._clock.monotonic_ns()

    def _save(self, effect: Save) -> None:
        try:
            self._desired_state_file.write(effect.desired)
        except StorageError as error:  # recording matters more than resuming after a crash
            if self.desired_state_problem is None:
                self._say(str(error), ERROR)
            self.desired_state_problem = str(error)
        else:
            self.desired_state_problem = None

    def save_again(self) -> None:
        """Retry to save a desired state that could not be saved."""
        if self.desired_state_problem is not None:
            self._save(Save(self.machine.desired))

    def _split(self, effect: Split) -> None:
        try:
            self._reported.check_place()
            _, plan = self.planner.plan(effect.desired)
        except RecorderError as error:
            self._split_failed(str(error))
            return
        self._say(f"{effect.why}: a new part, {plan.name}")
        self._splitting = self._supervisor.split(plan)

    def _split_failed(self, why: str) -> None:
        self._say(f"no new part: {why}", ERROR)
        self._supervisor.record_event("fault", cause="split", detail=why)
        self.do(self.machine.split_failed(self._clock.monotonic_ns()))

    def turn(self, now_ns: int) -> None:
        """Check the pending requests, and do all due work."""
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + round(LOOK_S * 1e9)
            self._supervisor.look()
        self._follow_writer(now_ns)
        self._follow_begin(now_ns)
        self._follow_split(now_ns)
        self._follow_close()
        self._want_split(now_ns)
        self._restart_changed()
        self.do(self.machine.tick(now_ns))

    def _follow_writer(self, now_ns: int) -> None:
        """Treat a writer that does not start as a fault; retry its start regularly."""
        failed = self._supervisor.writer.failed
        if failed is None:
            self._writer_at_ns = None
            return
        if self._writer_at_ns is None:
            self._writer_at_ns = now_ns + round(_WRITER_RETRY_S * 1e9)
            self._opening = self._splitting = self._closing = None
            if self.machine.session is not None:
                self._supervisor.forget_session()
                self._report_end(Ending(None), whole=False, why=failed)
            elif self.machine.state is State.STARTING:
                self._report_not_begun(StorageError(failed))
        elif now_ns >= self._writer_at_ns:
            self._writer_at_ns = None
            self._supervisor.writer.retry()

    def _follow_begin(self, now_ns: int) -> None:
        begin = self._begin
        if begin is not None:
            unwanted = not self.machine.desired.wanted or self.machine.leaving
            if unwanted:
                self._begin = None
                self._report_not_begun(RefusedError("stopped before it began"))
            elif self._supervisor.settled or now_ns >= self._begin_by_ns:
                self._begin = None
                self._send_begin(begin)
        question = self._opening
        if question is None or not question.done:
            return
        self._opening = None
        session = question.session
        if session is None:
            self._report_not_begun(question.problem or StorageError("the writer gave no answer"))
            return
        self._report_begin(session, now_ns)
        self.do(self.machine.began(now_ns, session, self._begun_name))
        self._reported.began(session)

    def _report_begin(self, session: str, now_ns: int) -> None:
        self.part_started_ns = now_ns
        self._say(f"recording {session}")
        self._supervisor.show("session", cause="began", text=Path(session).name)

    def _send_begin(self, begin: Begin) -> None:
        try:
            self._reported.check_place()
            self._reported.check_room()
            self._begun_name, plan = self.planner.plan(begin.desired)
        except RecorderError as error:
            self._report_not_begun(error)
            return
        if self._supervisor.writer.failed is not None:
            self._supervisor.writer.retry()
        self._opening = self._supervisor.begin(plan)

    def _report_not_begun(self, error: RecorderError) -> None:
        self._say(f"not recording: {error}", ERROR)
        self.do(self.machine.not_begun(self._clock.monotonic_ns(), str(error)))
        self._reported.not_begun(error)

    def _follow_split(self, now_ns: int) -> None:
        if not self.machine.splitting:
            return
        session = self._supervisor.session
        question = self._splitting
        if question is not None and question.done:
            self._splitting = None
            answer = question.answer
            if answer is None:  # the writer died before it answered: the next writer knows
                self._unclear_until_ns = now_ns + round(_UNCLEAR_S * 1e9)
            elif isinstance(answer, Refusal):
                self._split_failed(answer.error)
                return
            elif isinstance(answer, Status) and answer.session is None:
                self._split_over(answer.ended or Ending(None), now_ns)
                return
        if self._splitting is None and session is not None and session != self.machine.session:
            self._unclear_until_ns = None
            self._report_begin(session, now_ns)
            self.do(self.machine.split_done(now_ns, session))
        elif self._unclear_until_ns is not None and now_ns > self._unclear_until_ns:
            self._unclear_until_ns = None
            self._split_failed("the writer ended before it had begun")

    def _split_over(self, ended: Ending, now_ns: int) -> None:
        """Handle a new part that ended at once, most likely because of the disk."""
        self._supervisor.forget_session()
        if ended.closed:
            self.do(self.machine.split_done(now_ns, ended.closed))
        self._report_end(ended, whole=bool(ended.closed), why="the new part ended at once")

    def _follow_close(self) -> None:
        ended = self._supervisor.take_ending()
        if ended is not None and self.machine.session is not None:
            self._report_end(ended)
        question = self._closing
        if question is None or not question.done:
            return
        self._closing = None
        if self.machine.session is None:
            return
        if question.answer is None:
            self._supervisor.forget_session()
            self._report_end(Ending(None), whole=False, why=str(question.error))
        else:
            self._report_end(question.ending)

    def _report_end(self, ending: Ending, *, whole: bool = True, why: str | None = None) -> None:
        """Report the end of the session to the machine and the daemon."""
        whole = whole and not ending.sealed
        why = why or ending.sealed or ending.full
        streams = ending.streams or self._supervisor.streams
        self.last = {
            "session": self.machine.session,
            "why": why,
            "whole": whole,
            "streams": {name: account(stream) for name, stream in streams.items()},
            "faults": list(self._supervisor.faults),
        }
        if ending.sealed and self.machine.session is not None:
            self._reported.sealed(self.machine.session, ending.sealed)
        level = INFO if why is None else ERROR
        because = f": {why}" if why else ""
        self._say(f"closed {self.machine.session}{because}", level)
        name = Path(self.machine.session or "").name
        self._supervisor.show("session", cause="closed", text=name + because)
        self._splitting = self._unclear_until_ns = None
        self.do(self.machine.ended(self._clock.monotonic_ns(), whole=whole, why=why))
        self._reported.over()

    def split(self, why: str) -> None:
        """Begin a new part unless a split is in progress."""
        self.do(self.machine.split(self._clock.monotonic_ns(), why))

    def _want_split(self, now_ns: int) -> None:
        if self.machine.state is not State.RECORDING:
            return
        split = self._split_settings
        minutes = (now_ns - self.part_started_ns) / 60e9
        size = sum(stream.get("bytes", 0) for stream in self._supervisor.streams.values())
        changed = [s.name for s in self._supervisor.sensors.values() if self._needs_part(s)]
        why = None
        if changed:
            why = f"{', '.join(changed)} changed"
        elif split.minutes is not None and minutes >= split.minutes:
            why = f"{split.minutes:g} min" if split.minutes >= 1 else f"{60 * split.minutes:g} s"
        elif split.gb is not None and size >= split.gb * 1e9:
            why = f"{split.gb:g} GB"
        if why is not None:
            self.do(self.machine.split(now_ns, why))

    def _needs_part(self, sensor: Sensor) -> bool:
        """Return whether a sensor changed in the open part: only the next part can store it."""
        open_since_ns = self.part_started_ns if self.machine.session is not None else None
        return sensor.changed and open_since_ns is not None and sensor.changed_ns >= open_since_ns

    def _restart_changed(self) -> None:
        if self.machine.splitting:
            return
        for sensor in self._supervisor.sensors.values():
            if sensor.changed and not sensor.alive and not self._needs_part(sensor):
                self._supervisor.restart(sensor)
