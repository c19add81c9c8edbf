"""Live backend: it polls the daemon's status and forwards the requests of browsers.

Every exchange with the daemon and every read of the disk happens in a worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.bus.control.client import Client, DaemonError
from recorder.bus.control.requests import MOST_AGE_S
from recorder.common.clock import SystemClock, read_clocks
from recorder.common.errors import RecorderError, UsageError
from recorder.session.accounts import read_accounts
from recorder.session.reader import Session
from recorder.session.verdict import verdict
from recorder.viewers.live.access import strip_paths
from recorder.viewers.live.backend import Note, Notify, read_send_ms
from recorder.viewers.live.event_tail import Event, EventTail, Timeline, event_note
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.recordings import Recordings
from recorder.viewers.live.summary import Summary
from recorder.viewers.live.tap_source import TapSource

WATCHED_S = 0.25
"""Interval of the daemon's status while a viewer is connected, in seconds."""
IDLE_S = 5.0
"""Interval of the daemon's status while no viewer is connected, in seconds."""
_STATUS_TIMEOUT_S = 10.0
_REQUEST_TIMEOUT_S = 120.0
_SESSIONS_S = 60.0
_TIMELINE_S = 5.0
_IDLE_SHARE = 20  # reading the events of a session of hours takes a second
_REQUESTS = 4  # at a time
_MOST_EVENTS = 200
_STEP_NS = 5_000_000  # of the host's clock, beyond which stamps of unrecorded samples move


@dataclass(slots=True)
class _Polled:
    status: dict[str, Any] | None = None
    problem: str = ""
    session: EventTail | None = None
    events: list[Event] = field(default_factory=list)
    judged: dict[str, Any] | None = None


