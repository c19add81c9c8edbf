"""The facts of a session at the head of its report."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from recorder.common.text_format import format_seconds, format_time
from recorder.viewers.report.overview import _list_facts
from recorder.viewers.report.session_scan import scan_session
from tests.session.build import START_NS, Builder, imu_spec
from tests.viewers.report.index_rig import make_session


def facts(session: Path) -> dict[str, str]:
    found = _list_facts(scan_session(session), linked=False)
    return {str(name): html.unescape(str(value)) for name, value in found}


def test_the_facts_are_those_of_the_session(tmp_path: Path) -> None:
    session = make_session(
        tmp_path / "one",
        seconds=2.5,
        metadata={"driver": "ada", "load": {"kg": 3}, "wet": False, "note": "", "route": None},
        hostname="rig-7",
    )
    found = facts(session)
    shown = {name: found.pop(name) for name in ("Start", "End", "Duration", "Size", "Ended")}
    values = json.loads((session / "_recorder/session.json").read_text())
    assert shown["Start"] == format_time(START_NS)
    assert shown["End"] == format_time(values["end_ns"]) != shown["Start"]
    assert shown["Duration"] == format_seconds((values["end_ns"] - START_NS) / 1e9)
    assert found == {
        "State": "clean",
        "driver": "ada",
        "load": '{"kg": 3}',
        "wet": "false",
        "Host": "rig-7",
        "Folder": str(session),
    }


@pytest.mark.parametrize(
    ("state", "plain", "text"),
    [
        ("clean", False, "clean"),
        ("recording", False, "not closed (run `recorder recover`)"),
        ("clean", True, "a roverd trace of another recorder"),
        ("sealed", False, "sealed"),
        ("recovered", False, "recovered"),
    ],
)
def test_the_state_is_told_in_words(tmp_path: Path, state: str, plain: bool, text: str) -> None:
    builder = Builder(tmp_path / "one", plain=plain)
    builder.add(imu_spec(), 0.2)
    found = facts(builder.close(state))
    assert found["State"] == text
    assert (found["End"] == "not closed") == (state == "recording")
    killed = "early: the recorder was killed, the power was cut, or the disk failed"
    assert (found["Ended"] == killed) == (state == "recovered")
