"""The plan of an import, whatever the kind of file, and the files that are no sensor's."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recorder.archives.importing import Contents, PlannedSensor, SessionFile, make_name
from recorder.cli import import_kinds, main
from recorder.cli.import_contents import ContentsPlan
from recorder.cli.import_kinds import ImportKind
from recorder.common.errors import FormatError, SourceError
from recorder.recording.supervisor import driver_registry
from recorder.recording.supervisor.driver_registry import CheckResult


def _write(name: str, text: str, folder: Path) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _refuse(_folder: Path) -> None:
    raise FormatError("a.json: cut")


def _contents(path: Path, **changes: Any) -> Contents:
    sensor = PlannedSensor(
        "front", "camera", "sim:", "cameras/front", "JPEGs as they are", 3, ["exposure"]
    )
    values: dict[str, Any] = {
        "sensors": [sensor],
        "files": [
            SessionFile("cuboids/a", "2 cuboids", partial(_write, "_cuboids/a.jsonl", "{}")),
        ],
        "calibration": {"front": {"T_sensor_rig": {}}},
        "lost": {"custom/b": "unknown"},
        "notes": ["a note"],
    }
    return Contents(path, "box", 10**9, 3 * 10**9, **(values | changes))


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a kind that only these tests know."""
    module: Any = ModuleType("tests_box")
    module.fits = lambda path: path.suffix == ".box"
    module.read_contents = lambda path: _contents(path, calibration={})
    monkeypatch.setitem(sys.modules, "tests_box", module)
    monkeypatch.setattr(import_kinds, "KINDS", (ImportKind("a box", "tests_box"),))
    result = CheckResult("front")
    monkeypatch.setattr(driver_registry, "check_sources", lambda sensors: [result for _ in sensors])
    path = tmp_path / "a.box"
    path.touch()
    return path


def test_the_plan_says_what_becomes_what_and_what_is_lost(
    box: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "root"
    assert main(["import", str(box), "--plan", "--root", str(root)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{box}: box, 2.0 s",
        "cameras/front  3  -> sensor front (camera): JPEGs as they are",
        "cuboids/a  -> 2 cuboids",
        "mounts: none",
        "models: none",
        "lost: custom/b: unknown",
        "lost: cameras/front: exposure",
        "note: a note",
    ]
    assert main(["import", str(box), "--plan", "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["kind"] == "box" and plan["duration_s"] == 2.0
    assert plan["sensors"]["front"] == {
        "origin": "cameras/front", "driver": "camera", "becomes": "JPEGs as they are",
        "samples": 3, "lost": ["exposure"],
    }  # fmt: skip
    assert plan["files"] == {"cuboids/a": {"becomes": "2 cuboids", "lost": []}}
    assert plan["lost"] == {"custom/b": "unknown"}
    assert not root.exists()


@pytest.mark.parametrize("option", ["--topics=a", "--metadata=a", "--map=a", "--guess"])
def test_choices_of_bags_are_refused_for_other_kinds(
    option: str, box: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(box), option]) == 2
    name = option.partition("=")[0]
    assert f"{name}: is not of a box, as {box} is" in capsys.readouterr().err


def test_files_are_read_before_and_written_after_the_recording(tmp_path: Path) -> None:
    (folder := tmp_path / "temporary").mkdir()
    (session := tmp_path / "session").mkdir()
    ended = SessionFile("poses", "poses", complete=partial(_write, "_pose/meta.json", "{}"))
    contents = _contents(tmp_path)
    contents.files.append(ended)
    config: Any = None
    plan = ContentsPlan(contents, config, folder)
    plan.prepare()
    assert not list(session.iterdir())
    plan.complete(session)
    files = {path.relative_to(session).as_posix() for path in session.rglob("*") if path.is_file()}
    assert files == {"_cuboids/a.jsonl", "_pose/meta.json"}


def test_a_damaged_file_is_one_error_before_the_recording(tmp_path: Path) -> None:
    config: Any = None
    contents = _contents(tmp_path, files=[SessionFile("a", "labels", _refuse)])
    with pytest.raises(SourceError, match=r"a\.json: cut"):
        ContentsPlan(contents, config, tmp_path).prepare()


def test_names_of_sensors_are_valid_and_new() -> None:
    assert make_name("camera:front wide 120°") == "camera_front_wide_120"
    assert make_name("0") == "s_0"
    assert make_name("--") == "sensor"
    assert make_name("front", {"front": 1, "front_2": 1}) == "front_3"
