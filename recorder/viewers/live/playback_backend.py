"""Playback backend: requests to the player, its position, and notes about the session."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recorder.common.errors import UsageError
from recorder.config.settings import LiveSettings
from recorder.session.accounts import read_accounts
from recorder.session.layout import RECORDING
from recorder.session.reader import Session
from recorder.session.summary import folder_bytes
from recorder.session.timeline import StreamTimeline, Timeline, make_timeline
from recorder.session.verdict import Reason, Verdict, verdict
from recorder.viewers.live.access import strip_paths
from recorder.viewers.live.backend import Note, Notify, StaticContent
from recorder.viewers.live.event_tail import event_note
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.player import Player, Position
from recorder.viewers.live.serving import serve_backend

REPORT_S = 0.1
"""Interval of position reports while the player plays and a viewer is connected, in seconds."""
TIMELINE_S = 5.0
"""Shortest interval between timelines of a session that is being recorded, in seconds."""
MAXIMUM = "max"
"""Name of the maximum speed in JSON."""
_IDLE_SHARE = 20  # reading the timeline of a session of hours takes a second
_MOST_STEPS = 1000
_MOST_REASONS = 3
_NICE = 19  # beside a recording


class PlaybackBackend:
    """Backend of a played session; see `recorder.viewers.live.backend.Backend`.

    Args:
        player: plays the session; the caller closes it.
        path: the session's folder.
        notify: sends a note to all browsers.
    """

    mode = "playback"
    ops = frozenset({"play", "pause", "speed", "seek", "step"})

    def __init__(self, player: Player, path: Path, notify: Notify) -> None:
        self._player = player
        self._path = path
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._viewers = 0
        self._changed = asyncio.Event()
        self._outdated = asyncio.Event()  # the notes about the session must be made again
        self._problems = len(player.problems)
        self._notes: list[Note] = []  # about the session
        self._events: list[Note] = []
        self._reader = ThreadPoolExecutor(1, "timeline")
        player.on_change.append(self._wake)
        self.tasks = (
            asyncio.create_task(self._report()),
            asyncio.create_task(self._describe()),
        )

    def greeting(self) -> list[Note]:
        return [*self._notes, *self._events, position_note(self._player)]

    def attend(self, viewers: int) -> None:
        self._viewers = viewers
        self._changed.set()

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        position = await asyncio.wrap_future(self._command(op, values))
        return {"t_ns": str(position.t_ns)}

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self._reader.shutdown(cancel_futures=True)

    def _command(self, op: str, values: Mapping[str, Any]) -> Future[Position]:
        player = self._player
        match op, values:
            case "play", _:
                return player.play()
            case "pause", _:
                return player.pause()
            case "speed", {"value": "max"}:
                return player.set_speed(math.inf)
            case "speed", {"value": int() | float() as speed} if not isinstance(speed, bool):
                return player.set_speed(speed)
            case "seek", {"t_ns": str() as text}:
                if len(text) < 20 and text.removeprefix("-").isdecimal():
                    return player.seek(int(text))
            case "step", {"stream": str() as stream, "by": int() as by}:
                if 0 < abs(by) <= _MOST_STEPS and not isinstance(by, bool):
                    return player.step(stream, by)
        raise UsageError(f"{op}: {_NEEDS.get(op, 'unknown')}")

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _report(self) -> None:
        """Report the position after each change, and regularly while it moves."""
        while True:
            moves = self._viewers and self._player.position.playing
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S if moves else None):
                    await self._changed.wait()
            self._changed.clear()
            if len(self._player.problems) != self._problems:
                self._outdated.set()
            if self._viewers:
                self._notify(position_note(self._player))

    async def _describe(self) -> None:
        """Report timeline and state, repeatedly while the session is being recorded."""
        while True:
            self._outdated.clear()
            self._problems = len(self._player.problems)
            position, began_s = self._player.position, time.monotonic()
            self._notes, events = await self._loop.run_in_executor(
                self._reader, self._read, position
            )
            for note in (*self._notes, *(e for e in events if e not in self._events)):
                self._notify(note)
            self._events = events
            pause_s = max(TIMELINE_S, _IDLE_SHARE * (time.monotonic() - began_s))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s if position.recording else None):
                    await self._outdated.wait()
            while not self._viewers:
                await asyncio.sleep(REPORT_S)

    def _read(self, position: Position) -> tuple[list[Note], list[Note]]:
        with Session(self._path, partial=True) as session:
            timeline = make_timeline(session, position.start_ns, position.end_ns)
            notes = [
                timeline_note(timeline),
                status_note(session, timeline, self._player.problems, position.recording),
            ]
        return strip_paths(notes), strip_paths([event_note(dict(e)) for e in timeline.events])


_NEEDS = {
    "speed": f"value is not a number, nor {MAXIMUM!r}",
    "seek": "t_ns is not a decimal number in a string",
    "step": f"stream and by (up to {_MOST_STEPS}, not 0) are needed",
}


def position_note(player: Player) -> Note:
    """Return the note ``playback``; ``blank``: streams without a sample at or before that time."""
    position = player.position
    return {
        "type": "playback",
        "start_ns": str(position.start_ns),
        "end_ns": str(position.end_ns),
        "t_ns": str(position.t_ns),
        "playing": position.playing,
        "speed": MAXIMUM if math.isinf(position.speed) else position.speed,
        "jumps": position.jumps,
        "recording": position.recording,
        "blank": sorted(player.blank),
    }


def timeline_note(timeline: Timeline) -> Note:
    """Return the note ``timeline``: per stream ``[start_ns, end_ns, kind, causes]``."""
    return {
        "type": "timeline",
        "start_ns": str(timeline.start_ns),
        "end_ns": str(timeline.end_ns),
        "streams": {
            name: [[str(p.start_ns), str(p.end_ns), p.kind, p.text] for p in stream.pieces]
            for name, stream in timeline.streams.items()
        },
        "marks": [{**mark, "t_ns": str(mark["t_ns"])} for mark in timeline.marks],
    }


def status_note(
    session: Session, timeline: Timeline, problems: Mapping[str, str], recording: bool
) -> Note:
    """Return the note ``status``: one row for each stream of the whole session, and a verdict."""
    seconds = (timeline.end_ns - timeline.start_ns) / 1e9
    accounts = read_accounts(session)
    unreadable = [Reason("unreadable", name, text) for name, text in problems.items()]
    unknown = {name: made.lost.get("unknown", 0) for name, made in timeline.streams.items()}
    judged = verdict(accounts, unexplained=unknown, unreadable=unreadable)
    rows = {}
    for name, stream in timeline.streams.items():
        spec = session.declared.get(name)
        size = folder_bytes(session.path / name)
        fault = stream.problem or problems.get(name, "")
        incomplete = accounts.streams.get(name, {}).get("incomplete", {})
        level, word = _judge(stream, fault, incomplete)
        rows[name] = {
            "state": "ended",
            "fault": fault or None,
            "required": True,
            "rate_hz": None if stream.rate_hz is None else round(stream.rate_hz, 3),
            "expected_hz": None if spec is None else spec.rate_hz,
            "mb_s": round(size / seconds / 1e6, 4) if seconds > 0 else None,
            "age_s": None,
            "ring": None,
            "lost": stream.lost,
            "unknown_losses": stream.uncounted,
            "incomplete": incomplete,
            "outage": None,
            "samples": stream.samples,
            "bytes": size,
            "spark": [round(rate, 2) for rate in stream.rates_hz],
            "level": level,
            "word": word,
        }
    return {
        "type": "status",
        "status": {"state": session.state, "session": None, "sensors": {}, "disk": {}},
        "streams": rows,
        "verdict": _verdict(judged, RECORDING if recording else session.state),
        "session_verdict": {"state": session.state, **judged.to_wire()},
        "disk_hours": None,
        "session": session.name,
        "elapsed_s": seconds,
        "clock": None,
    }


def _judge(stream: StreamTimeline, fault: str, incomplete: Mapping[str, Any]) -> tuple[str, str]:
    if fault:
        return "bad", "damaged"
    if not stream.samples:
        return "bad", "no data"
    if stream.lost or stream.uncounted:
        return "warn", "loss"
    return ("warn", "incomplete") if incomplete else ("good", "ok")


def _verdict(judged: Verdict, state: str) -> dict[str, str]:
    """Return the session's verdict as the page shows it; ``why`` has the state and the reasons."""
    reasons = "; ".join(reason.text for reason in judged.reasons[:_MOST_REASONS])
    level = "good" if judged.passed else "bad"
    return {"word": judged.word, "level": level, "why": f"{state}: {reasons}" if reasons else state}


async def serve_session(
    path: Path,
    settings: LiveSettings,
    announce: Callable[[str, str, Mapping[str, str]], None],
    *,
    speed: float,
) -> None:
    """Serve a recorded session until SIGTERM or SIGINT.

    Args:
        path: the session's folder.
        settings: address, port and access of the server.
        announce: called when the server listens, with its address, the session's name, and what
            cannot be read, by stream.
        speed: initial speed.

    Raises:
        SessionError: there is no such session, or it has no sample that can be read.
        UsageError: the server cannot listen there, the speed is invalid, or the extra is not
            installed.
    """
    with Player(path) as player:
        player.set_speed(speed)

        def stage(hub: Hub, notify: Notify) -> tuple[PlaybackBackend, Player, StaticContent]:
            if player.position.recording:
                os.nice(_NICE)  # before the threads begin, which inherit it
            player.start(hub)
            shown = StaticContent(playback=player, session=path)
            return PlaybackBackend(player, path, notify), player, shown

        await serve_backend(
            settings, stage, lambda url: announce(url, player.name, player.problems)
        )
