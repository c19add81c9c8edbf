"""The data plane, whole, in one process and in an order that a seed decides.

Real are `WriterLink`, `SendRing`, `WriterService` with its three threads, `SessionWriter` and its
files.
Simulated are time, ZeroMQ, and death.  Every thread runs until it would wait; then the scheduler
picks who goes on.  A writer may die wherever it waits, before each fdatasync too; what it had not
handed to the kernel dies with it.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivers.kit import writer_link as link_module
from recorder.bus.wire import Kind, Message, decode, encode
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import ProtocolError
from recorder.recording.writer import active_session as active_session_module
from recorder.recording.writer import pending_split as pending_split_module
from recorder.recording.writer import service as service_module
from recorder.recording.writer import session_writer as session_writer_module
from recorder.recording.writer.active_session import ActiveSession
from recorder.recording.writer.service import WriterService
from recorder.session.layout import SessionPlan
from recorder.session.lock import lock_session
from tests.drivers.kit.actors import UP_MARK, Actor, Pipe, SimDisk, current
from tests.drivers.kit.ownership import Ownership
from tests.drivers.kit.sim_driver import Offer, SimDriver

START_NS = 5_000_000_000
MOST_STEPS = 50_000


class Plane:
    """Scheduler, network, writer process and supervisor; see the module."""

    def __init__(
        self, root: Path, seed: int, monkeypatch: pytest.MonkeyPatch, buffer_bytes: int
    ) -> None:
        self.rng = random.Random(seed)
        self.now_ns = START_NS
        self.root = root
        self.buffer_bytes = buffer_bytes
        self.actors: list[Actor] = []
        self.pipes: list[Pipe] = []
        self.starting: Pipe | None = None
        self.router_in: deque[tuple[bytes, list[bytes]]] | None = None
        self.service: WriterService | None = None
        self.disk = SimDisk(self._pause)
        self.session: Path | None = None
        self.clock: Any = SimpleNamespace(
            monotonic_ns=lambda: self.now_ns, realtime_ns=self._realtime_ns, wait=self._wait
        )
        self.offers: dict[str, list[Offer]] = {}
        self.drivers: dict[str, SimDriver] = {}
        self.deaths = 0
        self.pauses = 0
        self.die_at: int | None = None
        self.dying = False
        self._locks: list[tuple[int, int]] = []
        self._ids = 0
        self._identities = 0
        self._asked = 0
        self.ownership = Ownership()
        self.ownership.watch(monkeypatch)
        self._patch(monkeypatch)
        self.supervisor = self.pipe()

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plane = self

        class Waker:
            woken = False

            def wake(self) -> None:
                self.woken = True

            def close(self) -> None:
                pass

        class Driver:
            def __init__(self, folder: Path, waker: Waker) -> None:
                assert plane.starting is not None
                self._pipe, self._waker = plane.starting, waker
                self.send, self.receive = self._pipe.send, self._pipe.receive

            def wait(self, seconds: float, *, until_writable: bool = False) -> None:
                pipe = self._pipe
                plane.pause_for(
                    lambda: bool(
                        pipe.inbox
                        or self._waker.woken
                        or (until_writable and len(pipe.queue) < UP_MARK)
                    ),
                    seconds,
                )
                self._waker.woken = False

            def close(self) -> None:
                pass

        class Router:
            def __init__(self, folder: Path, waker: Waker, **_: Any) -> None:
                self._waker = waker
                self._inbox: deque[tuple[bytes, list[bytes]]] = deque()
                plane.router_in = self._inbox

            def wait(self, seconds: float) -> None:
                plane.pause_for(lambda: bool(self._inbox or self._waker.woken), seconds)
                self._waker.woken = False

            def receive(self) -> tuple[bytes, Message | ProtocolError] | None:
                if not self._inbox:
                    return None
                peer, frames = self._inbox.popleft()
                return peer, decode(frames)

            def send(self, peer: bytes, message: Message) -> bool:
                for pipe in plane.pipes:
                    if pipe.identity == peer and pipe.open:
                        pipe.down.append([bytes(frame) for frame in encode(message)])
                return True

            def close(self) -> None:
                pass

        class Tap:
            def __init__(self, address: str) -> None:
                pass

            def declare(self, spec: StreamSpec) -> None:
                pass

            def wanted(self, stream: str) -> bool:
                return False

        class Inbox:
            def __init__(self) -> None:
                self._items: deque[Any] = deque()

            def put(self, item: Any) -> None:
                self._items.append(item)

            def get(self) -> Any:
                plane.pause_for(lambda: bool(self._items), None)
                return self._items.popleft()

        class Thread:
            def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str):
                self._call = lambda: target(*args)
                self._name = name

            def start(self) -> None:
                self._actor = plane.spawn(self._name, self._call, "writer")

            def join(self) -> None:
                plane.pause_for(lambda: self._actor.done, None)

        queues = SimpleNamespace(SimpleQueue=Inbox)
        monkeypatch.setattr(active_session_module, "queue", queues)
        threads = SimpleNamespace(Thread=Thread, Event=threading.Event)
        monkeypatch.setattr(active_session_module, "threading", threads)
        monkeypatch.setattr(pending_split_module, "threading", threads)
        monkeypatch.setattr(session_writer_module, "lock_session", self._lock)
        monkeypatch.setattr(service_module, "Waker", Waker)
        monkeypatch.setattr(service_module, "WriterSocket", Router)
        monkeypatch.setattr(link_module, "Waker", Waker)
        monkeypatch.setattr(link_module, "DriverSocket", Driver)
        monkeypatch.setattr(link_module, "TapPublisher", Tap)
        monkeypatch.setattr(os, "fsync", lambda fd: None)
        monkeypatch.setattr(os, "fdatasync", lambda fd: None)

    # Time and threads

    def _realtime_ns(self) -> int:
        self.now_ns += 1  # no two starts of a driver are at the same time
        return 1_700_000_000_000_000_000 + self.now_ns

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        self.pause_for(event.is_set, seconds)
        return event.is_set()

    def _pause(self) -> None:
        """A place to die at, but for whoever holds the session's lock."""
        opened = self._sessions_open()
        locked = any(o.writer.lock.locked() for o in opened)
        if getattr(current, "actor", None) and opened and not locked:
            self.pauses += 1
            self.dying = self.dying or self.pauses == self.die_at
            self.pause_for(lambda: True, None)

    def _lock(self, session: Path) -> int:
        fd = lock_session(session)
        self._locks.append((fd, os.fstat(fd).st_ino))
        return fd

    def _unlock_all(self) -> None:
        for fd, inode in self._locks:
            with contextlib.suppress(OSError):  # closed by the session that was closed
                if os.fstat(fd).st_ino == inode:
                    os.close(fd)
        self._locks.clear()

    def _sessions_open(self) -> list[ActiveSession]:
        return [] if self.service is None else list(self.service._sessions)

    def pause_for(self, ready: Callable[[], bool], seconds: float | None) -> None:
        actor: Actor = current.actor
        actor.wait(ready, None if seconds is None else self.now_ns + round(seconds * 1e9))

    def spawn(self, name: str, target: Callable[[], None], group: str) -> Actor:
        actor = Actor(name, target, group)
        self.actors.append(actor)
        return actor

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    # Processes

    def start_writer(self) -> None:
        def serve() -> None:
            self.service = None
            self.service = WriterService(
                Path("run"), self.buffer_bytes, self.clock, self.disk, self.session
            )
            self.service.run()

        self.spawn("writer", serve, "writer")

    def kill_writer(self) -> None:
        """SIGKILL: in the kernel and on the wire all is gone, in the drivers' queues it is not."""
        self.deaths += 1
        self.router_in = None
        self._kill("writer")
        self.disk.drop()
        self._unlock_all()
        self.service = None
        for pipe in self.pipes:
            pipe.wire.clear()
            arrived = self.rng.randint(0, len(pipe.down))
            pipe.inbox.extend(list(pipe.down)[:arrived])
            pipe.down.clear()
            pipe.identity = b""

    def start_driver(self, sensor: str, *specs: StreamSpec) -> SimDriver:
        self.drivers[sensor] = SimDriver(self, sensor, specs)
        return self.drivers[sensor]

    def kill_driver(self, sensor: str) -> None:
        """SIGKILL: some of what its ZeroMQ held may still be on its way."""
        driver = self.drivers[sensor]
        self._kill(f"driver {sensor}")
        for _ in range(self.rng.randint(0, len(driver.pipe.queue))):
            driver.pipe.wire.append(driver.pipe.queue.popleft())
        driver.pipe.queue.clear()
        driver.pipe.open = False

    def _kill(self, group: str) -> None:
        for actor in self.actors:
            if actor.group == group and not actor.done:
                actor.killed = True
                actor.resume()
        self.actors = [a for a in self.actors if a.group != group]

    def end(self) -> None:
        for group in {actor.group for actor in self.actors}:
            self._kill(group)
        self.disk.drop()

    # Network

    def pipe(self) -> Pipe:
        pipe = Pipe()
        self.pipes.append(pipe)
        return pipe

    def _moves(self) -> Iterator[Callable[[], None]]:
        for pipe in self.pipes:
            if self.router_in is not None and not pipe.identity and pipe.open:
                yield lambda pipe=pipe: self._connect(pipe)  # type: ignore[misc]
            if pipe.identity:
                if pipe.queue and len(pipe.wire) < 8:
                    yield lambda pipe=pipe: pipe.wire.append(  # type: ignore[misc]
                        pipe.queue.popleft()
                    )
                if pipe.wire and self._waiting_of(pipe) < UP_MARK:
                    yield lambda pipe=pipe: self._arrive(pipe)  # type: ignore[misc]
                if pipe.down:
                    yield lambda pipe=pipe: pipe.inbox.append(  # type: ignore[misc]
                        pipe.down.popleft()
                    )

    def _waiting_of(self, pipe: Pipe) -> int:
        assert self.router_in is not None
        return sum(peer == pipe.identity for peer, _ in self.router_in)

    def _connect(self, pipe: Pipe) -> None:
        self._identities += 1
        pipe.identity = b"%d" % self._identities

    def _arrive(self, pipe: Pipe) -> None:
        assert self.router_in is not None
        self.router_in.append((pipe.identity, pipe.wire.popleft()))

    # The scheduler

    def step(self) -> None:
        """One thread goes on until it waits, or one message moves on, or time does."""
        actors = [a for a in self.actors if not a.done]
        ready = [
            a
            for a in actors
            if a.ready() or (a.deadline_ns is not None and a.deadline_ns <= self.now_ns)
        ]
        moves = list(self._moves())
        if not ready and not moves:
            self.now_ns = min(a.deadline_ns for a in actors if a.deadline_ns is not None)
            return
        choice = self.rng.randrange(len(ready) + len(moves))
        if choice >= len(ready):
            moves[choice - len(ready)]()
            return
        actor = ready[choice]
        actor.resume()
        if actor.error is not None:
            raise actor.error
        self._check()

    def _check(self) -> None:
        """What must hold at any time."""
        for driver in self.drivers.values():
            if driver.link._failure is not None and not driver.actor.killed:
                raise driver.link._failure
            driver.most_held = max(driver.most_held, self.held(driver))

    @staticmethod
    def held(driver: SimDriver) -> int:
        ring = driver.link.seam.ring
        return ring.bytes_held if ring is not None else 0

    def run(self, until: Callable[[], bool], seconds: float, what: str) -> None:
        """Step until something is so; fails where so many simulated seconds do not see it."""
        deadline_ns = self.now_ns + round(seconds * 1e9)
        steps = 0
        while not until():
            steps += 1
            assert self.now_ns <= deadline_ns and steps < MOST_STEPS, f"no end: {what}"
            self.step()

    def ask(self, seconds: float = 30.0, **command: Any) -> dict[str, Any]:
        """Ask the writer and wait, across writers, as `Supervisor._ask` does."""
        return self.answer_to(command, seconds)

    def answer_to(self, command: dict[str, Any], seconds: float = 30.0) -> dict[str, Any]:
        """The same, of any command."""
        self._asked += 1
        deaths = -1
        deadline_ns = self.now_ns + round(seconds * 1e9)
        for _ in range(MOST_STEPS):
            if deaths != self.deaths:
                deaths = self.deaths
                values = dict(command)
                self.supervisor.send(Message(Kind.COMMAND, number=self._asked, values=values))
            while (message := self.supervisor.receive()) is not None:
                if message.kind is Kind.STATUS and message.number == self._asked:
                    return message.values
            if self.now_ns > deadline_ns:
                break
            self.step()
            self.disturb()
        raise AssertionError(f"no answer: {command}")

    def disturb(self) -> None:
        """What a test lets happen while the supervisor waits."""

    def _plan(self) -> SessionPlan:
        return SessionPlan(
            str(self.root),
            "sim",
            False,
            "version: 1\n",
            sensors={sensor: {} for sensor in self.drivers},
            record_format=["cam", "imu"],
        )

    def start_session(self) -> None:
        plan = self._plan()
        reply = self.ask(op="start", plan=plan.to_wire())
        self.session = Path(reply["session"])
        self.sessions = [self.session]

    def split_session(self) -> dict[str, Any]:
        """Go on in a new session; what the old one's end was."""
        plan = self._plan()
        reply = self.ask(
            op="split", plan=plan.to_wire(), session=str(self.session), live=list(self.drivers)
        )
        assert "previous" in reply, reply
        assert reply["previous"]["closed"] == str(self.session)
        self.session = Path(reply["session"])
        self.sessions.append(self.session)
        streams: dict[str, Any] = reply["previous"]["streams"]
        return streams

    def stop_session(self) -> dict[str, Any]:
        reply = self.ask(op="stop", live=list(self.drivers), grace_s=10.0)
        assert "closed" in reply, reply
        streams: dict[str, Any] = reply["streams"]
        return streams
