"""Manager of the data around events, which deletes the unneeded parts of a ring.

The daemon's thread reports the open part and makes requests; the manager's reads and writes::

    ring_manager = RingManager(Storage(root), clock, say, ring=config.ring)
    ring_manager.turn(live, recording)  # at every turn
    ring_manager.keep(event, answer)    # answer(event), or answer(error), from a turn
    if ring_manager.split_due: ...      # the open part should end
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from recorder.bus.control.requests import Mark
from recorder.common.clock import Clock
from recorder.common.errors import FormatError, RecorderError, StorageError
from recorder.common.files import Closeable
from recorder.common.process_setup import start_thread
from recorder.config.settings import RingSettings
from recorder.recording.logs import ERROR, INFO, LogLine
from recorder.recording.ring.event_window import PartFacts, needs_following, shortfalls
from recorder.recording.ring.retention_policy import (
    Part,
    droppable,
    is_awaited,
    is_over,
    split_due,
    touches,
)
from recorder.recording.ring.storage import Storage
from recorder.session.event_clips import KEPT, OPEN, SHORT, KeptEvent

STEP_S = 0.5
SCAN_S = 30.0
_SECONDS_FREE = 120.0
"""Recording time that a ring leaves free above the disk's minimum, s; the writer leaves 60."""
_END_S = 10.0
_SLUG = re.compile(r"[^a-z0-9]+")

Answer = Callable[[KeptEvent | RecorderError], object]


@dataclass(frozen=True, slots=True)
class Live:
    """The open part.

    Attributes:
        path: the part's folder.
        start_ns: start of the part, epoch ns.
        offset_ns: epoch ns minus CLOCK_MONOTONIC on the part's clock.
        bytes_per_s: data rate of the sensors.
    """

    path: Path
    start_ns: int
    offset_ns: int
    bytes_per_s: float = 0.0


