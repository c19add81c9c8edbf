"""An error at every single write, sync and folder operation of a short session."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from recorder.bus.wire import Kind, Message
from recorder.common.errors import RecorderError, StorageError
from recorder.common.files import PosixDisk
from recorder.recording.writer.disk_policy import append_events
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import (
    CLEAN,
    EVENTS,
    PRIVATE,
    RECORDING,
    SEALED,
    SessionPlan,
    private,
    read_session_json,
)
from recorder.session.validation import validate
from tests.campaigns import Selector
from tests.faults.numbers import message, stored, stream
from tests.faults.syscalls import FAULTS, Fails, Syscalls
from tests.manual_clock import ManualClock
from tests.support.events import events

A = stream("a", 100.0, ("raw", "lzmaf"))
B = stream("b", 30.0, ("mjpg",))
OTHER_BOOT = "00000000-0000-0000-0000-000000000000"


class Scenario:
    """A short session, played in one thread: always the same calls in the same order.

    Attributes:
        path: the session; None before it is made.
        acked: by stream, how many samples have been acknowledged.
        error: what ended it; None where it was closed.
    """

    def __init__(self, root: Path) -> None:
        self.path: Path | None = None
        self.acked = {"a": 0, "b": 0}
        self.error: Exception | None = None
        self._clock = ManualClock(5_000_000_000)
        self._samples: dict[str, list[int]] = {"a": [], "b": []}  # samples before each message
        self._seq = {"a": 0, "b": 0}
        plan = SessionPlan(str(root), "s", True, "version: 1\n", record_format=["a", "b"])
        try:
            writer = SessionWriter.create(PosixDisk(), plan, self._clock)
        except RecorderError as error:
            self.error = error
            return
        self.path = writer.path
        try:
            self._play(writer)
        except (OSError, RecorderError) as error:
            self.error = error
            writer.seal(f"sealed: {error}")

    def _play(self, writer: SessionWriter) -> None:
        writer.declare(A)
        writer.declare(B)
        for turn in range(4):
            for _ in range(3):
                self._data(writer, "a", 2)
                self._data(writer, "b", 1)
            self._other(writer, "a", Kind.STATE, temperature=turn)
            self._commit(writer)
        self._other(writer, "a", Kind.END, reason="eof")
        self._other(writer, "b", Kind.END, reason="eof")
        writer.close(CLEAN)
        self.acked = dict(self._seq)

    def _data(self, writer: SessionWriter, name: str, count: int) -> None:
        first = self._seq[name]
        self._clock.advance(0.01)
        spec = A if name == "a" else B
        data = message(spec, list(range(first, first + count)), self._clock.monotonic_ns())
        self._append(writer, data)
        self._seq[name] += count

    def _other(self, writer: SessionWriter, name: str, kind: Kind, **values: object) -> None:
        self._append(
            writer, Message(kind, name, t_mono_ns=self._clock.monotonic_ns(), values=values)
        )

    def _append(self, writer: SessionWriter, item: Message) -> None:
        samples = self._samples[item.stream]
        item.epoch, item.number, item.seq = 7, len(samples), self._seq[item.stream]
        samples.append(item.seq)
        writer.append(item)

    def _commit(self, writer: SessionWriter) -> None:
        writer.commit()
        for name, (epoch, number) in writer.durable.items():
            assert epoch in (0, 7)
            samples = [*self._samples[name], self._seq[name]]
            self.acked[name] = samples[number] if epoch else 0


def calls_of_a_session(root: Path, syscalls: Syscalls) -> int:
    scenario = Scenario(root)
    assert scenario.error is None
    assert scenario.acked == {"a": 24, "b": 12}
    calls = syscalls.calls
    assert calls > 100
    shutil.rmtree(root)
    syscalls.reset()
    return calls


def assert_recovers(scenario: Scenario, boot: str | None) -> None:
    """The disk is back: all that was acknowledged is there, and nothing twice or torn."""
    assert scenario.path is not None
    report = recover(scenario.path, PosixDisk(), ManualClock(9_000_000_000), boot=boot)
    for name, acked in scenario.acked.items():
        numbers = stored(scenario.path, name)
        assert numbers == list(range(len(numbers))), name
        assert len(numbers) >= acked, (name, report)
    checked = validate(scenario.path, deep=True)
    assert checked.sound, checked.problems


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_at_any_call(
    root: Path, syscalls: Syscalls, fault: str, tmp_path: Path, select: Selector
) -> None:
    code, then = FAULTS[fault]
    sealed = 0
    for at in select(range(calls_of_a_session(root, syscalls)), 7):
        syscalls.hook = fails = Fails(at, code, then)
        scenario = Scenario(root)
        where = f"call {at}"
        assert fails.failed, where
        assert syscalls.retried == [], where
        syscalls.reset()
        if scenario.error is None:  # nothing that matters failed, or it did before it mattered
            assert scenario.acked == {"a": 24, "b": 12}, where
        elif scenario.path is None:
            assert isinstance(scenario.error, StorageError), where
            assert "Traceback" not in str(scenario.error) and str(root) in str(scenario.error)
            # What was begun is no session, or one that holds nothing; the next start is not hurt.
            again = Scenario(root)
            assert again.error is None or "exists" in str(again.error), where
        else:
            state = read_session_json(scenario.path)["state"]
            assert state in (RECORDING, SEALED, CLEAN), where
            sealed += state == SEALED
            if state == SEALED:
                assert read_session_json(scenario.path)["sealed"].startswith("sealed: ")
            copy = tmp_path / "copy"
            shutil.copytree(scenario.path, copy)
            assert_recovers(scenario, None)
            scenario.path = copy
            assert_recovers(scenario, OTHER_BOOT)
            shutil.rmtree(copy)
        shutil.rmtree(root, ignore_errors=True)
        syscalls.reset()
    assert sealed or then != "once"  # where nothing can be written, that neither


def test_a_seal_tells_what_it_lost(root: Path, syscalls: Syscalls) -> None:
    syncs: list[str] = []

    def fail_the_second_commit(name: str, path: str) -> None:
        if path.endswith("/a/raw") and name == "fdatasync":
            syncs.append(path)
            if len(syncs) == 2:
                raise OSError(5, "Input/output error", path)

    syscalls.hook = fail_the_second_commit
    scenario = Scenario(root)
    assert scenario.path is not None and scenario.acked == {"a": 6, "b": 3}, scenario.acked
    reported = events(scenario.path)
    assert [e["type"] for e in reported if e["cause"] == "sealed"] == ["disk"]
    lost = {e["stream"]: e for e in reported if e["type"] == "lost"}
    assert set(lost) == {"a", "b"}
    assert all(e["cause"] == "disk" and e["count"] is None for e in lost.values())
    assert (lost["a"]["first_seq"], lost["b"]["first_seq"]) == (6, 3)
    assert syscalls.retried == []

    report = recover(scenario.path, PosixDisk(), ManualClock(9_000_000_000))
    assert report.cause == "disk" and report.lost
    causes = [e["cause"] for e in events(scenario.path) if e["type"] == "lost"]
    assert causes == ["disk", "disk"]  # said once


def test_an_error_at_calls_of_a_recovery(
    root: Path, syscalls: Syscalls, tmp_path: Path, select: Selector
) -> None:
    def killed(at: int) -> Scenario:
        syscalls.hook = Fails(at, 5, "gone")
        scenario = Scenario(root)
        assert scenario.path is not None
        syscalls.reset()
        return scenario

    half = calls_of_a_session(root, syscalls) * 3 // 4
    scenario = killed(half)
    assert scenario.path is not None
    before = tmp_path / "before"
    shutil.copytree(scenario.path, before)
    syscalls.reset()
    assert_recovers(scenario, None)
    wanted = {name: stored(scenario.path, name) for name in ("a", "b")}
    rng = random.Random(3)
    for at in select(range(min(syscalls.calls, 60)), 12):
        fault = rng.choice(sorted(FAULTS))
        shutil.rmtree(scenario.path)
        shutil.copytree(before, scenario.path)
        syscalls.reset()
        syscalls.hook = Fails(at, *FAULTS[fault])
        try:
            recover(scenario.path, PosixDisk(), ManualClock(9_000_000_000))
        except (OSError, RecorderError) as error:
            assert str(root) in str(error), (at, fault)
        syscalls.reset()
        assert_recovers(scenario, None)
        assert {name: stored(scenario.path, name) for name in ("a", "b")} == wanted, (at, fault)


def test_the_events_of_a_failure_are_on_the_disk_before_they_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = private(tmp_path, EVENTS)
    log.parent.mkdir()
    log.write_bytes(b"{}\nnot committed")
    synced = []
    sync = os.fdatasync

    def watched(fd: int) -> None:
        synced.append(os.fstat(fd).st_size)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", watched)
    committed = {"files": {f"{PRIVATE}/{EVENTS}": 3}}
    append_events(PosixDisk(), tmp_path, committed, [{"type": "a"}, {"type": "b"}])
    assert log.read_bytes() == b'{}\n{"type":"a"}\n{"type":"b"}\n'
    assert synced[-1] == log.stat().st_size
