"""What a session says of its losses when its disk has failed, sealed and after recovery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.bus.wire import Kind, Message
from recorder.common.files import PosixDisk
from recorder.recording.writer.active_session import ActiveSession
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.validation import validate
from tests.faults.numbers import message, stream
from tests.recording.writer import test_commit
from tests.support.events import events

A, B = stream("a"), stream("b")
OTHER_BOOT = "after the machine was started again"


class Recording(test_commit.Recording):
    """A session of two streams; all is of the first."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, ["a", "b"])

    def data(self, epoch: int, number: int, seq: int, count: int) -> None:
        self.clock.advance(0.1)
        item = message(A, list(range(seq, seq + count)), self.clock.monotonic_ns())
        item.epoch, item.number, item.seq = epoch, number, seq
        self.writer.append(item)

    def end(self, epoch: int, number: int, seq: int) -> None:
        item = Message(Kind.END, "a", t_mono_ns=self.clock.monotonic_ns())
        item.epoch, item.number, item.seq, item.values = epoch, number, seq, {"reason": "fault"}
        self.writer.append(item)

    def seal(self) -> dict[str, dict[str, Any]]:
        """By stream, its loss by the disk."""
        self.clock.advance(1.0)
        self.writer.seal("sealed: its disk has failed")
        found = losses(self.path, "disk")
        assert len({event["stream"] for event in found}) == len(found), "one a stream"
        return {event["stream"]: event for event in found}


def losses(path: Path, cause: str) -> list[dict[str, Any]]:
    return events(path, type="lost", cause=cause)


@pytest.mark.parametrize("boot", [None, OTHER_BOOT])
def test_a_stream_that_never_began_is_lost_from_the_sessions_start(
    tmp_path: Path, boot: str | None
) -> None:
    recording = Recording(tmp_path)
    recording.data(1, 0, 0, 4)
    recording.writer.commit()
    lost = recording.seal()
    assert set(lost) == {"a", "b"}
    assert (lost["b"]["count"], lost["b"]["duration_ns"]) == (None, 1_100_000_000)
    assert lost["b"]["estimate"] == 110
    positions = recording.writer.positions()
    assert [positions[name]["unknown_losses"] for name in ("a", "b")] == [1, 1]

    report = recover(recording.path, PosixDisk(), recording.clock, boot=boot)
    assert report.streams["b"].interval_lost
    assert sorted(e["stream"] for e in losses(recording.path, "disk")) == ["a", "b"], "said once"
    assert validate(recording.path, deep=True).sound


@pytest.mark.parametrize("ended", [True, False])
def test_what_a_driver_that_began_anew_has_lost_is_of_its_new_epoch(
    tmp_path: Path, ended: bool
) -> None:
    recording = Recording(tmp_path)
    recording.data(1, 0, 0, 4)
    if ended:
        recording.end(1, 1, 4)
    recording.writer.commit()
    recording.data(2, 0, 0, 3)
    recording.writer._flush()  # the kernel has it, no commit does
    lost = recording.seal()["a"]
    assert (lost["epoch"], lost["first_seq"], lost["count"]) == (2, 0, None)

    recover(recording.path, PosixDisk(), recording.clock)
    checked = validate(recording.path, deep=True)
    assert checked.sound, checked.problems
    assert [(a.stream, a.stored) for a in checked.accounts] == [("a", 4), ("a", 3), ("b", 0)]
    assert [a.epoch for a in checked.accounts if a.intervals and a.stream == "a"] == (
        [2] if ended else [1, 2]
    )


def test_a_stream_that_has_ended_loses_nothing(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.data(1, 0, 0, 4)
    recording.end(1, 1, 4)
    recording.writer.commit()
    assert set(recording.seal()) == {"b"}


@pytest.mark.parametrize("how", ["closed", "sealed"])
def test_a_stream_that_nobody_declares_to_a_second_writer_is_all_lost(
    tmp_path: Path, how: str
) -> None:
    """Its driver and the first writer died before it gave anything."""
    recording = Recording(tmp_path)
    recording.data(1, 0, 0, 4)
    recording.writer.commit()
    recording.writer.abandon()  # as the kernel does for the dead: all was committed
    writer = recording.writer = SessionWriter.resume(PosixDisk(), recording.path, recording.clock)
    writer.declare(A)
    if how == "sealed":
        lost = recording.seal()["b"]
    else:
        recording.clock.advance(1.0)
        current = ActiveSession(writer, PosixDisk(), recording.clock, 1_000_000, lambda: None)
        current._close()
        assert current.closed and current.failure is None
        (lost,) = (e for e in losses(recording.path, "driver") if e["stream"] == "b")
    assert (lost["count"], lost["duration_ns"]) == (None, 1_100_000_000)
    positions = writer.positions()
    assert [positions[name]["unknown_losses"] for name in ("a", "b")] == [1, 1]
    recover(recording.path, PosixDisk(), recording.clock)
    assert (
        sum(e["stream"] == "b" for c in ("disk", "driver") for e in losses(recording.path, c)) == 1
    )
    assert validate(recording.path, deep=True).sound