def event_id(t_ns: int, name: str) -> str:
    """Return an event's id: its moment in UTC, and its trigger or the first words of its text.

    >>> event_id(1_700_000_000_250_000_000, "Hard brake!")
    '20231114T221320.250Z_hard_brake'
    """
    moment = datetime.fromtimestamp(t_ns // 10**9, UTC)
    slug = _SLUG.sub("_", name.lower()).strip("_")[:40].rstrip("_") or "event"
    return f"{moment:%Y%m%dT%H%M%S}.{t_ns // 10**6 % 1000:03d}Z_{slug}"


def new_event(request: Mark) -> KeptEvent:
    """Create the open event of a mark.

    Args:
        request: a mark with ``text``, ``t_ns`` and ``keep``.
    """
    t_ns, text = int(request.t_ns or 0), str(request.text)
    before, after = request.keep or (0.0, 0.0)
    return KeptEvent(
        id=event_id(t_ns, request.trigger or text),
        text=text,
        trigger=request.trigger,
        t_ns=t_ns,
        from_ns=t_ns - round(before * 1e9),
        until_ns=t_ns + round(after * 1e9),
        state=OPEN,
    )


class RingManager(Closeable):
    """Manager of the data around events; see the module's example.

    Args:
        storage: the folder of sessions.
        clock: injectable.
        say: logs one line for users.
        ring: the config's ring; None: no part is deleted.
        floor_bytes: minimum of the disk's free space.
        claimed: receives each session that was not kept before, in the ring manager's thread.

    Attributes:
        split_due: whether the open part of a ring should end.
        to_disk: whether the next part must be on disk, since an event needs it.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        say: LogLine,
        *,
        ring: RingSettings | None = None,
        floor_bytes: float = 0.0,
        claimed: Callable[[Path], object] = lambda _: None,
    ) -> None:
        self.split_due = self.to_disk = False
        self._storage, self._clock, self._say = storage, clock, say
        self._ring, self._floor_bytes = ring, floor_bytes
        self._claimed = claimed
        self._live: Live | None = None
        self._offset_ns: int | None = None
        self._asked: queue.SimpleQueue[tuple[KeptEvent, Answer]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Answer, KeptEvent | RecorderError]] = (
            queue.SimpleQueue()
        )
        self._parts: dict[Path, Part] = {}
        self._is_read = False
        self._scan_at_ns = 0
        self._all: dict[str, KeptEvent] = {}
        self._events: dict[str, KeptEvent] = {}  # the open ones
        self._facts: dict[Path, PartFacts] = {}
        self._stored: dict[str, set[Path]] = {}  # by event id, the parts that store the event
        self._logged: set[str] = set()
        self._shown: Mapping[str, Any] = {"open": [], "ring": None}
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    # The daemon's thread

    def turn(self, live: Live | None, usable: bool = True) -> None:
        """Take the open part, and give the pending answers.

        Args:
            live: the open part; None without one.
            usable: whether the root exists and is locked.
        """
        if live is not None:
            self._offset_ns = live.offset_ns
        changed = (live and live.path) != (self._live and self._live.path)
        self._live = live
        if changed:
            self._wake.set()
        while not self._answers.empty():
            answer, result = self._answers.get()
            answer(result)
        if usable and self._thread is None:
            thread = threading.Thread(target=self._run, name="ring", daemon=True)
            try:
                start_thread(thread)
            except OSError as error:  # no memory: retried in the next turn
                self._log_once(f"events: {error.strerror}", ERROR)
            else:
                self._thread = thread

    def now_ns(self) -> int:
        """Return the time, epoch ns on the clock of the current or latest recording."""
        if self._offset_ns is None:
            return self._clock.realtime_ns()
        return self._clock.monotonic_ns() + self._offset_ns

    def holds(self, event: KeptEvent) -> bool:
        """Return whether a known part may hold samples of an event's window."""
        return any(touches(part, event) for part in self._known)

    def keep(self, event: KeptEvent, answer: Answer) -> None:
        """Keep an event; `turn` calls `answer` once all its existing parts are marked as kept."""
        self._asked.put((event, answer))
        self._wake.set()

    def status(self) -> Mapping[str, Any]:
        """Return ``{open: [ids], ring: {parts, seconds, bytes} | None}``."""
        return self._shown

    def close(self) -> None:
        """Stop the thread; unfinished events stay open for the next daemon."""
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        while not self._asked.empty():
            _, answer = self._asked.get()
            answer(StorageError("the daemon is ending; the event is not kept"))
        self.turn(self._live, usable=False)

    # The ring manager's thread

    def _run(self) -> None:
        while not self._ended:
            self._wake.clear()
            try:
                self.step()
            except (OSError, RecorderError) as error:  # the disk fails
                self._log_once(f"events: {error}", ERROR)
            self._wake.wait(STEP_S)

    def step(self) -> None:
        """Run one step of the manager's work; call this in its thread only, or without the thread.

        Raises:
            OSError, RecorderError: the root cannot be read; the next step retries.
        """
        live, now_ns = self._live, self.now_ns()
        self._read_events()
        asked = []
        while not self._asked.empty():
            event, answer = self._asked.get()
            asked.append((self._take(event), answer))
        try:
            self._find_parts(live)
        finally:
            results = {e.id: self._claim(e) for e in list(self._events.values())}
            for event, answer in asked:
                problem = results.get(event.id)
                kept = self._events.get(event.id, event)
                self._answers.put((answer, kept if problem is None else problem))
        for event in list(self._events.values()):
            if results[event.id] is None and is_over(event, self._known, now_ns):
                self._settle(event)
        self.to_disk = any(is_awaited(event, now_ns) for event in self._events.values())
        self._delete(live, now_ns)
        self._show(now_ns)
        part = None if live is None else self._parts.get(live.path)
        self.split_due = (
            self._ring is not None
            and part is not None
            and split_due(self._events.values(), part, now_ns)
        )

    @property
    def _known(self) -> list[Part]:
        return list(self._parts.values())

    def _read_events(self) -> None:
        """Read the events of earlier daemons once; continue the open ones."""
        if self._is_read:
            return
        for event in self._storage.events(lambda text: self._log_once(f"events: {text}", ERROR)):
            self._all[event.id] = event
            if event.state == OPEN:
                self._events[event.id] = event
        self._is_read = True

    def _take(self, event: KeptEvent) -> KeptEvent:
        """Register an event; return the known one for the same trigger and moment."""
        if event.trigger is not None:
            for known in self._all.values():
                if (known.trigger, known.t_ns) == (event.trigger, event.t_ns):
                    return known
        number, name = 2, event.id
        while event.id in self._all:
            event = msgspec.structs.replace(event, id=f"{name}_{number}")
            number += 1
        self._events[event.id] = self._all[event.id] = event
        return event

    def _find_parts(self, live: Live | None) -> None:
        """Update the parts that may change; search for new parts from time to time."""
        now_ns = self._clock.monotonic_ns()
        new = live is not None and live.path not in self._parts
        if new or now_ns >= self._scan_at_ns:
            paths = self._storage.find()
            self._scan_at_ns = now_ns + round(SCAN_S * 1e9)
            self._parts = {path: part for path, part in self._parts.items() if path in paths}
        else:
            paths = {path for path, part in self._parts.items() if self._may_change(part)}
        for path in paths:
            known, is_live = self._parts.get(path), live is not None and path == live.path
            if known is None or self._may_change(known):
                known = self._storage.look(path, known, live=is_live)
            if known is not None:
                self._parts[path] = known
            else:
                self._parts.pop(path, None)

    def _may_change(self, part: Part) -> bool:
        return not part.closed or part.of_ring

    def _claim(self, event: KeptEvent) -> RecorderError | None:
        """Store an event in each part of its window; return the error, or None."""
        touched = sorted(
            (part for part in self._known if touches(part, event)), key=lambda p: p.start_ns
        )
        stored = self._stored.setdefault(event.id, set())
        names = tuple(dict.fromkeys([*event.parts, *(part.path.name for part in touched)]))
        if names != event.parts:
            event = self._events[event.id] = msgspec.structs.replace(event, parts=names)
        try:
            durable = any(not part.volatile for part in touched) or bool(stored)
            if not durable and self._storage.root not in stored:
                self._storage.store_apart(event)
                stored.add(self._storage.root)
            for part in touched:
                if part.path not in stored:
                    self._storage.store(part.path, event)
                    stored.add(part.path)
                    self._parts[part.path] = replace(part, kept=True)
                    if not part.kept and not part.volatile:
                        self._claimed(part.path)
                if part.volatile and part.closed:
                    self._rescue(part.path)
        except OSError as error:
            text = f"event {event.id}: cannot be stored: {error.strerror or error}"
            self._log_once(text, ERROR)
            return StorageError(text)
        except FormatError as error:
            self._log_once(str(error), ERROR)
            return error
        return None

    def _rescue(self, path: Path) -> None:
        """Move a kept part from RAM to the disk."""
        target = self._storage.rescue(path)
        self._parts.pop(path, None)
        if (part := self._storage.look(target, None, live=False)) is not None:
            self._parts[target] = part
        for stored in self._stored.values():
            if path in stored:
                stored.add(target)
        self._claimed(target)
        self._say(f"{target.name}: is on disk now", INFO)

    def _settle(self, event: KeptEvent) -> None:
        """Close an event whose window is durable: find the missing intervals, and store them."""
        facts: list[PartFacts] = []
        damaged: list[tuple[int, int]] = []
        touched = sorted((p for p in self._known if touches(p, event)), key=lambda p: p.start_ns)
        for part in touched:
            try:
                facts.append(self._read_facts(part.path))
            except (RecorderError, OSError) as error:
                self._log_once(f"event {event.id}: {error}", ERROR)
                damaged.append((part.start_ns, part.end_ns or event.until_ns))
        if facts and needs_following(event, facts[-1]):
            after = [part for part in self._known if part.previous == facts[-1].name]
            if after and after[0] not in touched:
                if not after[0].closed:
                    return
                with suppress(RecorderError, OSError):
                    facts.append(self._read_facts(after[0].path))
        claimed = set(event.parts) - {part.path.name for part in touched}
        gone = "power" if claimed and self._ring and self._ring.ram_folder else "ring"
        otherwise = gone if claimed else self._otherwise(event)
        missing = shortfalls(event, facts, damaged, otherwise, gone)
        settled = msgspec.structs.replace(
            event,
            state=SHORT if missing else KEPT,
            parts=tuple(part.path.name for part in touched),
            shortfalls=missing,
        )
        try:
            for part in touched:
                self._storage.store(part.path, settled)
            self._storage.store_apart(settled, remove=bool(touched))
        except (OSError, FormatError) as error:
            self._log_once(f"event {event.id}: cannot be stored: {error}", ERROR)
            return
        self._all[event.id] = settled
        del self._events[event.id]
        if not self._events:
            self._facts.clear()
        self._stored.pop(event.id, None)
        text = f"event {event.id}: {settled.state}, in {', '.join(settled.parts) or 'no session'}"
        self._say(text, INFO)

    def _read_facts(self, path: Path) -> PartFacts:
        """Return the content of a closed part, cached while events are open."""
        if path not in self._facts:
            self._facts[path] = self._storage.facts(path)
        return self._facts[path]

    def _otherwise(self, event: KeptEvent) -> str:
        """Return the cause if no part holds any of an event's window."""
        starts = [part.start_ns for part in self._known]
        return "start" if all(start > event.until_ns for start in starts) else "stop"

    def _delete(self, live: Live | None, now_ns: int) -> None:
        if self._ring is None:
            return
        rate = 0.0 if live is None else live.bytes_per_s
        if self._ring.ram_folder is None:
            reserved = self._floor_bytes + rate * _SECONDS_FREE
        else:
            reserved = rate * 2 * self._ring.part_seconds
        missing = reserved - self._storage.free_bytes()
        gone = droppable(
            self._known,
            list(self._events.values()),
            now_ns,
            seconds=self._ring.seconds,
            most_bytes=self._ring.gb * 1e9,
            missing_bytes=missing,
        )
        for part in gone:
            try:
                if self._storage.delete(part.path):
                    del self._parts[part.path]
            except RecorderError as error:
                self._log_once(f"ring: {error}", ERROR)

    def _show(self, now_ns: int) -> None:
        ring = None
        if self._ring is not None:
            parts = [part for part in self._known if part.of_ring and not part.kept]
            oldest_ns = min((part.start_ns for part in parts), default=now_ns)
            ring = {
                "parts": len(parts),
                "seconds": round(max(0, now_ns - oldest_ns) / 1e9, 1),
                "bytes": sum(part.bytes for part in parts),
            }
        self._shown = {"open": sorted(self._events), "ring": ring}

    def _log_once(self, text: str, level: str) -> None:
        """Log a problem once."""
        if text not in self._logged:
            self._logged.add(text)
            self._say(text, level)
