"""A daemon without processes: a writer and drivers that do what a test says, on a made-up clock."""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recorder.bus.control.requests import OPS
from recorder.bus.control.server import Call
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.config.loading import Config
from recorder.recording.daemon.daemon import Daemon, SystemdNotify
from recorder.recording.postprocessing.finalizing import Chore, Finalizing
from recorder.recording.sessions.desired_state import DesiredStateFile
from recorder.recording.supervisor.children import Child
from recorder.recording.supervisor.supervisor import WRITER, Supervisor
from tests.config.configs import load
from tests.manual_clock import ManualClock

CONFIG = """
version: 1
session:
  root: sessions
  name: drive
  metadata: {vehicle: rig-1}
storage: {min_free_gb: 0}
sensors:
  cam: {driver: camera, source: "v4l2:/dev/video0", min_rate: 25}
  lidar: {driver: ouster, source: "sim:", required: false}
"""

RATES = {"cam": 30.0, "lidar": 10.0}


class Said(list[str]):
    """What was said; `levels` has the level of each line."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: dict[str, str] = {}

    def say(self, text: str, /, level: str = "info", **_: Any) -> None:
        self.append(text)
        self.levels[text] = level


class FakeChild:
    """A process that lives until it is told not to."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        events: Any,
        wake: Callable[[], None],
        **_: Any,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.refused: list[str] = []
        self.alive = True
        self._events = events
        self.process = SimpleNamespace(pid=4711, terminate=self.die, kill=self.die)

    def report(self, event: str, **values: Any) -> None:
        self._events.put((self.name, {"event": event, **values}))

    def arm(self, rate_hz: float | None = None) -> None:
        rate_hz = rate_hz or RATES[self.name]
        spec = StreamSpec(self.name, (ChannelSpec("x", "raw", "u1"),), rate_hz=rate_hz)
        self.report("armed", streams=[spec.to_wire()])

    def die(self, code: int = -9) -> None:
        if self.alive:
            self.alive = False
            self.report("exit", code=code)

    def end(self, grace_s: float) -> None:
        self.alive = False


class FakeWriter:
    """The line to a writer that makes folders and counts; time passes while it is waited for.

    Attributes:
        refuse: by op, the error that it answers with.
        mute: it answers nothing, as one that is stopped.
        late: its answers are kept back, and arrive together later.
        waits: it ends a session after it has told its status, as one that waits for its drivers.
        commands: all that it was asked.
        events: events told, by session name.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.refuse: dict[str, str] = {}
        self.mute = self.late = self.waits = False
        self._stop: Message | None = None
        self.session: Path | None = None
        self.ended: dict[str, Any] | None = None
        self.uncommitted_s = 0.0
        self.commands: list[dict[str, Any]] = []
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.rates = dict(RATES)
        self.frozen: dict[str, dict[str, Any]] = {}
        self.start_ns = self.start_mono_ns = 0
        self._replies: deque[Message] = deque()

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def receive(self) -> Message | None:
        return self._replies.popleft() if self._replies and not self.late else None

    def close(self) -> None:
        pass

    def send(self, message: Message) -> bool:
        command = message.values
        self.commands.append(command)
        if self.mute:
            return True
        if (error := self.refuse.get(command["op"])) is not None:
            self._reply(message, {"error": error, "exit_code": 1})
            return True
        match command["op"]:
            case "start":
                self._open(command["plan"])
                self._reply(message, self.status())
            case "split":
                before = self.session
                self._close("clean")
                self._open(command["plan"])
                self._reply(message, self.status() | {"previous": {"closed": str(before)}})
            case "stop" if self.waits:
                self._stop, self.waits = message, False
            case "stop":
                ended = {"closed": str(self.session), "streams": self.streams()}
                self._close("clean")
                self._reply(message, ended)
            case "event":
                assert self.session is not None
                self.events.setdefault(self.session.name, []).append(command["event"])
                self._reply(message, self.status())
            case "status":
                self._reply(message, self.status())
                if (stop := self._stop) is not None:
                    self._stop = None
                    self.commands.remove(stop.values)
                    self.send(stop)
        return True

    def end_by_itself(self, **why: str) -> None:
        """The disk is full (``full``), or has failed (``sealed``)."""
        closed = str(self.session)
        self._close("sealed" if "sealed" in why else "clean")
        self.ended = {"closed": closed, "streams": {}, "sealed": None, "full": None} | why

    def status(self) -> dict[str, Any]:
        session = None if self.session is None else str(self.session)
        status = {"session": session, "ended": self.ended, "oldest_uncommitted_s": 0.0}
        if session is not None:
            status |= {"streams": self.streams(), "oldest_uncommitted_s": self.uncommitted_s}
            status |= {"start_ns": self.start_ns, "start_mono_ns": self.start_mono_ns}
        return status

    def streams(self) -> dict[str, Any]:
        seconds = (self.clock.monotonic_ns() - self.start_mono_ns) / 1e9
        return {
            name: {
                "samples": int(seconds * rate),
                "bytes": int(seconds * 1e6),
                "lost": {},
                "unknown_losses": 0,
                "incomplete": {},
                "last_ns": self.clock.monotonic_ns() - 20_000_000,
                "ended": None,
            }
            for name, rate in self.rates.items()
        } | self.frozen

    def _reply(self, message: Message, values: dict[str, Any]) -> None:
        self._replies.append(Message(Kind.STATUS, number=message.number, values=values))

    def _open(self, plan: dict[str, Any]) -> None:
        assert self.session is None
        self.session = Path(plan["root"]) / plan["name"]
        self.ended = None
        self.start_ns, self.start_mono_ns = self.clock.realtime_ns(), self.clock.monotonic_ns()
        make_session(self.session, "recording", metadata=plan["metadata"])
        (self.session / "config.yaml").write_text(plan.get("config_text", "version: 1\n"))

    def _close(self, state: str) -> None:
        assert self.session is not None
        make_session(self.session, state)
        self.session = None


def make_session(path: Path, state: str = "clean", **values: Any) -> Path:
    """A session's folder with as much in it as the daemon looks at."""
    (path / "_recorder").mkdir(parents=True, exist_ok=True)
    file = path / "_recorder/session.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    known |= {"version": 1, "state": state, "start_ns": 10**18, "end_ns": 10**18, "sensors": {}}
    file.write_text(json.dumps(known | values))
    (path / "_recorder/lock").touch()
    return path


