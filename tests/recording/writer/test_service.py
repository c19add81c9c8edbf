"""The writer's service on disks that fill, fail, stall and come back."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recorder.common.clock import SystemClock
from recorder.common.files import PosixDisk
from recorder.recording.writer.disk_policy import CLOSING_BYTES, Floor, read_ending
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.service import WriterService
from recorder.session.layout import CLEAN, read_session_json
from recorder.session.validation import validate
from tests.faults.numbers import stored, stream
from tests.faults.rig import Rig, Sensor, rig
from tests.faults.syscalls import FAULTS, Fails, Syscalls
from tests.manual_clock import ManualClock
from tests.support.events import events
from tests.support.waiting import wait_until

A = stream("a", 100.0, ("raw", "lzmaf"))
B = stream("b", 30.0, ("mjpg",))
BIG = stream("big", 100.0)


class SizedDisk(PosixDisk):
    """A disk that says what the test wants about its free space."""

    free = 1 << 40

    def free_bytes(self, path: Path) -> int:
        return self.free


# The floor


def test_the_floor_is_the_reserve_and_the_growth_of_a_minute() -> None:
    disk, clock = SizedDisk(), ManualClock()
    floor = Floor(disk, Path("/s"), 5_000_000_000, clock, 0)
    disk.free = 5_000_000_000 + CLOSING_BYTES
    assert floor.check(0) is None
    disk.free -= 1
    assert floor.check(0) is not None
    for second in range(1, 121):  # 10 MB/s: after the first minute always 600 MB
        clock.advance(1.0)
        size = second * 10_000_000
        growth = 10_000_000 * min(second, 60)
        disk.free = 5_000_000_000 + growth
        assert floor.check(size) is None, second
        disk.free -= 1
        assert floor.check(size) is not None, second
    for _ in range(120):  # nothing grows any more
        clock.advance(1.0)
        floor.check(1_200_000_000)
    disk.free = 5_000_000_000 + CLOSING_BYTES
    assert floor.check(1_200_000_000) is None


def test_at_the_floor_a_session_ends_clean_and_whole(root: Path) -> None:
    disk = SizedDisk()
    with rig(disk) as r:
        a, b = r.sensor(A), r.sensor(B)
        path = r.start(root, min_free_gb=1.0)
        for _ in range(50):
            assert a.publish(3) and b.publish()
        a.drain()
        disk.free = 1_000_000_000 + CLOSING_BYTES - 1
        end = r.ended()
        assert end["sealed"] is None and end["closed"] == str(path)
        assert "nearly full" in end["full"] and "1.00 GB" in end["full"]
        assert {s["ended"] for s in end["streams"].values()} == {"stopped"}
        assert r.stop()["full"] == end["full"]  # whoever asks too late hears the same
        reply = r.ask(op="start", plan={**_plan(root), "name": "t", "min_free_gb": 1e9})
        assert "storage.min_free_gb" in reply["error"] and reply["exit_code"] == 1
    assert read_session_json(path)["state"] == CLEAN
    assert [e["cause"] for e in events(path) if e["type"] == "disk"] == ["floor"]
    assert stored(path, "a") == list(range(150)) and stored(path, "b") == list(range(50))
    assert validate(path, deep=True).sound
    how = read_ending(path)
    assert how is not None and (how.closed, how.full, how.sealed) == (str(path), end["full"], None)


def _plan(root: Path) -> dict[str, Any]:
    return {"root": str(root), "name": "s", "exact_name": True, "config_text": "version: 1\n"}


# Failures


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", [0, 7, 40])
def test_a_failing_disk_seals_and_a_new_session_follows(
    root: Path, syscalls: Syscalls, fault: str, at: int
) -> None:
    with rig(PosixDisk()) as r:
        a, b = r.sensor(A), r.sensor(B)
        path = r.start(root)
        for _ in range(20):
            assert a.publish(3) and b.publish()
        a.drain()
        b.drain()
        acked = {"a": a.sent, "b": b.sent}
        syscalls.hook = fails = Fails(at, *FAULTS[fault])
        stop = threading.Event()

        def load() -> None:
            while not stop.wait(0.002):
                for sensor in (a, b):
                    if (session := sensor.link.wait_for_session(0)) is None:
                        return
                    sensor.publish(3, session)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            end = r.ended()
        finally:
            stop.set()
            thread.join()
        assert fails.failed
        assert end["sealed"].startswith(f"{path}: sealed at its last commit: ")
        assert "Traceback" not in end["sealed"]
        assert r.stop()["sealed"] == end["sealed"]
        wait_until(
            "drivers know", lambda: a.link.seam.present is None and b.link.seam.present is None
        )
        assert syscalls.retried == []

        if FAULTS[fault][1] != "once":
            reply = r.ask(op="start", plan={**_plan(root), "name": "t"})
            assert reply["exit_code"] == 1 and str(root) in reply["error"]
        syscalls.reset()  # the disk is back, and the same writer records on it again
        again = r.start(root, "u")
        for _ in range(10):
            assert a.publish(3) and b.publish()
        assert r.stop()["streams"]["a"]["samples"] == 30
    assert validate(again, deep=True).sound

    report = recover(path, PosixDisk(), SystemClock())
    assert report.action == "recovered" and report.lost
    for name, least in acked.items():
        numbers = stored(path, name)
        assert numbers == list(range(len(numbers))) and len(numbers) >= least
    checked = validate(path, deep=True)
    assert checked.sound, checked.problems


def test_a_writer_that_cannot_go_on_says_so(root: Path, syscalls: Syscalls, tmp_path: Path) -> None:
    with rig(PosixDisk()) as r:
        a = r.sensor(A)
        path = r.start(root)
        a.publish(4)
        a.drain()
    syscalls.hook = Fails(0, errno.EIO, "gone")
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    service = WriterService(run_folder, 1_000_000, SystemClock(), PosixDisk(), path)
    ended = service._status().to_wire()["ended"]
    service.quit()
    service.run()
    assert ended["closed"] == str(path)
    assert "cannot resume" in ended["sealed"] and "Input/output error" in ended["sealed"]
    syscalls.reset()
    recover(path, PosixDisk(), SystemClock())
    assert stored(path, "a") == [0, 1, 2, 3]


# Stalls


class Gate:
    """Holds the calls of one name up until it is opened."""

    def __init__(self, name: str, suffix: str = "") -> None:
        self._name, self._suffix = name, suffix
        self.open = threading.Event()
        self.reached = threading.Event()

    def __call__(self, name: str, path: str) -> None:
        if name == self._name and path.endswith(self._suffix):
            self.reached.set()
            assert self.open.wait(60)


@contextmanager
def stalling(
    root: Path, syscalls: Syscalls, call: str, buffer_bytes: int
) -> Iterator[tuple[Rig, Sensor, Path, Gate]]:
    """A session of ten samples, on a disk that stalls from the next call on."""
    with rig(PosixDisk(), buffer_bytes=buffer_bytes) as r:
        a = r.sensor(BIG)
        path = r.start(root)
        a.publish(10)
        a.drain()
        syscalls.hook = gate = Gate(call)
        yield r, a, path, gate


@pytest.mark.parametrize("call", ["fdatasync", "writev"])
def test_a_stall_within_the_buffers_loses_nothing(
    root: Path, syscalls: Syscalls, call: str
) -> None:
    with stalling(root, syscalls, call, 4_000_000) as (r, a, path, gate):
        a.publish(10)
        assert gate.reached.wait(60)
        for _ in range(100):
            assert a.publish(50)  # 12.8 kB each: 1.3 MB in all
        late = r.sensor(A)  # joins while the disk stalls
        assert late.session() is not None
        for _ in range(20):
            assert r.ask(2.0, op="status")["session"] == str(path)
            r.ask(2.0, op="event", event={"kind": "mark", "cause": "test"})
        held = r.ask(op="status")["streams"]["big"]["samples"]
        gate.open.set()
        a.drain()
        end = r.stop()
        assert held < a.sent or call == "fdatasync"
        assert end["streams"]["big"]["lost"] == {}
    assert stored(path, "big") == list(range(a.sent))
    assert validate(path, deep=True).sound


@pytest.mark.parametrize("call", ["fdatasync", "writev"])
def test_a_stall_beyond_the_buffers_refuses_the_newest_and_counts(
    root: Path, syscalls: Syscalls, call: str
) -> None:
    with stalling(root, syscalls, call, 1_000_000) as (r, a, path, gate):
        taken = [a.publish(50) for _ in range(200)]  # 2.6 MB
        assert gate.reached.wait(60)
        first = taken.index(False)
        assert first * 12_800 > 900_000 and not any(taken[first:])  # the newest, not the oldest
        assert r.ask(2.0, op="status")["session"] == str(path)
        gate.open.set()
        a.drain()
        assert a.publish(50)
        a.drain()
        end = r.stop()["streams"]["big"]
    numbers = stored(path, "big")
    kept = 10 + first * 50
    assert numbers == [*range(kept), *range(10 + 200 * 50, a.sent)]
    assert end["lost"] == {"refused": a.refused} and end["unknown_losses"] == 0
    assert len(numbers) + a.refused == a.sent
    assert validate(path, deep=True).sound
