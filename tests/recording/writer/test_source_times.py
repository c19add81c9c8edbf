"""A session whose times are those of its sources: it lies where the sources' stamps are."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan, read_session_json
from recorder.session.reader import Session
from tests.faults.numbers import message, stream
from tests.manual_clock import ManualClock

PAST_NS = 1_500_000_000_123_456_789
START_MONO_NS = 5_000_000_000
STEP_NS = 1_000_000


def begin(
    root: Path, count: int, source_start_ns: int | None = PAST_NS
) -> tuple[SessionWriter, ManualClock]:
    """A session with so many samples."""
    clock = ManualClock(START_MONO_NS)
    plan = SessionPlan(
        str(root), "s", True, "version: 1\n", source_start_ns=source_start_ns, record_format=["a"]
    )
    writer = SessionWriter.create(PosixDisk(), plan, clock)
    writer.declare(stream("a"))
    for number in range(count):
        append(writer, number)
    return writer, clock


def append(writer: SessionWriter, number: int) -> None:
    item = message(stream("a"), [number], START_MONO_NS + number * STEP_NS)
    item.epoch, item.number, item.seq = 7, number, number
    writer.append(item)


@pytest.mark.parametrize("slow_s", [0.0, 1000.0])
def test_it_begins_and_ends_with_the_sources(tmp_path: Path, slow_s: float) -> None:
    writer, clock = begin(tmp_path, 5)
    clock.advance(slow_s)  # however long the samples took to be written
    writer.event("mark", text="x")
    writer.commit()
    writer.close("clean")
    with Session(tmp_path / "s") as session:
        assert session.start_ns == PAST_NS
        assert session.streams["a"].t_ns.tolist() == [PAST_NS + n * STEP_NS for n in range(5)]
        assert session.end_ns == PAST_NS + 4 * STEP_NS
        assert [event["t_ns"] for event in session.events()] == [PAST_NS + 4 * STEP_NS]


def test_an_interrupted_one_is_recovered_in_its_place(tmp_path: Path) -> None:
    writer, clock = begin(tmp_path, 3)
    writer.commit()
    writer.abandon()
    clock.advance(1000.0)
    recover(tmp_path / "s", PosixDisk(), clock)
    with Session(tmp_path / "s") as session:
        assert (session.start_ns, session.end_ns) == (PAST_NS, PAST_NS + 2 * STEP_NS)


def test_a_resumed_one_goes_on_in_its_place(tmp_path: Path) -> None:
    writer, clock = begin(tmp_path, 2)
    writer.commit()
    writer.abandon()
    clock.advance(1000.0)
    writer = SessionWriter.resume(PosixDisk(), tmp_path / "s", clock)
    writer.declare(stream("a"))
    append(writer, 2)
    writer.close("clean")
    with Session(tmp_path / "s") as session:
        assert session.streams["a"].t_ns.tolist() == [PAST_NS + n * STEP_NS for n in range(3)]
        assert session.end_ns == PAST_NS + 2 * STEP_NS


def test_without_such_a_time_a_session_begins_now(tmp_path: Path) -> None:
    writer, clock = begin(tmp_path, 1, None)
    clock.advance(3.0)
    writer.close("clean")
    values = read_session_json(tmp_path / "s")
    assert values["end_ns"] - values["start_ns"] == 3_000_000_000
    assert values["source_start_ns"] is None
