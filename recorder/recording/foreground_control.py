"""Control of a foreground session by its viewers, who may mark and stop it.

::

    with serve_viewers(foreground, plan, clock, settings, say) as control:
        ...
        control.closed(foreground.record(watch))

The requests and replies are those of a daemon (docs/daemon.md), as far as they apply: `status` has
the same shape, and `start` and `keep` are refused.
"""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

from recorder.bus.control.requests import Mark, Status, Stop
from recorder.bus.control.server import Call, ControlServer, refusal
from recorder.bus.messages import SessionPlan
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError
from recorder.common.files import Closeable
from recorder.config.settings import LiveSettings
from recorder.recording.daemon.status import Snapshot, describe
from recorder.recording.foreground import Foreground, Outcome
from recorder.recording.logs import LogLine
from recorder.recording.sessions.marks import Marks
from recorder.recording.sessions.state_machine import DesiredState, RefusedError, State
from recorder.recording.supervisor.process_table import LIVE
from recorder.recording.supervisor.sidecar_process import SidecarProcess, live_request
from recorder.recording.supervisor.writer_client import account


class ForegroundControl(Closeable):
    """Control socket and live process of a foreground session; see the module's example.

    Args:
        foreground: a foreground supervisor that is not yet armed.
        plan: the plan of its session.
        clock: injectable.
        live: the live process, not yet started.
        socket: path of the control socket.

    Raises:
        StorageError: the socket cannot be created.
    """

    def __init__(
        self,
        foreground: Foreground,
        plan: SessionPlan,
        clock: Clock,
        live: SidecarProcess,
        socket: Path,
    ) -> None:
        self._foreground = foreground
        self._plan = plan
        self._clock = clock
        self._live = live
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._stoppers: list[Call] = []
        self._marks = Marks(
            foreground, lambda call, session: self._answer(call, session=session), self._refuse
        )
        self._last: dict[str, Any] | None = None
        self._state = State.STARTING
        self._started_ns = self._since_ns = self._began_ns = clock.monotonic_ns()
        self._server = ControlServer(socket, self._take, lambda: str(self._state))
        self._server.start()
        foreground.on_turn.append(self._turn)

    def closed(self, outcome: Outcome) -> None:
        """Answer the requests that stopped the session."""
        session = str(outcome.session)
        self._last = {
            "session": session,
            "why": outcome.sealed or outcome.full,
            "whole": outcome.sealed is None,
            "streams": {name: account(stream) for name, stream in outcome.streams.items()},
            "faults": list(outcome.faults),
        }
        self._change(State.IDLE)
        for call in self._stoppers:
            self._answer(call, session=session, closed=self._last)
        self._stoppers.clear()

    def close(self) -> None:
        """Stop the live process and refuse the waiting requests."""
        self._foreground.on_turn.remove(self._turn)
        self._live.close()
        waiting = [*self._stoppers, *self._marks.give_up()]
        while not self._calls.empty():
            waiting.append(self._calls.get())
        for call in waiting:
            self._refuse(call, RefusedError("the run is ending"))
        self._server.close()

    def status(self) -> dict[str, Any]:
        """Return the status in the shape of a daemon's (docs/daemon.md)."""
        foreground = self._foreground
        wanted = self._last is None and not foreground.stopping
        snapshot = Snapshot(
            now_ns=self._clock.monotonic_ns(),
            started_ns=self._started_ns,
            state=str(self._state),
            state_since_ns=self._since_ns,
            ready=foreground.settled,
            desired=DesiredState(wanted, self._plan.name, part=1),
            session=foreground.session,
            session_since_ns=self._began_ns,
            last=self._last,
            live=self._live.status(),
        )
        return describe(snapshot, foreground, Path(self._plan.root))

    def _take(self, call: Call) -> None:
        self._calls.put(call)
        self._foreground.wake()

    def _turn(self, now_ns: int) -> None:
        if self._state is State.STARTING and self._foreground.session is not None:
            self._began_ns = now_ns
            self._change(State.RECORDING)
        if self._state is State.RECORDING and self._foreground.stopping:
            self._change(State.STOPPING)
        self._live.turn(now_ns)
        while not self._calls.empty():
            call = self._calls.get()
            try:
                self._serve(call)
            except RecorderError as error:
                self._refuse(call, error)
        self._marks.follow()

    def _serve(self, call: Call) -> None:
        match call.request:
            case Status():
                self._answer(call)
            case Mark() as request if request.keep is None:
                now_ns = self._clock.monotonic_ns() + (self._foreground.offset_ns or 0)
                self._marks.put(call, request, self._foreground.session, now_ns)
            case Mark():
                text = "`recorder run` keeps all that it records and has no events"
                raise RefusedError(f"{text}; `recorder serve` has")
            case Stop():
                self._stoppers.append(call)
                self._foreground.stop(why="stop")
            case request:
                text = f"`recorder run` records one session and takes no {request.op}"
                raise RefusedError(f"{text}; `recorder serve` does")

    def _change(self, state: State) -> None:
        self._state, self._since_ns = state, self._clock.monotonic_ns()

    def _answer(self, call: Call, **more: Any) -> None:
        call.answer({"ok": True, "state": str(self._state), **more, "status": self.status()})

    def _refuse(self, call: Call, error: RecorderError) -> None:
        call.answer(refusal(error, str(self._state)) | {"status": self.status()})


def serve_viewers(
    foreground: Foreground, plan: SessionPlan, clock: Clock, settings: LiveSettings, say: LogLine
) -> ForegroundControl:
    """Create the live process of a foreground session and the control for its viewers.

    Raises:
        StorageError: the socket cannot be created.
    """
    socket = foreground.run_folder / "control.sock"
    request = live_request(foreground.config, settings, socket, Path(plan.root))
    live = SidecarProcess(LIVE, request, clock, say)
    return ForegroundControl(foreground, plan, clock, live, socket)
