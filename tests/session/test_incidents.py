"""Why a session ended, its marks and its faults, as `info` and `run` show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.session.events import make_event
from recorder.session.incidents import classify_events
from tests.session.build import START_NS, build_session, imu_spec

S = 1_000_000_000


def at(seconds: float, kind: str, stream: str = "", cause: str = "", **more: Any) -> dict[str, Any]:
    return make_event(kind, START_NS + round(seconds * S), stream, cause, **more)


EVENTS = [
    at(1.0, "mark", cause="pothole", text="pothole"),
    at(1.5, "device", "cam", "absent", detail="cam: no answer"),
    at(2.0, "device", "cam", "present"),
    at(2.5, "disk", cause="stalled", detail="nothing was committed for 6 s"),
    at(2.6, "disk", cause="restored"),
    at(3.0, "rate", "imu", "low"),
    at(3.5, "clock", cause="step", step_ns=-2 * S),
    at(4.0, "fault", "cam", "hung", detail="cam: its driver hangs"),
    at(5.0, "end", cause="signal", detail="SIGINT"),
]


def test_what_is_a_fault_and_what_is_not() -> None:
    reported = classify_events(EVENTS, {"state": "clean"})
    assert reported["ended"] == {"cause": "signal", "detail": "SIGINT"}
    assert reported["marks"] == [{"t_ns": START_NS + S, "text": "pothole"}]
    assert [(f["type"], f["cause"]) for f in reported["faults"]] == [
        ("device", "absent"),
        ("disk", "stalled"),
        ("clock", "step"),
        ("fault", "hung"),
    ]
    assert reported["faults"][2]["detail"] == "stepped by -2.000 s"


@pytest.mark.parametrize(
    ("events", "header", "cause"),
    [
        ([], {"state": "recording"}, None),
        ([], {"state": "clean"}, None),
        ([], {"state": "recovered"}, "killed"),
        (EVENTS, {"state": "recovered"}, "signal"),
        ([at(1, "disk", cause="floor", detail="full")], {"state": "clean"}, "floor"),
        ([at(1, "disk", cause="floor", detail="full"), EVENTS[-1]], {"state": "clean"}, "floor"),
        (EVENTS, {"state": "sealed", "sealed": "its disk failed"}, "sealed"),
        ([at(1, "disk", cause="sealed", detail="full")], {"state": "recovered"}, "sealed"),
    ],
)
def test_why_a_session_ended(
    events: list[dict[str, Any]], header: dict[str, Any], cause: str | None
) -> None:
    ended = classify_events(events, header)["ended"]
    assert (ended and ended["cause"]) == cause
    assert cause != "floor" or ended["detail"] == "full"


def test_info_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = build_session(tmp_path / "rig", imu_spec(), seq=range(40), state="clean").path
    many = [at(6.0, "fault", "cam", f"c{k}", detail=f"cam: {k}\x1b[2J") for k in range(30)]
    log = path / "_recorder/events.jsonl"
    log.write_text("".join(json.dumps(event) + "\n" for event in [*EVENTS, *many]))
    main(["info", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert "ended     by a signal: SIGINT" in lines
    assert "mark      1.0 s  pothole" in lines
    assert "fault     1.5 s  cam: no answer" in lines
    assert "fault     3.5 s  clock: stepped by -2.000 s" in lines
    assert r"fault     6.0 s  cam: 0\x1b[2J" in lines
    assert "fault     and 14 more (--format json has all)" in lines
    main(["info", str(path), "--format", "json"])
    reported = json.loads(capsys.readouterr().out)
    assert reported["ended"]["cause"] == "signal" and len(reported["faults"]) == 34
    assert reported["marks"] == [{"t_ns": START_NS + S, "text": "pothole"}]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("killed", "the recorder was killed, or its disk failed"),
        ("power", "the power was cut, or the machine was restarted"),
        (None, "the recorder was killed, the power was cut, or the disk failed"),
    ],
)
def test_a_recovered_session_names_what_can_have_ended_it(cause: str | None, text: str) -> None:
    events = [] if cause is None else [at(1, "recovery", cause=cause)]
    assert classify_events(events, {"state": "recovered"})["ended"] == {
        "cause": "killed",
        "detail": text,
    }
