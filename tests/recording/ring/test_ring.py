"""The manager on real folders: claims, answers, what is deleted, what goes on after a restart."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.bus.control.requests import Mark
from recorder.common.errors import RecorderError, StorageError
from recorder.common.files import PosixDisk
from recorder.config.settings import RingSettings
from recorder.recording.postprocessing.retention import candidates, is_kept
from recorder.recording.postprocessing.steps import find_due
from recorder.recording.ring.ring import Live, RingManager, event_id, new_event
from recorder.recording.ring.storage import Storage
from recorder.session.event_clips import KeptEvent, read_events, read_index
from recorder.session.layout import private
from recorder.session.lock import lock_session
from tests.manual_clock import ManualClock
from tests.recording.ring.recording_model import silent
from tests.session.build import START_NS, imu_session, rewrite_header

S = 1_000_000_000


class Vehicle:
    """A ring_manager and sessions of a ring, one second each, one after the other."""

    def __init__(self, root: Path, ram: Path | None = None) -> None:
        self.root = root
        (root / ".recorder").mkdir(parents=True)
        self.clock = ManualClock(1000 * S)
        self.answers: list[KeptEvent | RecorderError] = []
        self.claimed: list[str] = []
        medium = "disk" if ram is None else "ram"
        self.ring = RingSettings(seconds=60.0, gb=1.0, medium=medium, folder=ram or root)
        self.ram = ram
        self.restart()

    def restart(self) -> None:
        self.ring_manager = RingManager(
            Storage(self.root, self.ram), self.clock, silent, ring=self.ring,
            claimed=lambda path: self.claimed.append(path.name),
        )  # fmt: skip

    def part(self, name: str, folder: Path | None = None, state: str = "clean") -> Path:
        path = imu_session((folder or self.root) / name).close(state)
        rewrite_header(path, ring=True)
        return path

    def step(self, after_s: float, live: Live | None = None) -> None:
        """So many seconds after the start of the parts."""
        self.clock.advance(after_s - self.now_s)
        self.ring_manager.turn(live, usable=False)
        self.ring_manager.step()
        self.ring_manager.turn(live, usable=False)

    @property
    def now_s(self) -> float:
        return (self.ring_manager.now_ns() - START_NS) / 1e9

    def ask(self, at_s: float, before: float, after: float, trigger: str | None = None) -> None:
        t_ns = START_NS + round(at_s * S)
        mark = Mark("hit", keep=(before, after), t_ns=t_ns, trigger=trigger)
        self.ring_manager.keep(new_event(mark), self.answers.append)


def on_time(made: Vehicle, monkeypatch: pytest.MonkeyPatch) -> Vehicle:
    monkeypatch.setattr(made.clock, "realtime_ns", lambda: made.clock.monotonic_ns() + OFFSET_NS)
    return made


@pytest.fixture
def vehicle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vehicle:
    return on_time(Vehicle(tmp_path / "root"), monkeypatch)


@pytest.fixture
def ring_in_ram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vehicle:
    return on_time(Vehicle(tmp_path / "root", tmp_path / "ram"), monkeypatch)


OFFSET_NS = START_NS - 1000 * S


def test_ids_name_moment_and_cause() -> None:
    assert event_id(START_NS, "Pot hole?") == "20240601T100000.123Z_pot_hole"
    assert event_id(START_NS, "\u00fc") == "20240601T100000.123Z_event"
    assert event_id(START_NS, "x" * 99).endswith("Z_" + "x" * 40)


def test_an_event_of_closed_parts_is_kept(vehicle: Vehicle) -> None:
    path = vehicle.part("p1")
    vehicle.ask(0.5, 0.2, 0.2)
    vehicle.step(1.0)
    (answer,) = vehicle.answers
    assert isinstance(answer, KeptEvent) and (answer.state, answer.parts) == ("open", ("p1",))
    assert read_events(path) == [answer] and vehicle.claimed == ["p1"]
    assert vehicle.ring_manager.status()["open"] == [answer.id]
    vehicle.step(5.0)
    (kept,) = read_index(vehicle.root)
    assert (kept.state, kept.shortfalls) == ("kept", ())
    assert vehicle.ring_manager.status() == {
        "open": [], "ring": {"parts": 0, "seconds": 0.0, "bytes": 0},
    }  # fmt: skip
    vehicle.step(1000.0)
    assert path.exists()


def test_a_trigger_that_repeats_itself_asks_for_one_event(vehicle: Vehicle) -> None:
    vehicle.part("p1")
    for _ in range(2):
        vehicle.ask(0.5, 0.1, 0.1, trigger="brake")
        vehicle.step(max(1.0, vehicle.now_s))
    vehicle.step(5.0)
    vehicle.restart()
    vehicle.ask(0.5, 0.1, 0.1, trigger="brake")
    vehicle.step(6.0)
    (event,) = read_index(vehicle.root)
    assert len(vehicle.answers) == 3
    assert {a.id for a in vehicle.answers if isinstance(a, KeptEvent)} == {event.id}
    vehicle.ask(0.5, 0.1, 0.1)  # a person's marks are two
    vehicle.ask(0.5, 0.1, 0.1)
    vehicle.step(7.0)
    assert [e.id[-5:] for e in read_index(vehicle.root)] == ["brake", "Z_hit", "hit_2"]


def test_events_of_one_part_do_not_replace_each_other(vehicle: Vehicle) -> None:
    path = vehicle.part("p1")
    for at_s in (0.2, 0.4, 0.6):
        vehicle.ask(at_s, 0.1, 0.1)
    vehicle.step(1.0)
    assert len(read_events(path)) == 3
    vehicle.step(5.0)
    assert [event.state for event in read_events(path)] == ["kept"] * 3


def test_an_event_without_a_part_is_stored_and_settled(vehicle: Vehicle) -> None:
    vehicle.ask(0.5, 0.1, 0.1)
    vehicle.step(0.7)
    (stored,) = read_index(vehicle.root)
    assert (stored.state, stored.parts) == ("open", ())
    vehicle.step(5.0)
    (settled,) = read_index(vehicle.root)
    assert settled.state == "short"
    assert [s.cause for s in settled.shortfalls] == ["start"]


def test_a_part_that_appears_later_takes_the_event_over(vehicle: Vehicle) -> None:
    vehicle.ask(0.5, 0.1, 0.1)
    vehicle.step(0.6)
    path = vehicle.part("p1")
    vehicle.step(40.0)  # it looks for new parts now and then
    (settled,) = read_index(vehicle.root)
    assert (settled.state, settled.parts) == ("kept", ("p1",))
    assert read_events(path) == [settled]
    assert (vehicle.root / ".recorder/events.jsonl").read_bytes() == b""


def test_what_is_open_goes_on_after_a_restart(vehicle: Vehicle) -> None:
    vehicle.part("p1")
    vehicle.ask(0.5, 0.1, 3.0)
    vehicle.step(1.0)
    vehicle.restart()
    vehicle.step(2.0)
    assert len(vehicle.ring_manager.status()["open"]) == 1
    vehicle.step(6.0)
    (settled,) = read_index(vehicle.root)
    assert [s.cause for s in settled.shortfalls] == ["stop"]


def test_what_nothing_asks_for_goes(vehicle: Vehicle) -> None:
    path, kept = vehicle.part("p1"), vehicle.part("p2")
    private(kept, "keep").write_text('{"kept": true}')  # as a person does
    vehicle.step(60.0)
    assert path.exists()
    vehicle.step(70.0)
    assert not path.exists() and kept.exists()


def test_a_disk_that_refuses_is_no_answer(
    vehicle: Vehicle, monkeypatch: pytest.MonkeyPatch
) -> None:
    vehicle.part("p1")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(PosixDisk, "write_file", refuse)
        vehicle.ask(0.5, 0.1, 0.1)
        vehicle.step(1.0)
    (answer,) = vehicle.answers
    assert isinstance(answer, StorageError) and "No space left" in str(answer)
    vehicle.step(5.0)  # it is tried again
    assert [event.state for event in read_index(vehicle.root)] == ["kept"]


def test_a_part_that_cannot_be_read_is_listed(vehicle: Vehicle) -> None:
    path = vehicle.part("p1")
    (path / "imu/meta.json").write_text("{")
    vehicle.ask(0.5, 0.1, 0.1)
    vehicle.step(5.0)
    (event,) = read_index(vehicle.root)
    assert event.state == "short" and event.parts == ("p1",)
    assert [(s.stream, s.cause) for s in event.shortfalls] == [("imu", "damaged")]


def test_parts_of_a_ring_get_no_work_and_are_not_retentions(vehicle: Vehicle) -> None:
    path = vehicle.part("p1")
    due = find_due(path, frozenset())
    assert due is not None and not due.steps
    never: Callable[[Path], bool] = lambda _: False  # noqa: E731
    assert [c.path for c in candidates(vehicle.root, None, never)] == [path]
    assert candidates(vehicle.root, None, never, ring=True) == []
    vehicle.ask(0.5, 0.1, 0.1)
    vehicle.step(1.0)
    assert is_kept(path)
    due = find_due(path, frozenset())
    assert due is not None and [step.name for step in due.steps] == ["checksums"]
    (candidate,) = candidates(vehicle.root, None, never, ring=True)
    assert not candidate.deletable


def test_what_is_in_ram_is_copied(
    ring_in_ram: Vehicle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ring_in_ram.part("p1", tmp_path / "ram")
    before = {f.relative_to(path): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    synced: list[Path] = []
    monkeypatch.setattr("recorder.recording.ring.storage._sync", synced.append)
    ring_in_ram.ask(0.5, 0.1, 0.1)
    ring_in_ram.step(1.0)
    copy = ring_in_ram.root / "p1"
    after = {f.relative_to(copy): f.read_bytes() for f in copy.rglob("*") if f.is_file()}
    keep = Path("_recorder/keep")
    assert {k: v for k, v in after.items() if k != keep} == before
    assert {path.name for path in synced} == {path.name for path in after}
    assert not path.exists() and ring_in_ram.claimed == ["p1"]
    assert [e.state for e in read_events(copy)] == ["open"]
    ring_in_ram.step(5.0)
    assert [event.state for event in read_index(ring_in_ram.root)] == ["kept"]


def test_ram_that_is_gone_is_a_loss_of_power(ring_in_ram: Vehicle, tmp_path: Path) -> None:
    path = ring_in_ram.part("p1", tmp_path / "ram", "recording")
    live = Live(path, START_NS, OFFSET_NS)
    ring_in_ram.ask(0.5, 0.1, 0.1)
    ring_in_ram.step(1.0, live)
    assert ring_in_ram.ring_manager.split_due and ring_in_ram.ring_manager.to_disk
    path.rename(tmp_path / "gone")
    ring_in_ram.restart()
    ring_in_ram.step(5.0)
    (event,) = read_index(ring_in_ram.root)
    assert [s.cause for s in event.shortfalls] == ["power"]


@pytest.mark.parametrize(("medium", "reserved"), [("ram", 20e6), ("disk", 120e6)])
def test_a_ring_leaves_room_for_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, medium: str, reserved: float
) -> None:
    """Two parts of 10 s of 1 MB/s in a tmpfs, two minutes of it on a disk."""
    ram = tmp_path / "ram" if medium == "ram" else None
    vehicle = Vehicle(tmp_path / "root", ram)
    path = vehicle.part("p1", ram)
    live = Live(vehicle.part("p2", ram, "recording"), START_NS + S, OFFSET_NS, 1e6)
    vehicle.ring_manager.turn(live, usable=False)
    for free, stays in ((reserved + 1, True), (reserved - 1, False)):
        monkeypatch.setattr(Storage, "free_bytes", lambda _, free=free: round(free))
        vehicle.step(3.0, live)
        assert path.exists() == stays


def test_a_part_in_ram_whose_writer_died_is_copied(ring_in_ram: Vehicle, tmp_path: Path) -> None:
    path = ring_in_ram.part("p1", tmp_path / "ram", "recording")
    ring_in_ram.ask(0.5, 0.1, 0.1)
    ring_in_ram.step(1.0)
    assert not path.exists() and (ring_in_ram.root / "p1").exists()
    assert ring_in_ram.ring_manager.status()["open"]  # recovery comes first


def test_a_part_that_a_crash_left_open_is_of_no_later_event(vehicle: Vehicle) -> None:
    """Its end is not known before recovery, which may have to wait for other work."""
    path = vehicle.part("p1", state="recording")
    for file in path.rglob("*"):  # written until 1.5 s after the start
        os.utime(file, ns=(0, START_NS + 3 * S // 2))
    vehicle.ask(199.0, 1.0, 0.5)
    vehicle.step(200.0)
    (answer,) = vehicle.answers
    assert isinstance(answer, KeptEvent) and answer.parts == ()
    assert not is_kept(path) and vehicle.claimed == []
    holder = lock_session(path)  # recovery works on it, and writes
    private(path, "commits").touch()
    vehicle.ask(201.0, 1.0, 0.5)
    vehicle.step(202.0)
    assert [a.parts for a in vehicle.answers if isinstance(a, KeptEvent)] == [(), ()]
    os.close(holder)
    vehicle.ask(4.0, 2.0, 0.5)  # what was in flight at the crash may be in the window
    vehicle.step(203.0)
    assert [a.parts for a in vehicle.answers if isinstance(a, KeptEvent)] == [(), (), ("p1",)]
    assert vehicle.claimed == ["p1"]
    private(vehicle.part("p2", state="sealed"), "commits").write_bytes(b"damaged")
    vehicle.ask(204.0, 1.0, 0.5)  # where the end cannot be known, nothing is left out
    vehicle.step(240.0)
    assert vehicle.claimed == ["p1", "p2"]


def test_a_part_that_another_process_records_may_hold_every_later_event(vehicle: Vehicle) -> None:
    path = vehicle.part("p1", state="recording")
    for file in path.rglob("*"):
        os.utime(file, ns=(0, START_NS))
    holder = lock_session(path)
    vehicle.ask(199.0, 1.0, 0.5)
    vehicle.step(200.0)
    assert vehicle.claimed == ["p1"]
    os.close(holder)