class LiveBackend:
    """Backend of a live rig; see `recorder.viewers.live.backend.Backend`.

    Args:
        hub: its `offset_ns` follows the open session's.
        source: receives the taps from the status.
        socket: the daemon's control socket.
        root: the folder of sessions.
        notify: sends a note to all browsers.
    """

    mode = "live"
    ops = frozenset({"start", "stop", "mark"})

    def __init__(
        self,
        hub: Hub,
        source: TapSource,
        socket: Path,
        root: Path,
        notify: Notify,
    ) -> None:
        self._hub = hub
        self._source = source
        self._poller = _Poller(socket)
        self._socket = socket
        self._notify = notify
        self._summary = Summary()
        self._recordings = Recordings(root)
        self._timeline = Timeline()
        self._newest: dict[str, Note] = {}
        self._events: deque[Note] = deque(maxlen=_MOST_EVENTS)
        self._next_event = 0  # number of the daemon's next event
        self._daemon: int | None = None
        self._session: EventTail | None = None
        self._packing: Mapping[str, Any] | None = None
        self._viewers = 0
        self.config: Path | None = None
        self._wake = asyncio.Event()
        self._timeline_s = self._sessions_s = 0.0
        self._outages: dict[str, Mapping[str, Any]] = {}
        self._statuses = ThreadPoolExecutor(1, "status")
        self._requests = ThreadPoolExecutor(_REQUESTS, "request")
        self._lists = ThreadPoolExecutor(1, "sessions")
        self._listing: asyncio.Task[None] | None = None
        self.tasks = (asyncio.create_task(self._run()),)

    def greeting(self) -> list[Note]:
        return [*self._newest.values(), {"type": "events", "events": list(self._events)}]

    def attend(self, viewers: int) -> None:
        self._viewers = viewers
        self._wake.set()

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        arguments = {key: values[key] for key in _ARGUMENTS[op] if values.get(key) is not None}
        if op == "mark" and (age := values.get("age_ms")) is not None:
            if isinstance(age, bool) or not isinstance(age, int | float):
                raise UsageError("mark: age_ms is not a number")
            if not 0 <= age <= 1e3 * MOST_AGE_S:
                raise UsageError(f"mark: age_ms is not from 0 to {1e3 * MOST_AGE_S:.0f}")
            arguments["age_s"] = age / 1e3
        received_s = time.monotonic()
        loop = asyncio.get_running_loop()
        session = await loop.run_in_executor(self._requests, self._ask, op, arguments, received_s)
        self._wake.set()
        return {"session": session}

    async def close(self) -> None:
        for task in (*self.tasks, self._listing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for pool in (self._statuses, self._requests, self._lists):
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, op: str, arguments: dict[str, Any], received_s: float) -> str | None:
        """Send one request, in a thread of its own: `start` and `stop` may take a while."""
        if "age_s" in arguments:
            age_s = arguments["age_s"] + time.monotonic() - received_s
            arguments["age_s"] = min(age_s, MOST_AGE_S)
        try:
            with Client(self._socket, timeout_s=_REQUEST_TIMEOUT_S) as client:
                reply = client.request(op, **arguments)
        except DaemonError as error:
            raise DaemonError(strip_paths(str(error))) from None
        return Path(reply.session).name if reply.session else None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            polled = await loop.run_in_executor(self._statuses, self._poller.poll)
            self._take(polled)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCHED_S if self._viewers else IDLE_S):
                    await self._wake.wait()
            if self._wake.is_set():
                self._wake.clear()

    def _take(self, polled: _Polled) -> None:
        now_ns = time.monotonic_ns()
        now_s = now_ns / 1e9
        status = polled.status
        if status is not None:
            streams = {name: list(s["streams"]) for name, s in status["sensors"].items()}
            self._source.update(status["taps"], streams)
            self.config = Path(status["config"])
            self._take_events(status)
            self._move_clock(status.get("session"))
        if _name(polled.session) != _name(self._session):
            self._session = polled.session
            self._timeline = Timeline()
            self._timeline_s = self._sessions_s = 0.0
        packing = ((status or {}).get("finalizing") or {}).get("current")
        if packing != self._packing:
            self._packing, self._sessions_s = packing, 0.0  # the size of a session changed
        if polled.session is not None and status is not None and status.get("session"):
            self._timeline.start_ns = status["session"]["start_ns"] or self._timeline.start_ns
        self._timeline.add(polled.events)
        newest_ns = {name: self._hub.newest_ns(name) for name in self._hub.specs}
        note = self._summary.note(status, newest_ns, now_ns, polled.problem)
        note |= {"session_verdict": polled.judged, "sent_ms": read_send_ms()}
        self._notify(strip_paths(note))  # in no greeting: a new viewer has the daemon asked
        outages = _outages(status)
        begun_or_over = outages.keys() != self._outages.keys()
        if polled.events or begun_or_over or now_s - self._timeline_s >= _TIMELINE_S:
            self._timeline_s, self._outages = now_s, outages
            if self._session is not None:
                self._publish(self._timeline.note(time.time_ns(), outages))
        if self._viewers and now_s - self._sessions_s >= _SESSIONS_S:
            self._sessions_s = now_s
            if self._listing is None or self._listing.done():
                self._listing = asyncio.create_task(self._list())

    def _take_events(self, status: Mapping[str, Any]) -> None:
        """Send the daemon's new events as its log has them, with losses and incomplete samples."""
        if status["pid"] != self._daemon:
            self._daemon, self._next_event = status["pid"], 0
        for event in status["events"]:
            if event["number"] >= self._next_event:
                note = event_note({**event, "type": event["kind"]}, event["text"])
                self._events.append(strip_paths(note))
                self._notify(self._events[-1])
        if status["events"]:
            self._next_event = status["events"][-1]["number"] + 1

    def _move_clock(self, session: Mapping[str, Any] | None) -> None:
        """Use the open session's clock offset, or the host's clock while nothing is recorded."""
        if session is not None:
            if session["offset_ns"] is not None:  # the writer runs
                self._hub.offset_ns = session["offset_ns"]
            return
        offset_ns = read_clocks(SystemClock()).offset_ns
        if abs(offset_ns - self._hub.offset_ns) > _STEP_NS:
            self._hub.offset_ns = offset_ns

    async def _list(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(RecorderError):  # the root is not there: the status reports it
            self._publish(await loop.run_in_executor(self._lists, self._recordings.note))

    def _publish(self, note: Note) -> None:
        self._newest[note["type"]] = note
        self._notify(note)


class _Poller:
    """Poller of the daemon's status over one connection, in one worker thread."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._client: Client | None = None
        self._session: EventTail | None = None
        self._judged: dict[str, Any] | None = None
        self._judge_s = 0.0  # when the session is judged again

    def poll(self) -> _Polled:
        try:
            if self._client is None:
                self._client = Client(self._socket, timeout_s=_STATUS_TIMEOUT_S)
            status = dict(self._client.status().status)
        except DaemonError as error:
            if self._client is not None:
                self._client.close()
            self._client = self._session = None
            return _Polled(problem=strip_paths(str(error)))
        path = (status.get("session") or {}).get("path")
        events = []
        if path is None:
            if self._session is not None:  # what was written last
                events = self._session.read()
            self._session = None
        elif self._session is None or self._session.path != Path(path):
            self._session, self._judge_s = EventTail(Path(path)), 0.0
        if self._session is not None:
            events = self._session.read()
            self._judge(self._session.path)
        judged = None if self._session is None else self._judged
        return _Polled(status, session=self._session, events=events, judged=judged)

    def _judge(self, path: Path) -> None:
        """Judge the open session as `recorder info` does, from time to time."""
        if (began_s := time.monotonic()) < self._judge_s:
            return
        with contextlib.suppress(RecorderError), Session(path) as session:
            judged = verdict(read_accounts(session, quick=True))
            self._judged = {"state": session.state, **judged.to_wire()}
        took_s = time.monotonic() - began_s
        self._judge_s = began_s + max(_TIMELINE_S, _IDLE_SHARE * took_s)


_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "start": ("name", "meta"),
    "stop": (),
    "mark": ("text", "keep"),
}


def _outages(status: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """Return the ongoing outages by stream."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, sensor in (status or {}).get("sensors", {}).items():
        rows = {name: sensor, **sensor["streams"]}
        found |= {key: row["outage"] for key, row in rows.items() if row.get("outage")}
    return found


def _name(session: EventTail | None) -> str | None:
    return None if session is None else session.name
