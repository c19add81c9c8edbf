"""A recording in memory, with all that goes wrong with one, below the real `RingManager`.

The truth is the list of samples that the sensors gave.  A sample is stored in the part that is open
when it arrives, which is later than its stamp.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from recorder.common.errors import RecorderError, StorageError
from recorder.config.settings import RingSettings
from recorder.recording.ring.event_window import PartFacts, StreamFacts
from recorder.recording.ring.retention_policy import Part
from recorder.recording.ring.ring import Live, RingManager
from recorder.recording.ring.storage import Storage
from recorder.session.event_clips import OPEN, KeptEvent
from tests.manual_clock import ManualClock

SECOND = 1_000_000_000
TICK_S = 1.0
DURABLE_NS = SECOND // 5
ROOT, RAM = Path("/root"), Path("/ram")


def silent(text: str, /, level: str = "", **fields: object) -> None:
    """Log nothing."""


class KilledError(Exception):
    """The daemon died here."""


@dataclass
class Sensor:
    """A stream: a sample every period, which arrives later."""

    name: str
    period_ns: int
    latency_ns: int
    next_ns: int
    flying: list[tuple[int, int]] = field(default_factory=list)  # arrival, stamp


@dataclass
class Recorded:
    """A part as it is on disk."""

    start_ns: int
    previous: str | None
    end_ns: int | None = None
    ending: str = "ring"  # a split
    samples: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # stamp, arrival
    losses: dict[str, list[tuple[int | None, int | None, str]]] = field(default_factory=dict)
    events: dict[str, KeptEvent] = field(default_factory=dict)
    closes_at_ns: int | None = None


class Disk(Storage):
    """The storage of the ring manager.

    Attributes:
        parts: by folder.
        apart: events that no part holds.
        fails: called before each write; raises what the disk does.
    """

    def __init__(self) -> None:
        super().__init__(ROOT)
        self.parts: dict[Path, Recorded] = {}
        self.apart: dict[str, KeptEvent] = {}
        self.streams: list[str] = []
        self.fails: Callable[[], None] = lambda: None
        self.free = 1e12

    def size(self, path: Path) -> int:
        return sum(map(len, self.parts[path].samples.values())) * 1_000_000

    def find(self) -> set[Path]:
        return set(self.parts)

    def look(self, path: Path, known: Part | None, *, live: bool) -> Part | None:
        part = self.parts.get(path)
        if part is None:
            return None
        end_ns = None if live else part.end_ns
        kept = bool(part.events)
        size, volatile = self.size(path), path.parent == RAM
        return Part(path, part.start_ns, end_ns, size, True, kept, part.previous, volatile)

    def facts(self, path: Path) -> PartFacts:
        part = self.parts[path]
        assert part.end_ns is not None
        streams = {}
        for name in self.streams:
            samples = part.samples.get(name, [])
            last_ns = samples[-1][0] if samples else None
            streams[name] = StreamFacts(last_ns, tuple(part.losses.get(name, ())))
        return PartFacts(path.name, part.start_ns, part.end_ns, part.previous, part.ending, streams)

    def events(self, failed: Callable[[str], None]) -> list[KeptEvent]:
        found: dict[str, KeptEvent] = dict(self.apart)
        for part in self.parts.values():
            for event in part.events.values():
                known = found.get(event.id)
                if known is None or known.state == OPEN:
                    found[event.id] = event
        return list(found.values())

    def store(self, path: Path, event: KeptEvent) -> None:
        self.fails()
        self.parts[path].events[event.id] = event
        self.fails()

    def store_apart(self, event: KeptEvent, *, remove: bool = False) -> None:
        self.fails()
        self.apart.pop(event.id, None)
        if not remove:
            self.apart[event.id] = event

    def rescue(self, path: Path) -> Path:
        self.fails()
        target = ROOT / path.name
        self.parts[target] = self.parts.pop(path)
        self.fails()
        return target

    def delete(self, path: Path) -> bool:
        assert not self.parts[path].events and self.parts[path].end_ns is not None
        self.free += self.size(path)
        del self.parts[path]
        return True

    def free_bytes(self) -> int:
        return int(self.free)


class Recording:
    """One seeded run: sensors, a recorder, a ring_manager, and what befalls them.

    Attributes:
        disk: what is stored.
        truth: stamps of all samples, by stream.
        kept: by id, the events whose keeping was acknowledged.
        largest: bytes of the largest part.
    """

    def __init__(self, seed: int, ring: RingSettings | None = None) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = ManualClock(1_000 * SECOND)
        self.offset_ns = 1_700_000_000 * SECOND
        self.ring = ring or RingSettings(
            seconds=rng.choice([5.0, 10.0, 20.0]),
            gb=rng.choice([0.05, 0.3, 10.0]),
            part=rng.choice([5.0, 8.0]),
            medium=rng.choice(["disk", "disk", "ram"]),
        )
        self.disk = Disk()
        self.sensors = [
            Sensor(
                f"s{k}",
                rng.choice([SECOND // 4, SECOND // 2, 3 * SECOND]),
                rng.choice([0, SECOND // 10, 3 * SECOND // 2]),
                self.now_ns() + rng.randrange(SECOND),
            )
            for k in range(rng.randint(1, 3))
        ]
        self.disk.streams = [sensor.name for sensor in self.sensors]
        self.truth: dict[str, list[int]] = {sensor.name: [] for sensor in self.sensors}
        self.kept: dict[str, KeptEvent] = {}
        self.largest = 0
        self.number = 0
        self.open: Path | None = None
        self.starts_at_ns: int | None = self.now_ns()
        self.lossy: dict[str, int] = {}  # streams that lose now: stamp of the last that is stored
        self.deaf_until_ns = 0
        self._ends: dict[Path, int] = {}
        self.ring_manager = self._new_manager()

    def now_ns(self) -> int:
        return self.clock.monotonic_ns() + self.offset_ns

    def _new_manager(self) -> RingManager:
        return RingManager(self.disk, self.clock, silent, ring=self.ring)

    def run(self, ticks: int) -> None:
        """Let time pass, with random events and faults, and then until all is settled."""
        for _ in range(ticks):
            self._befall()
            self.tick()
        self.disk.fails = lambda: None
        self.disk.free = 1e12
        for _ in range(200):
            self.tick()
            if all(e.state != OPEN for e in self.disk.events(lambda _: None)):
                return
        raise AssertionError("an event stays open")

    def tick(self) -> None:
        self.clock.advance(TICK_S)
        now_ns = self.now_ns()
        if self.open is None and self.starts_at_ns is not None and now_ns >= self.starts_at_ns:
            self._begin(None)
        self._sample(now_ns)
        for path, part in self.disk.parts.items():
            if part.closes_at_ns is not None and now_ns >= part.closes_at_ns:
                part.closes_at_ns = None
                part.end_ns = max(part.start_ns, self._ends[path])
        try:
            self._turn()
            self.ring_manager.step()
            self._turn()
        except KilledError:
            self.kill()
        except (OSError, RecorderError):
            pass
        if self.open is not None:
            part = self.disk.parts[self.open]
            long = now_ns - part.start_ns >= self.ring.part_seconds * SECOND
            if long or (self.ring_manager.split_due and now_ns - part.start_ns >= 5 * SECOND):
                self._end("ring", now_ns)
                self._begin(f"p{self.number}")
        ring = [p for p, part in self.disk.parts.items() if not part.events]
        self.largest = max([self.largest, *map(self.disk.size, self.disk.parts)])
        self.held = sum(map(self.disk.size, ring))

    def _turn(self) -> None:
        live = None
        if self.open is not None:
            live = Live(self.open, self.disk.parts[self.open].start_ns, self.offset_ns, 0.0)
        self.ring_manager.turn(live, usable=False)

    def _begin(self, previous: str | None) -> None:
        self.number += 1
        in_ram = self.ring.medium == "ram" and not self.ring_manager.to_disk
        self.open = (RAM if in_ram else ROOT) / f"p{self.number}"
        self.disk.parts[self.open] = Recorded(self.now_ns(), previous)
        self.starts_at_ns = None

    def _end(self, ending: str, end_ns: int) -> None:
        """Close the open part; a slow disk takes its time."""
        assert self.open is not None
        part = self.disk.parts[self.open]
        part.ending = ending
        self._ends[self.open] = end_ns
        part.closes_at_ns = self.now_ns() + self.rng.choice([0, 0, SECOND, 6 * SECOND])
        self.open = None

    def _sample(self, now_ns: int) -> None:
        part = None if self.open is None else self.disk.parts[self.open]
        for sensor in self.sensors:
            while sensor.next_ns <= now_ns:
                sensor.flying.append((sensor.next_ns + sensor.latency_ns, sensor.next_ns))
                self.truth[sensor.name].append(sensor.next_ns)
                sensor.next_ns += sensor.period_ns
            arrived = [item for item in sensor.flying if item[0] <= now_ns]
            sensor.flying = sensor.flying[len(arrived) :]
            for arrival_ns, t_ns in arrived:
                if part is None or (t_ns < part.start_ns and part.previous is None):
                    continue  # it was taken before the recording began
                if now_ns < self.deaf_until_ns:
                    self.lossy.setdefault(sensor.name, 0)
                    continue
                samples = part.samples.setdefault(sensor.name, [])
                if sensor.name in self.lossy:
                    del self.lossy[sensor.name]
                    low = samples[-1][0] if samples else None
                    part.losses.setdefault(sensor.name, []).append((low, t_ns, "lost"))
                samples.append((t_ns, arrival_ns))

    def _befall(self) -> None:
        rng, now_ns = self.rng, self.now_ns()
        what = rng.random()
        if what < 0.12:
            self.ask()
        elif what < 0.14:
            self.deaf_until_ns = now_ns + rng.randrange(3 * SECOND)
        elif what < 0.155:
            self.kill(power=rng.random() < 0.5)
        elif what < 0.17 and self.open is not None:
            self.stop("stop" if rng.random() < 0.5 else "disk")
        elif what < 0.19:
            self.disk.fails = rng.choice([self._full, self._dies, lambda: None])
        elif what < 0.21:
            self.disk.free = rng.choice([-1e9, 1e12])
        elif what < 0.25:
            self.disk.fails = lambda: None

    def _full(self) -> None:
        raise OSError(28, "No space left on device")

    def _dies(self) -> None:
        if self.rng.random() < 0.3:
            raise KilledError

    def ask(self) -> None:
        """Ask for an event of now, or of some seconds ago."""
        rng = self.rng
        t_ns = self.now_ns() - rng.choice([0, 0, SECOND, 4 * SECOND])
        before, after = rng.choice([0, 2, 5, 10, 30]), rng.choice([0, 1, 5, 12])
        name = f"e{len(self.kept)}-{t_ns}"
        event = KeptEvent(
            name, name, None, t_ns, t_ns - before * SECOND, t_ns + after * SECOND, OPEN
        )

        def answered(result: KeptEvent | RecorderError) -> None:
            if isinstance(result, KeptEvent):
                self.kept[result.id] = result
            else:
                assert isinstance(result, StorageError)

        if self.open is not None or self.starts_at_ns is not None or self.ring_manager.holds(event):
            self.ring_manager.keep(event, answered)

    def stop(self, ending: str) -> None:
        """Stop: what is under way arrives first, or is lost at the end with a full disk."""
        assert self.open is not None
        part, now_ns = self.disk.parts[self.open], self.now_ns()
        for sensor in self.sensors:
            samples = part.samples.setdefault(sensor.name, [])
            if sensor.name in self.lossy:
                del self.lossy[sensor.name]
                low = samples[-1][0] if samples else None
                part.losses.setdefault(sensor.name, []).append((low, None, "lost"))
            elif ending == "stop":
                begin_ns = 0 if part.previous is not None else part.start_ns
                samples += [(t, a) for a, t in sensor.flying if t >= begin_ns]
            sensor.flying.clear()
        self._end(ending, now_ns)
        self.starts_at_ns = now_ns + self.rng.choice([1, 5, 20]) * SECOND

    def kill(self, *, power: bool = False) -> None:
        """Kill the daemon: what is not durable is lost, and recovery closes the part later.

        Args:
            power: cut the power: what is in RAM is lost, too.
        """
        now_ns = self.now_ns()
        if self.open is not None:
            part = self.disk.parts[self.open]
            for sensor in self.sensors:
                samples = part.samples.setdefault(sensor.name, [])
                samples[:] = [s for s in samples if s[1] + DURABLE_NS <= now_ns]
                losses = part.losses.get(sensor.name, [])
                last_ns = samples[-1][0] if samples else part.start_ns
                part.losses[sensor.name] = [
                    (low, high, cause) for low, high, cause in losses if (high or 0) <= last_ns
                ]
            ends = [s[-1][0] for s in part.samples.values() if s]
            self._end("power", max([part.start_ns, *ends]))
        self.lossy.clear()
        for sensor in self.sensors:
            sensor.flying.clear()
        self.starts_at_ns = now_ns + self.rng.choice([1, 5, 20]) * SECOND
        if power:
            parts = self.disk.parts.items()
            self.disk.parts = {path: part for path, part in parts if path.parent != RAM}
        self.ring_manager = self._new_manager()


def replace_events(disk: Disk, change: Callable[[KeptEvent], KeptEvent]) -> None:
    """Change all stored events: for tests of the tests."""
    for part in disk.parts.values():
        part.events = {name: change(event) for name, event in part.events.items()}


def without_shortfalls(event: KeptEvent) -> KeptEvent:
    return msgspec.structs.replace(event, shortfalls=())


def assert_promise(recording: Recording) -> int:
    """Each sample in an event's window is stored, or within a listed shortfall; how many events."""
    events = {event.id: event for event in recording.disk.events(lambda _: None)}
    for name in recording.kept:
        assert name in events, f"{name}: acknowledged, and not stored"
    for event in events.values():
        stored: dict[str, set[int]] = {}
        for part in event.parts:
            assert ROOT / part in recording.disk.parts, f"{event.id}: {part} was deleted"
            for stream, samples in recording.disk.parts[ROOT / part].samples.items():
                stored.setdefault(stream, set()).update(t_ns for t_ns, _ in samples)
        for stream, times in recording.truth.items():
            for t_ns in times:
                if not event.from_ns <= t_ns <= event.until_ns or t_ns in stored.get(stream, ()):
                    continue
                assert any(
                    s.from_ns <= t_ns <= s.until_ns and s.stream in (None, stream)
                    for s in event.shortfalls
                ), f"{event.id}: {stream} at {t_ns} is neither stored nor listed"
    return len(events)
