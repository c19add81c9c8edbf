"""Stored samples that lack parts: counted apart from losses, wherever a process is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drivers.kit.driver import EndOfSource, Lost, Sample, SensorConfig, State
from drivers.kit.session_source import SessionSource
from recorder.bus.wire import Kind, Message
from recorder.common.errors import ProtocolError
from recorder.recording.clip.writing import write_clip
from recorder.recording.writer.sequencing import check_report
from recorder.session.accounts import format_incomplete, read_accounts, sum_incomplete
from recorder.session.reader import Session
from recorder.session.summary import brief, summarize
from recorder.session.validation import validate
from recorder.session.verdict import verdict
from tests.accounting.rig import NAME, Rig
from tests.accounting.test_balance import ALL, NOTHING
from tests.recording.clip.cuts import part


def found(path: Path) -> dict[str, Any]:
    """What a session's own account says that a stream lacks, which `info` and `list` agree on."""
    with Session(path) as session:
        entry = summarize(session)["streams"][NAME]
    line = brief(path)
    assert line["incomplete"] == sum_incomplete(entry["incomplete"])[0]
    incomplete: dict[str, Any] = entry["incomplete"]
    return incomplete


def test_they_are_counted_by_cause_and_are_no_losses(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.data(4)
    rig.incomplete("network", 2, 48)
    rig.commit()
    rig.data(4)
    rig.incomplete("network", 1, 16)
    rig.incomplete("corrupt", 1, 1)
    rig.pump()
    counted = {
        "network": {"samples": 3, "parts": 64},
        "corrupt": {"samples": 1, "parts": 1},
    }
    assert rig.writer.positions()[NAME]["incomplete"] == counted
    rig.end()
    path = rig.close()
    assert found(path) == counted
    with Session(path) as session:
        account = read_accounts(session)
        events = [e for e in session.events() if e["type"] == "incomplete"]
    assert account.streams[NAME]["lost"] == {} and account.streams[NAME]["lost_intervals"] == []
    assert sum(e["count"] for e in events) == 4 and sum(e["parts"] for e in events) == 65
    assert len(events) == 2, "at most one event per stream, cause and second"
    assert format_incomplete(counted) == "4 samples lack 65 parts (network, corrupt)"
    assert validate(path).sound


def test_a_killed_writer_counts_nothing_twice_and_forgets_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for k in range(6):
        rig.data(2)
        rig.incomplete("network", 1, 10)
        if k % 2:
            rig.commit()
        else:
            rig.pump()
        rig.restart_writer(ALL if k % 3 else NOTHING)
    rig.end()
    assert found(rig.close()) == {"network": {"samples": 6, "parts": 60}}


def test_a_driver_that_starts_again_adds_to_what_was_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.data(2)
    rig.incomplete("network", 1, 5)
    rig.commit()
    rig.restart_driver()
    rig.data(2)
    rig.incomplete("network", 1, 7)
    rig.end()
    assert found(rig.close()) == {"network": {"samples": 2, "parts": 12}}


@pytest.mark.parametrize("reached", [NOTHING, ALL])
def test_recovery_keeps_what_was_committed_and_what_belongs_to_kept_samples(
    tmp_path: Path, reached: Any
) -> None:
    rig = Rig(tmp_path)
    rig.data(4)
    rig.incomplete("network", 2, 20)
    rig.commit()
    rig.data(2)
    rig.incomplete("corrupt", 1, 3)
    rig.pump()
    report = rig.recover(reached)
    kept = report.streams[NAME].kept
    tail = {"corrupt": {"samples": 1, "parts": 3}}
    assert kept == (6 if reached is ALL else 4)
    expected = {"network": {"samples": 2, "parts": 20}, **(tail if kept == 6 else {})}
    assert found(rig.path) == expected
    rig.recover_only()
    assert found(rig.path) == expected, "recovery counts once"


def test_an_event_that_was_written_before_the_crash_is_not_counted_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.data(2)
    rig.commit()
    rig.data(2)
    rig.incomplete("network", 1, 7)
    rig.pump()
    rig.writer._session_log.events.write_due()  # a commit begins, and all is killed within it
    assert rig.recover(ALL).streams[NAME].kept == 4
    assert found(rig.path) == {"network": {"samples": 1, "parts": 7}}


def test_a_clip_counts_the_samples_that_it_holds(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for _ in range(5):
        rig.data(10)  # 100 ms
        rig.incomplete("network", 1, 16)
        rig.commit()
    rig.end()
    path = rig.close()
    whole = write_clip([path], part(None, None, NAME), tmp_path / "whole")
    assert found(whole.session) == {"network": {"samples": 5, "parts": 80}}
    middle = write_clip([path], part(0.15, 0.35), tmp_path / "middle")
    assert found(middle.session) == {"network": {"samples": 2, "parts": 32}}
    assert validate(middle.session).sound
    with Session(middle.session) as clip:
        assert verdict(read_accounts(clip)).passed, "with the limit of the session"


def test_a_played_session_repeats_the_counts_of_the_recording(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.data(4)
    rig.incomplete("network", 2, 20)
    rig.lose(3)
    rig.data(2)
    rig.end()
    source = SessionSource(SensorConfig(NAME, "session", str(rig.close()), {}))
    source.open()
    items = []
    with pytest.raises(EndOfSource):
        while True:
            items.append(source.read())
    source.close()
    states = [item.values for item in items if isinstance(item, State)]
    assert states == [
        {"incomplete": {"recorded": {"samples": 2, "parts": 20}}, "recorded_cause": "network"}
    ]
    assert sum(item.count for item in items if isinstance(item, Sample)) == 6
    assert [item.count for item in items if isinstance(item, Lost)] == [3]


@pytest.mark.parametrize(
    "wrong",
    [3, {"network": 3}, {"network": {"samples": 1}}, {"network": {"samples": -1, "parts": 0}}],
)
def test_a_driver_that_counts_wrongly_breaks_the_protocol(wrong: Any) -> None:
    message = Message(Kind.STATE, NAME, t_mono_ns=1, values={"incomplete": wrong})
    with pytest.raises(ProtocolError, match="incomplete"):
        check_report(message)
    check_report(Message(Kind.STATE, NAME, t_mono_ns=1, values=json.loads('{"more": [1]}')))
