"""``recorder events ROOT`` and the events in ``recorder info``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.common.files import PosixDisk
from recorder.session.event_clips import KeptEvent, Shortfall, write_events
from tests.session.build import START_NS, Builder, imu_spec

S = 1_000_000_000
BRAKE_NS, DOOR_NS = START_NS + 2 * S, START_NS + 3 * S


@pytest.fixture
def root(tmp_path: Path) -> Path:
    builder = Builder(tmp_path / "drive_p001")
    builder.add(imu_spec(), 0.2)
    builder.close()
    shortfall = Shortfall(BRAKE_NS - 30 * S, BRAKE_NS - 2 * S, None, "start")
    brake = KeptEvent(
        "20240601T100002.123Z_hard_brake", "trigger hard_brake: imu.acc[0] -4.2", "hard_brake",
        BRAKE_NS, BRAKE_NS - 30 * S, BRAKE_NS + 15 * S, "short", ("drive_p001", "drive_p002"),
        (shortfall,),
    )  # fmt: skip
    door = KeptEvent(
        "door", "a door\x1b[2J", None, DOOR_NS, DOOR_NS - S, DOOR_NS + S // 2, "kept",
        ("drive_p001",),
    )  # fmt: skip
    write_events(PosixDisk(), builder.path, [brake, door])
    return tmp_path


def ids(capsys: pytest.CaptureFixture[str], *argv: object) -> list[str]:
    assert main(["events", *map(str, argv), "--format", "json"]) == 0
    return [event["id"][:4] for event in json.loads(capsys.readouterr().out)]


def test_the_table_shows_windows_sessions_and_what_is_missing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["events", str(root)]) == 0
    header, brake, door, blank, missing = capsys.readouterr().out.splitlines()
    assert header.split() == ["event", "time", "trigger", "state", "window", "sessions", "text"]
    assert "hard_brake  short  30 s before, 15 s after  drive_p001 drive_p002 (gone)  " in brake
    assert "-           kept   1 s before, 0.5 s after  drive_p001  " in door
    assert "\\x1b" in door and "\x1b" not in door and blank == ""
    assert missing == (
        "20240601T100002.123Z_hard_brake: missing: all streams, -30.0 s to -2.0 s: "
        "the recording began later"
    )


def test_json_has_the_whole_event(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(root), "--format", "json", "--trigger", "hard_brake"]) == 0
    (event,) = json.loads(capsys.readouterr().out)
    assert (event["t_ns"], event["until_ns"]) == (BRAKE_NS, BRAKE_NS + 15 * S)
    assert event["shortfalls"] == [
        {"from_ns": BRAKE_NS - 30 * S, "until_ns": BRAKE_NS - 2 * S, "stream": None}
        | {"cause": "start"}
    ]
    assert event["gone"] == ["drive_p002"]


def test_order_and_filters(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ids(capsys, root) == ids(capsys, root, "--order", "oldest") == ["2024", "door"]
    assert ids(capsys, root, "--order", "newest") == ["door", "2024"]
    assert ids(capsys, root, "--trigger", "hard_brake") == ["2024"]
    assert ids(capsys, root, "--since", "2024-06-01T10:00:03") == ["door"]
    assert ids(capsys, root, "--since", "2024-06-02") == []
    assert main(["events", str(root), "--trigger", "none"]) == 0
    assert "none of the 2 events here matches" in capsys.readouterr().err


def test_a_root_without_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", str(tmp_path)]) == 0
    assert capsys.readouterr().err == f"recorder events: {tmp_path}: no events here\n"


def test_a_damaged_file_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "drive_p001/_recorder/keep").write_text("{")
    assert main(["events", str(root)]) == 1
    assert "drive_p001/_recorder/keep: is no list of events" in capsys.readouterr().err
    assert main(["info", str(root / "drive_p001")]) == 1
    assert "drive_p001/_recorder/keep: is no list of events" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["{root}/drive_p001"], "is a session: name its root"),
        (["{root}", "{root}"], "name one root"),
        (["{root}", "--triggers", "x.yaml", "--since", "1d"], "--since lists the events of a root"),
        (["{root}", "--since", "soon"], "--since 'soon': needs a UTC date"),
    ],
)
def test_wrong_usage(
    root: Path, argv: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["events", *(word.format(root=root) for word in argv)]) == 2
    assert reason in capsys.readouterr().err


def test_info_has_the_events(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(root / "drive_p001")
    assert main(["info", path]) == 0
    text = capsys.readouterr().out
    assert "event     3.0 s  a door\\x1b[2J (1 s before, 0.5 s after, kept)\n" in text
    assert "          missing: all streams, -30.0 s to -2.0 s: the recording began later\n" in text
    assert main(["info", path, "--format", "json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [event["state"] for event in summary["events"]] == ["short", "kept"]
