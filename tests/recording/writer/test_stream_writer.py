"""Streams of a session: what is held back until a stream may begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.bus.wire import Kind, Message
from recorder.common.errors import ProtocolError
from recorder.session.accounts import read_accounts
from recorder.session.reader import Session
from recorder.session.verdict import verdict
from tests.recording.writer.test_seal import Recording


def test_a_single_sample_is_stored_at_the_close_though_its_driver_never_ended_the_stream(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path)
    recording.data(epoch=1, number=0, seq=0, count=1)
    recording.writer.commit()
    assert not (recording.path / "a").exists(), "held back: nobody may be told that it is durable"
    assert recording.writer.durable["a"] < (1, 1)
    recording.writer.close("clean")
    with Session(recording.path) as session:
        assert len(session.streams["a"]) == 1


def report(recording: Recording, absent: Any, number: int) -> None:
    """Report, as a driver does, which streams its device does not have."""
    item = Message(Kind.STATE, "a", t_mono_ns=recording.clock.monotonic_ns())
    item.epoch, item.number, item.seq, item.values = 1, number, 2, {"absent_streams": absent}
    recording.writer.append(item)


def test_a_stream_that_its_driver_reports_as_absent_is_lost_for_the_whole_session(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path)
    recording.data(epoch=1, number=0, seq=0, count=2)
    report(recording, ["a_silent", "a_gone"], 1)
    positions = recording.writer.positions()
    assert {name: p["ended"] for name, p in positions.items()} == {
        "a": None, "b": None, "a_silent": "absent", "a_gone": "absent",
    }  # fmt: skip
    report(recording, ["a_silent"], 2)  # the other one has appeared
    assert "a_gone" not in recording.writer.positions()
    recording.writer.close("clean")
    assert recording.writer.positions()["a_silent"]["unknown_losses"] == 1
    with Session(recording.path) as session:
        reasons = [each for each in verdict(read_accounts(session)).reasons if each.where != "b"]
    assert [(each.what, each.where) for each in reasons] == [("sensor absent", "a_silent")]


def test_a_stream_that_is_declared_after_all_is_not_absent(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.data(epoch=1, number=0, seq=0, count=2)
    report(recording, ["b"], 1)
    assert recording.writer.positions()["b"]["ended"] is None


def test_a_wrong_list_of_absent_streams_is_an_error(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.data(epoch=1, number=0, seq=0, count=2)
    with pytest.raises(ProtocolError, match="absent_streams"):
        report(recording, "a_silent", 1)
