"""Daemon that keeps the drivers armed from boot to shutdown, and records on request.

It answers control requests, manages the folder of sessions, and runs the work after a recording.
`recorder.recording.sessions.sessions` begins and ends the sessions::

    daemon = Daemon(config, SystemClock(), Supervisor(config, SystemClock(), print), print)
    daemon.open()
    try:
        daemon.run()                 # until `stop`, as SIGTERM calls it
    finally:
        daemon.close()

One thread does all this and never waits for longer than a turn.  Requests arrive through a queue
from the threads of the control sockets.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, assert_never

from msgspec import structs, to_builtins

from recorder.archives.base import available
from recorder.bus.control.requests import Keep, Mark, Start, Status, Stop
from recorder.bus.control.server import Call, refusal
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError, StorageError, UsageError
from recorder.common.files import Closeable
from recorder.common.process_setup import start_thread
from recorder.config.loading import Config
from recorder.recording.daemon.metrics import MetricsServer, render
from recorder.recording.daemon.status import Snapshot, describe, render_line
from recorder.recording.host.clocks import ClockRecord, is_synchronized
from recorder.recording.logs import ERROR, WARNING, Log, LogLine
from recorder.recording.postprocessing.finalizing import Finalizing
from recorder.recording.postprocessing.retention import keep, sweep
from recorder.recording.preflight import StartChecks, check_root, mount_problem
from recorder.recording.ring.ring import Live, RingManager, new_event
from recorder.recording.ring.storage import Storage
from recorder.recording.root_lock import RootLock
from recorder.recording.sessions.desired_state import DesiredStateFile, state_folder
from recorder.recording.sessions.marks import Marks, moment_ns
from recorder.recording.sessions.sessions import SETTLE_S, Sessions
from recorder.recording.sessions.state_machine import RefusedError, State
from recorder.recording.supervisor.sidecar_process import SidecarProcess
from recorder.recording.supervisor.supervisor import Supervisor
from recorder.session.event_clips import KeptEvent
from recorder.session.outputs import is_safe_at


class SystemdNotify:
    """Connection to the service manager that started this process, if there is one.

    >>> notify = SystemdNotify(os.environ)
    >>> notify.ready()
    >>> notify.watchdog_s         # None unless the unit has WatchdogSec=
    30.0

    Args:
        environment: has ``NOTIFY_SOCKET`` and, with a watchdog for this process,
            ``WATCHDOG_USEC`` and ``WATCHDOG_PID``.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # '@' is the zero byte of an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s: float | None = None
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            with contextlib.suppress(KeyError, ValueError):
                self.watchdog_s = int(environment["WATCHDOG_USEC"]) / 1e6

    def ready(self) -> None:
        """Report that every driver is armed or known to be missing."""
        self._send("READY=1")

    def watchdog(self) -> None:
        """Feed the watchdog; call this about once a second while the daemon is healthy."""
        if self.watchdog_s is not None:
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Report the status in one line for users; call this when it changes."""
        self._send("STATUS=" + text.replace("\n", " "))

    def stopping(self) -> None:
        """Report that the daemon is ending."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        """Send a message; ignore errors, since recording must continue."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)
            s.sendto(text.encode(), self._address)


TURN_S = 0.1
UNCOMMITTED_S = 30.0
"""Age of received, uncommitted data at which the watchdog is no longer fed, s."""
FEED_S = 1.0
_ROOT_RETRY_S = 5.0
_RETENTION_S = 300.0
LEAVE_S = 60.0
"""Limit of the time from `Daemon.stop` to the end of `Daemon.run`, even if the writer hangs, s."""

OnTick = Callable[["Daemon", int], None]