class FakeChore(Chore):
    """A finalizer's process that ends when a test says so."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self.code: int | None = None
        self.ended = False
        self.used = 0.0

    def used_s(self) -> float:
        return self.used

    def poll(self) -> int | None:
        return self.code

    def problem(self) -> str:
        return "it broke"

    def end(self) -> None:
        self.ended = True


class Log(SystemdNotify):
    """A service manager that remembers."""

    def __init__(self) -> None:
        super().__init__({})
        self.calls: list[str] = []

    def ready(self) -> None:
        self.calls.append("ready")

    def watchdog(self) -> None:
        self.calls.append("watchdog")

    def status(self, text: str) -> None:
        self.calls.append(text)

    def stopping(self) -> None:
        self.calls.append("stopping")


class Vehicle:
    """A machine on which daemons are started, crash, and are started again.

    Attributes:
        writer: of all daemons.
        children: the newest process of each name.
        lines: what was said.
        deeds: by name, what a process does at its start; drivers arm themselves otherwise.
    """

    def __init__(self, folder: Path, text: str = CONFIG) -> None:
        self.folder = folder
        self.config: Config = load(folder, text)
        self.root = self.config.session.root
        self.clock = ManualClock(monotonic_ns=10**12)
        self.writer = FakeWriter(self.clock)
        self.lines = Said()
        self.children: dict[str, FakeChild] = {}
        self.deeds: dict[str, Callable[[FakeChild], object]] = {}
        self.chores: list[FakeChore] = []
        self.notify = Log()
        self.boot = "boot-1"
        self.arms = True

    def _spawn(self, name: str, *args: Any, **more: Any) -> Child:
        child = self.children[name] = FakeChild(name, *args, **more)
        if (deed := self.deeds.get(name)) is not None:
            deed(child)
        elif name != WRITER and self.arms:
            child.arm()
        return child  # type: ignore[return-value]

    def _chore(self, command: Sequence[str]) -> FakeChore:
        self.chores.append(FakeChore(command))
        return self.chores[-1]

    def daemon(self) -> Daemon:
        """A daemon that is open; `run` it."""
        supervisor = Supervisor(
            self.config, self.clock, self.lines.say, line=self.writer, spawn=self._spawn
        )
        finalizing = Finalizing(
            self.root, self.clock, self.lines.say, frozenset({"ncore"}), self._chore
        )
        self.running = Daemon(
            self.config,
            self.clock,
            supervisor,
            self.lines.say,
            notify=self.notify,
            finalizing=finalizing,
            desired_state_file=DesiredStateFile(self.folder / "state", self.boot),
        )
        self.running.open()
        return self.running

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until_ns = self.clock.monotonic_ns() + round(seconds * 1e9)
        while self.clock.monotonic_ns() < until_ns and not self.running._left:
            self.running.turn(0.1)

    def ask(self, op: str, patience_s: float = 30.0, **values: Any) -> dict[str, Any]:
        """A request and its reply."""
        replies = self.send(op, **values)
        until_ns = self.clock.monotonic_ns() + round(patience_s * 1e9)
        while not replies and self.clock.monotonic_ns() < until_ns:
            self.running.turn(0.1)
        (reply,) = replies
        json.dumps(reply)
        return reply

    def send(self, op: str, **values: Any) -> list[dict[str, Any]]:
        """A request; its reply comes into the list."""
        replies: list[dict[str, Any]] = []
        self.running.take(Call(OPS[op](**values), replies.append))
        return replies

    def crash(self) -> None:
        """Everything is killed; the session stays as it lies."""
        self.running._root.release()
        shutil.rmtree(self.running.supervisor.run_folder)
        self.writer.session = None

    @property
    def sessions(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir() if path.name[0] != ".")


@contextmanager
def vehicle(folder: Path, text: str = CONFIG) -> Iterator[Vehicle]:
    made = Vehicle(folder, text)
    try:
        yield made
    finally:
        made.running.close()
