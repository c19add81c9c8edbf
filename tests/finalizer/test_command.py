"""``recorder finalize`` as its user sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from recorder.cli.finalize import configured_steps, finalize_session, parse_steps
from recorder.contract.config import load_config
from recorder.contract.errors import ConfigError, UsageError
from recorder.contract.schema import DriverSchema
from recorder.finalizer import Step
from tests.session.build import Builder, camera_spec, imu_spec

pytest.importorskip("numcodecs", reason="needs numcodecs (the extra `archives`)")


@pytest.fixture(autouse=True)
def _stay_lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes its process nice for good; the tests' own should not be."""
    monkeypatch.setattr("recorder.finalizer.be_idle", lambda: None)


def session(path: Path) -> Path:
    builder = Builder(path)
    builder.add(camera_spec(), 0.2)
    return builder.close()


def run(*args: object) -> int:
    return main(["finalize", *map(str, args)])


def test_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = session(tmp_path / "drive")
    assert run(path, "--to", "ncore") == 0
    out = capsys.readouterr().out
    assert f"{path}: ncore: " in out
    assert "camera 6" in out
    assert out.count("note: camera: no intrinsics") == 1
    assert run(path, "--to", "ncore", "--format", "json", "--option", "ncore.store=folder") == 0
    (archive,) = json.loads(capsys.readouterr().out)["archives"]
    assert [Path(file).name for file in archive["files"]] == ["drive.ncore4.zarr", "drive.json"]
    names = {p.name for p in (path / "_archives/ncore").iterdir()}
    assert names == {"drive.ncore4.zarr", "drive.json"}  # the .itar went with the older archive


def test_several_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [session(tmp_path / name) for name in ("a", "b")]
    open_ = Builder(tmp_path / "open")
    open_.add(imu_spec(), 0.1)
    open_.close("recording")
    out = tmp_path / "out"
    code = run(good[0], open_.path, good[1], "--to", "ncore", "--out", out)
    captured = capsys.readouterr()
    assert code == 1
    assert "run `recorder recover" in captured.err
    names = {p.name for p in (out / "ncore").iterdir()}
    assert names == {"a.json", "b.json", "a.ncore4.zarr.itar", "b.ncore4.zarr.itar"}
    assert run(good[0], good[0], "--to", "ncore", "--out", out) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "ncor"], "there is no archive 'ncor' (did you mean 'ncore'?)"),
        (["--to", "ncore,ncore"], "names no archive, or one twice"),
        (["--to", "ncore", "--option", "store=itar"], "is not of the form NAME.KEY=V"),
        (["--to", "ncore", "--option", "l5kit.x=1"], "an archive that --to does not name"),
        (["--to", "ncore", "--option", "ncore.store=tar"], "ncore.store: 'tar' is not one of"),
        (["--to", "ncore", "--calibration", "none.yaml"], "none.yaml"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(session(tmp_path / "drive"), *arguments) == 2
    assert words in capsys.readouterr().err


def test_options_have_types() -> None:
    (step,) = parse_steps("ncore", ["ncore.radar_limit=3", "ncore.poses=imu", "ncore.x=[1, 2]"])
    assert step == Step("ncore", {"radar_limit": 3, "poses": "imu", "x": [1, 2]})


def test_without_numcodecs_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise UsageError("needs numcodecs: pip install 'vehicle-recorder[archives]'")

    monkeypatch.setattr("recorder.archives.ncore.packer.require_numcodecs", missing)
    assert run(session(tmp_path / "drive"), "--to", "ncore") == 2
    assert "vehicle-recorder[archives]" in capsys.readouterr().err


def config(tmp_path: Path, finalize: str) -> Any:
    path = tmp_path / "rig.yaml"
    sensors = '{camera: {driver: camera, source: "sim:"}}'
    path.write_text(f"version: 1\nsensors: {sensors}\nfinalize: {finalize}\n")
    return load_config(path, lambda _: DriverSchema("camera", schemes={"sim": ""}))


def test_configured_archives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = configured_steps(config(tmp_path, "[{ncore: {store: folder}}]"))
    assert steps == [Step("ncore", {"store": "folder"})]
    with pytest.raises(ConfigError, match=r"rig\.yaml:3: finalize\[0\]: ncore\.stor: unknown"):
        configured_steps(config(tmp_path, "[{ncore: {stor: folder}}]"))


def test_a_session_is_packed_by_a_process_that_gives_way(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = session(tmp_path / "drive")
    archives = finalize_session(path, [Step("ncore", {"store": "folder", "radar_limit": 5})])
    assert archives is not None
    assert (path / "_archives/ncore/drive.ncore4.zarr").is_dir()
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19
    assert finalize_session(tmp_path / "none", [Step("ncore", {})]) is None
    assert "its archives could not be packed" in capfd.readouterr().err
