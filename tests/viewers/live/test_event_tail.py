"""Events of an open session, the timeline, and the list of sessions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.session.summary import brief
from recorder.viewers.live import recordings
from recorder.viewers.live.event_tail import MOST_INTERVALS, EventTail, Timeline, event_note
from tests.session.build import full_session


def event(kind: str, t_ns: int, **more: Any) -> dict[str, Any]:
    return {"t_ns": t_ns, "type": kind, "stream": None, "cause": None, "count": None, **more}


def lost(t_ns: int, duration_ns: int | None, count: int | None = 1) -> dict[str, Any]:
    return event("lost", t_ns, stream="imu", cause="refused", count=count, duration_ns=duration_ns)


def session(folder: Path) -> Path:
    (folder / "tour" / "_recorder").mkdir(parents=True)
    return folder / "tour"


def test_a_timeline_keeps_the_last_marks() -> None:
    timeline = Timeline()
    for k in range(2001):
        timeline.add([event("mark", k)])
    marks = timeline.note(0)["marks"]
    assert (len(marks), marks[0]["t_ns"], marks[-1]["t_ns"]) == (2000, "1", "2000")


def test_events_come_once_and_only_whole(tmp_path: Path) -> None:
    path = session(tmp_path)
    happenings = EventTail(path)
    assert happenings.read() == []
    log = path / "_recorder" / "events.jsonl"
    line = json.dumps(event("mark", 5)).encode() + b"\n"
    log.write_bytes(line + line[:10])
    assert [e["t_ns"] for e in happenings.read()] == [5]
    assert happenings.read() == []
    with log.open("ab") as file:
        file.write(line[10:] + b"no json\n[1]\n" + line)
    assert [e["t_ns"] for e in happenings.read()] == [5, 5]


def test_the_list_of_sessions_has_no_paths_and_reads_closed_ones_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_session(tmp_path / "first")
    full_session(tmp_path / "second")
    (tmp_path / "broken" / "_recorder").mkdir(parents=True)
    (tmp_path / "broken" / "_recorder" / "session.json").write_text("{")
    read: list[str] = []

    def counted(path: Path) -> dict[str, Any]:
        read.append(path.name)
        return brief(path)

    monkeypatch.setattr(recordings, "brief", counted)
    listed = recordings.Recordings(tmp_path)
    note = listed.note()
    lines = {line["name"]: line for line in note["sessions"]}
    assert set(lines) == {"first", "second", "broken"} == set(read)
    assert lines["broken"]["damaged"] and not lines["first"]["damaged"]
    first = lines["first"]
    assert first["state"] == "clean" and first["lost"] == 0 and first["bytes"] > 0
    assert (first["verdict"], first["incomplete"], first["reasons"]) == ("PASS", 0, [])
    assert lines["broken"]["verdict"] == "FAIL" and "not JSON" in lines["broken"]["reasons"][0]
    assert int(first["end_ns"]) > int(first["start_ns"]) > 0
    assert str(tmp_path) not in json.dumps(note)
    listed.note()
    assert len(read) == 3
    full_session(tmp_path / "third")
    assert {line["name"] for line in listed.note()["sessions"]} == {*lines, "third"}
    assert read[3:] == ["third"]


def test_the_session_that_is_recorded_is_no_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_session(tmp_path / "first")
    full_session(tmp_path / "now")
    written = {"now"}
    monkeypatch.setattr(
        recordings, "brief", lambda path: brief(path) | {"live": path.name in written}
    )
    listed = recordings.Recordings(tmp_path)
    assert [line["name"] for line in listed.note()["sessions"]] == ["first"]
    written.clear()
    os.utime(tmp_path / "now")  # its header is written when it is closed
    names = [line["name"] for line in listed.note()["sessions"]]
    assert sorted(names) == ["first", "now"]


def test_a_timeline_has_losses_by_kind_and_marks() -> None:
    timeline = Timeline(100)
    timeline.add([lost(250, 50), lost(300, None), {**lost(400, 10, None), "merged": 2}])
    timeline.add([event("mark", 250, cause="pothole", text="pothole"), event("clock", 260)])
    note = timeline.note(500)
    assert (note["start_ns"], note["end_ns"]) == ("100", "500")
    assert note["streams"] == {
        "imu": [["200", "250", "lost"], ["300", "300", "lost"], ["400", "410", "unknown"]]
    }
    assert note["marks"] == [{"t_ns": "250", "text": "pothole"}]


@given(st.integers(1, 5 * MOST_INTERVALS))
def test_a_timeline_stays_small_and_covers_all_losses(count: int) -> None:
    timeline = Timeline(0)
    timeline.add(lost(10 * i + 5, 5) for i in range(count))
    intervals = timeline.note(0)["streams"]["imu"]
    assert len(intervals) <= MOST_INTERVALS
    assert int(intervals[0][0]) == 0 and int(intervals[-1][1]) == 10 * (count - 1) + 5
    covered = [(int(begin), int(end)) for begin, end, _ in intervals]
    assert covered == sorted(covered)


def test_an_event_has_the_sentence_of_the_log() -> None:
    slow = event("rate", 7, stream="cam", cause="low", rate_hz=4.5, floor_hz=5)
    note = event_note(slow)
    assert (note["t_ns"], note["kind"], note["stream"]) == ("7", "rate", "cam")
    assert note["text"] == "4.5 Hz is below the minimum (5 Hz)"