class Daemon:
    """Daemon of one config; see the module's example.

    Args:
        config: the sensors to record, and the settings.
        clock: injectable.
        supervisor: a supervisor of the same config, not yet launched.
        say: logs one line for users; callable from any thread.
        notify: connection to the service manager.
        finalizing: work after recording; created from the config if it is None.
        desired_state_file: file of the desired state; in the state folder if it is None.
        ring_manager: manager of the ring; created from the config if it is None.

    Attributes:
        sessions: state and control of the recording.
        supervisor: writer and drivers.
        finalizing: work after recording.
        ring_manager: manager of the ring and of the data around events.
        on_tick: callbacks that receive the daemon and CLOCK_MONOTONIC ns after every turn (at least
            ten a second); a slow callback delays the whole daemon.
        ready: whether every driver is armed or known to be missing.
        root_problem: why the folder of sessions cannot be used; None if it can.
        start_checks: checks that a recording can begin.
        started_ns: CLOCK_MONOTONIC at the daemon's start.
        live: the live process, for the status; None without one.
        triggers: the process of the triggers, for the status; None without one.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        supervisor: Supervisor,
        say: LogLine,
        *,
        notify: SystemdNotify | None = None,
        finalizing: Finalizing | None = None,
        desired_state_file: DesiredStateFile | None = None,
        ring_manager: RingManager | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.supervisor = supervisor
        self.notify = notify or SystemdNotify({})
        self.on_tick: list[OnTick] = []
        self.ready = False
        self.root_problem: str | None = None
        self.started_ns = clock.monotonic_ns()
        self.live: SidecarProcess | None = None
        self.triggers: SidecarProcess | None = None
        root = config.session.root
        redact = config.path if config.redact else None
        self.finalizing = finalizing or Finalizing(
            root, clock, say, frozenset(available()), redact=redact
        )
        self._say = say
        self._desired_state_file = desired_state_file or DesiredStateFile(
            state_folder(root), problem=self._find_state_problem
        )
        self.sessions = Sessions(config, clock, supervisor, self._desired_state_file, say, self)
        self.sessions.planner.to_disk = lambda: self.ring_manager.to_disk
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._starters: list[Call] = []
        self._stoppers: list[Call] = []
        self._marks = Marks(supervisor, self._answer_mark, self._refuse)
        ring, floor_bytes = config.ring, config.storage.min_free_bytes
        ram = None if ring is None else ring.ram_folder
        self._root = RootLock(root) if ram is None else RootLock(root, ram)
        storage = Storage(root, ram)
        self.start_checks = StartChecks(config, clock, supervisor)
        self.ring_manager = ring_manager or RingManager(
            storage, clock, say, ring=ring, floor_bytes=floor_bytes,
            claimed=self.finalizing.look_again,
        )  # fmt: skip
        self._stop_asked = self._left = self._booted = False
        self._root_at_ns = self._feed_at_ns = self._sweep_at_ns = 0
        self._undated = False
        self._sweeper: threading.Thread | None = None
        self._leave_by_ns: int | None = None
        self._status_line = ""
        self._said = ""

    @property
    def state(self) -> str:
        """The state in one word; readable from any thread."""
        return str(self.sessions.machine.state)

    @property
    def sound(self) -> bool:
        """Whether all received data becomes durable in time and the writer answers."""
        late = max(self.supervisor.uncommitted_s, self.supervisor.silent_s)
        return late <= UNCOMMITTED_S

    def status(self) -> dict[str, Any]:
        """Return the daemon's status as JSON values (docs/daemon.md)."""
        machine, sessions = self.sessions.machine, self.sessions
        may_start = machine.state in (State.IDLE, State.FAULT)
        snapshot = Snapshot(
            now_ns=self.clock.monotonic_ns(),
            started_ns=self.started_ns,
            state=str(machine.state),
            state_since_ns=sessions.state_since_ns,
            ready=self.ready,
            desired=machine.desired,
            session=machine.session,
            session_since_ns=sessions.part_started_ns,
            splitting=machine.splitting,
            start_refused=self.start_checks.find_refusal() if may_start else None,
            root_problem=self.root_problem,
            reason=machine.reason,
            wish_problem=sessions.desired_state_problem,
            last=sessions.last,
            finalizing=self.finalizing.status(),
            keeping=self.ring_manager.status(),
            live=None if self.live is None else self.live.status(),
            triggers=None if self.triggers is None else self.triggers.status(),
        )
        return describe(snapshot, self.supervisor, self.config.session.root)

    def take(self, call: Call) -> None:
        """Queue a request; callable from any thread."""
        self._calls.put(call)
        self.supervisor.wake()

    def stop(self) -> None:
        """Close the session and make `run` return; safe in a signal handler."""
        self._stop_asked = True
        self.supervisor.wake()

    def open(self) -> None:
        """Lock the root and start writer and drivers.

        Raises:
            UsageError: another daemon records into this root.
        """
        self._open_root()
        self.supervisor.launch()

    def run(self) -> None:
        """Serve until `stop`; then refuse the waiting requests."""
        while not self._left:
            self.turn(TURN_S)
        self._refuse_waiting()

    def close(self) -> None:
        """End all processes."""
        self.notify.stopping()
        self._refuse_waiting()
        self.finalizing.stop()
        self.ring_manager.close()
        self.supervisor.shutdown()
        if self._sweeper is not None:
            self._sweeper.join(5.0)
        self._root.release()

    def _refuse_waiting(self) -> None:
        while not self._calls.empty():
            self._starters.append(self._calls.get())
        for call in [*self._starters, *self._stoppers, *self._marks.give_up()]:
            call.answer(refusal(RefusedError("the daemon is ending"), self.state))
        self._starters.clear()
        self._stoppers.clear()

    def turn(self, seconds: float) -> None:
        """Run one turn of all work; wait up to `seconds` for something to do."""
        self.supervisor.turn(seconds)
        now_ns = self.clock.monotonic_ns()
        machine = self.sessions.machine
        if self._stop_asked and not machine.leaving:
            self.notify.stopping()
            self.supervisor.stop_restarts()
            self._leave_by_ns = now_ns + round(LEAVE_S * 1e9)
            self.sessions.do(machine.leave())
        if self._leave_by_ns is not None and now_ns > self._leave_by_ns:
            self._say("the session is not closed in time; ending anyway", ERROR)
            self._left = True
        if now_ns >= self._root_at_ns and not machine.leaving:
            self._watch_root(now_ns)
        self._settle(now_ns)
        while not self._calls.empty():
            self._serve(self._calls.get())
        self.sessions.turn(now_ns)
        self._marks.follow()
        self.ring_manager.turn(self._open_part(), self._root.held and self.root_problem is None)
        if self.ring_manager.split_due:
            self.sessions.split("the event is over")
        if self._root.held and not machine.leaving:
            try:
                self._chores(now_ns)
            except OSError as error:  # the disk fails: recording continues
                self._trouble(f"looking after recorded sessions: {error}")
        self._feed(now_ns)
        for callback in self.on_tick:
            callback(self, now_ns)

    # What `Sessions` reports

    def check_place(self) -> None:
        """Check that the root can take a session.

        Raises:
            StorageError: the root is missing, cannot be written to, or is too full.
        """
        problem = self.start_checks.find_root_problem()
        if problem is None and (not self._root.held or self._root.lost):
            self._open_root()
            problem = self.root_problem
        if problem is not None:
            raise StorageError(problem)

    def check_room(self) -> None:
        """Raise StorageError if the disk is too full for a recording to begin."""
        if (problem := self.start_checks.find_room_problem()) is not None:
            raise StorageError(problem)

    def began(self, session: str) -> None:
        for call in self._starters:
            self._answer(call, session=session)
        self._starters.clear()

    def not_begun(self, error: RecorderError) -> None:
        for call in self._starters:
            self._refuse(call, error)
        self._starters.clear()
        self.over()

    def over(self) -> None:
        if self.sessions.machine.state not in (State.IDLE, State.FAULT):
            return
        last = self.sessions.last
        for call in self._stoppers:
            self._answer(call, session=None if last is None else last["session"], closed=last)
        self._stoppers.clear()

    def closed(self) -> None:
        self.finalizing.hurry()
        self._sweep_at_ns = 0

    def sealed(self, session: str, reason: str) -> None:
        self.finalizing.note_seal(Path(session), reason)

    def left(self) -> None:
        self._left = True

    # What is found at the start

    def _watch_root(self, now_ns: int) -> None:
        """Check that the root exists and is locked: a disk may be unmounted and mounted again."""
        if not self._root.held or self._root.lost:
            try:
                self._open_root()
            except UsageError as error:  # another daemon has locked it
                self.root_problem = str(error)
                self._trouble(f"nothing can be recorded yet: {error}")
            return
        self._root_at_ns = now_ns + round(_ROOT_RETRY_S * 1e9)
        self.sessions.save_again()
        problem = self._find_mount_problem()
        if problem is not None and problem != self.root_problem:
            self._say(problem, ERROR)
        self.root_problem = problem

    def _find_state_problem(self) -> str | None:
        """Return why the disk of a state folder below the root is wrong; None if it is right."""
        root = self.config.session.root
        return self._find_mount_problem() if root in state_folder(root).parents else None

    def _find_mount_problem(self) -> str | None:
        root = self.config.session.root
        try:
            return mount_problem(root, self.config.storage)
        except OSError as error:
            return f"{root} cannot be read: {error.strerror}"

    def _open_root(self) -> None:
        """Lock the root once it is mounted; never write below a mount point without its disk."""
        now_ns = self.clock.monotonic_ns()
        self._root_at_ns = now_ns + round(_ROOT_RETRY_S * 1e9)
        self._root.release()
        storage = structs.replace(self.config.storage, min_free_gb=0.0)  # a full one can be cleared
        problem = check_root(self.config.session.root, storage).problem
        if problem is None:
            try:
                self._root.take()
            except StorageError as error:
                problem = str(error)
        if problem is not None and problem != self.root_problem:
            self._say(f"nothing can be recorded yet: {problem}", ERROR)
        self.root_problem = problem

    def _settle(self, now_ns: int) -> None:
        """Report readiness once the drivers have settled; read the desired state once."""
        late = now_ns - self.started_ns > SETTLE_S * 1e9
        if not self.ready and (self.supervisor.settled or late):
            self.ready = True
            self.notify.ready()
        if self._booted or not self._root.held:
            return
        self._booted = True
        machine = self.sessions.machine
        desired, same_boot = self._desired_state_file.read()
        if machine.leaving or machine.desired.wanted:  # a request came first
            return
        autostart = self.config.session.autostart or self.config.ring is not None
        self.sessions.do(machine.boot(desired, same_boot=same_boot, autostart=autostart))
        if desired.session is not None and machine.state is State.STARTING and desired.wanted:
            self._say(f"{desired.session}: was being recorded; continuing in a new part", WARNING)

    # Requests

    def _serve(self, call: Call) -> None:
        try:
            match call.request:
                case Status():
                    self._answer(call)
                case Start() as request:
                    self._start(call, request)
                case Stop():
                    self._stop(call)
                case Mark() as request:
                    self._mark(call, request)
                case Keep() as request:
                    self._keep(call, request)
                case _ as never:
                    assert_never(never)
        except RecorderError as error:
            self._refuse(call, error)

    def _start(self, call: Call, request: Start) -> None:
        machine = self.sessions.machine
        if machine.state in (State.IDLE, State.FAULT) and not machine.leaving:
            self.check_place()
            self.check_room()
            if request.name is not None:
                self.sessions.planner.check(request.name)
        effects = machine.start(request.name, request.meta)
        self._starters.append(call)
        self.sessions.do(effects)

    def _stop(self, call: Call) -> None:
        effects = self.sessions.machine.stop()
        self._stoppers.append(call)
        if self.sessions.machine.state is State.IDLE:  # it was in fault: there is no session
            self._stoppers.remove(call)
            self.sessions.do(effects)
            self._answer(call, session=None, closed=None)
        else:
            self.sessions.do(effects)

    def _mark(self, call: Call, request: Mark) -> None:
        machine, now_ns = self.sessions.machine, self.ring_manager.now_ns()
        call.request = request = replace(request, t_ns=moment_ns(request, now_ns), age_s=None)
        if request.keep is None or machine.session is not None:
            self._marks.put(call, request, machine.session, now_ns)
            return
        event = new_event(request)
        if machine.state is State.IDLE and not self.ring_manager.holds(event):
            raise RefusedError("nothing is or was recorded within the event's seconds")
        self._keep_event(call, event)

    def _answer_mark(self, call: Call, session: str) -> None:
        """Answer a mark that is in the session, and keep its event."""
        if isinstance(call.request, Mark) and call.request.keep is not None:
            self._keep_event(call, new_event(call.request), session=session)
        else:
            self._answer(call, session=session)

    def _keep_event(self, call: Call, event: KeptEvent, **more: Any) -> None:
        def kept(result: KeptEvent | RecorderError) -> None:
            if isinstance(result, RecorderError):
                self._refuse(call, result)
            else:
                self._answer(call, **more, event=to_builtins(result))

        self.ring_manager.keep(event, kept)

    def _open_part(self) -> Live | None:
        session, supervisor = self.sessions.machine.session, self.supervisor
        start_ns, offset_ns = supervisor.start_ns, supervisor.offset_ns
        if session is None or start_ns is None or offset_ns is None:
            return None
        rates = map(supervisor.progress.volumes.rate, supervisor.streams)
        return Live(Path(session), start_ns, offset_ns, sum(rate or 0.0 for rate in rates))

    def _keep(self, call: Call, request: Keep) -> None:
        path, release = self.sessions.machine.session, bool(request.release)
        if request.session is not None:
            path = str(self.config.session.root / request.session)
        if path is None:
            raise RefusedError("nothing is being recorded; name the session to keep")
        keep(Path(path), release=release)
        self._answer(call, session=path, kept=not release)

    def _answer(self, call: Call, **more: Any) -> None:
        call.answer({"ok": True, "state": self.state, **more, "status": self.status()})

    def _refuse(self, call: Call, error: RecorderError) -> None:
        call.answer(refusal(error, self.state) | {"status": self.status()})

    # Background work

    def _chores(self, now_ns: int) -> None:
        machine = self.sessions.machine
        if machine.state is State.STARTING or machine.splitting:
            return  # the session that is being created has no name yet and must not be recovered
        self.finalizing.turn(machine.session)
        if now_ns < self._sweep_at_ns or (self._sweeper and self._sweeper.is_alive()):
            return
        self._sweep_at_ns = now_ns + round(_RETENTION_S * 1e9)
        retention = self.config.retention
        if retention.gb is None and retention.days is None:
            return
        # A wrong clock would delete sessions that are not old.
        dated = retention.days is not None and is_synchronized()
        if retention.days is not None and not dated and not self._undated:
            text = "retention: the clock is not synchronized; no session is deleted for its age"
            self._say(text, WARNING)
        self._undated = not dated
        today_ns = self.clock.realtime_ns() if dated else None
        work = partial(sweep, self.config.session.root, retention, today_ns, machine.session)
        finish = partial(work, self._is_needed, self._say, ring=self.config.ring is not None)
        sweeper = threading.Thread(target=finish, name="sweep", daemon=True)
        start_thread(sweeper)
        self._sweeper = sweeper

    def _is_needed(self, session: Path) -> bool:
        """Return whether a session has work left or is not yet safely stored: not deletable."""
        url = self.config.upload.url
        return self.finalizing.is_unfinished(session) or (
            url is not None and not is_safe_at(session, url)
        )

    def _trouble(self, text: str) -> None:
        """Log a problem unless it is the same as the previous one."""
        if text != self._said:
            self._said = text
            self._say(text, ERROR)

    def _feed(self, now_ns: int) -> None:
        """Report to the service manager; a silent sensor never withholds the watchdog's signal."""
        if now_ns < self._feed_at_ns:
            return
        self._feed_at_ns = now_ns + round(FEED_S * 1e9)
        if self.sound:
            self.notify.watchdog()
        if (text := render_line(self.status())) != self._status_line:
            self._status_line = text
            self.notify.status(text)


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
