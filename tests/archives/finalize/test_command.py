"""``recorder finalize`` as its user sees it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.archives.finalize import ArchiveRequest
from recorder.cli import main
from recorder.cli.finalize import configured_steps, finalize_session, parse_steps
from recorder.common.errors import ConfigError, UsageError
from recorder.config.driver_schema import DriverSchema
from recorder.config.loading import load_config
from recorder.recording.postprocessing.steps import option_arguments
from tests.session.build import build_session, camera_spec, imu_spec

pytest.importorskip("numcodecs", reason="needs numcodecs (the extra `archives`)")


@pytest.fixture(autouse=True)
def gave_way(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The command makes its process nice for good; the tests' own should not be."""
    calls: list[bool] = []
    monkeypatch.setattr("recorder.common.syscalls.be_idle", lambda: calls.append(True))
    return calls


def session(path: Path) -> Path:
    return build_session(path, camera_spec(), seconds=0.2).path


def run(*args: object) -> int:
    return main(["finalize", *map(str, args)])


def test_text_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gave_way: list[bool]
) -> None:
    path = session(tmp_path / "drive")
    assert run(path, "--to", "ncore") == 0
    assert gave_way
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
    open_ = build_session(tmp_path / "open", imu_spec(), seconds=0.1, state="recording")
    out = tmp_path / "out"
    code = run(good[0], open_.path, good[1], "--to", "ncore", "--out", out)
    captured = capsys.readouterr()
    assert code == 1
    assert "run `recorder recover" in captured.err
    names = {p.name for p in (out / "ncore").iterdir()}
    assert names == {"a.json", "b.json", "a.ncore4.zarr.itar", "b.ncore4.zarr.itar"}
    assert run(*good, open_.path, "--to", "l5kit", "--to", "vrs", "--out", out) == 1
    assert capsys.readouterr().err.count("run `recorder recover") == 1
    names = {
        p.relative_to(out).as_posix() for kind in ("l5kit", "vrs") for p in out.glob(f"{kind}/*")
    }
    assert names == {"l5kit/out.zarr", "vrs/a.vrs", "vrs/b.vrs"}
    assert run(good[0], good[0], "--to", "ncore", "--out", out) == 2
    copy = shutil.copytree(good[0], tmp_path / "copy")  # its archives would have a's name
    assert run(good[0], copy, "--to", "ncore", "--out", out) == 2


def test_one_archive_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are packed and told."""
    path = session(tmp_path / "drive")
    options = ["--option", "ncore.poses=none", "--format", "json"]
    assert run(path, "--to", "l5kit,ncore,vrs", *options) == 1
    captured = capsys.readouterr()
    reported = [archive["archive"] for archive in json.loads(captured.out)["archives"]]
    assert reported == ["l5kit", "vrs"]
    assert "ncore: " in captured.err
    assert "has no stream 'none'" in captured.err
    assert sorted(p.name for p in (path / "_archives").glob("*/*")) == ["drive.vrs", "drive.zarr"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "ncor"], "no archive 'ncor' (did you mean 'ncore'?)"),
        (["--to", "ncore,vrs", "--to", "ncore"], "has an empty or duplicate name"),
        (["--to", "ncore", "--option", "store=itar"], "is not of the form NAME.KEY=V"),
        (["--to", "ncore", "--option", "l5kit.x=1"], "an archive that --to does not name"),
        (["--to", "ncore", "--option", "ncore.store=tar"], "ncore.store=tar: 'tar' is not one of"),
        (["--to", "ncore", "--calibration", "none.yaml"], "none.yaml"),
        (["--pending", "rig.yaml"], "--pending: takes neither sessions nor --to"),
        ([None], "needs sessions, or --pending"),
        ([None, "--to", "ncore"], "needs sessions, or --pending"),
        ([None, "--pending", "rig.yaml", "--to", "ncore"], "--pending: takes neither sessions nor"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str | None], words: str
) -> None:
    """None: without a session."""
    path = session(tmp_path / "drive")
    assert run(*(arguments[1:] if arguments[0] is None else [path, *arguments])) == 2
    assert words in capsys.readouterr().err


def configure(session: Path, finalize: str) -> Path:
    (session / "config.yaml").write_text(f"version: 1\nsensors: {{}}\nfinalize: {finalize}\n")
    return session


def test_without_to_the_archives_of_the_session_s_config_are_packed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configure(session(tmp_path / "drive"), "[{ncore: {store: folder}}, vrs]")
    assert run(path) == 0
    packed = sorted(p.name for p in (path / "_archives").glob("*/*"))
    assert packed == ["drive.json", "drive.ncore4.zarr", "drive.vrs"]
    capsys.readouterr()
    assert main(["info", str(path), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    sizes = {
        name: sum(p.stat().st_size for p in (path / "_archives" / name).rglob("*") if p.is_file())
        for name in ("ncore", "vrs")
    }
    assert shown["archives"] == sizes
    every = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    records = sum(p.stat().st_size for p in (path / "_archives").glob("*.json"))
    assert shown["bytes"] == every - records - sum(sizes.values())
    assert run(path, "--option", "ncore.store=itar") == 0  # an option replaces that of the config
    packed = sorted(p.name for p in (path / "_archives").glob("*/*"))
    assert packed == ["drive.json", "drive.ncore4.zarr.itar", "drive.vrs"]
    bare = configure(session(tmp_path / "bare"), "[]")
    capsys.readouterr()
    assert run(bare) == 2
    assert "bare: its config names no archive; choose with --to: " in capsys.readouterr().err
    assert run(path, bare) == 2
    assert "asks for other archives than that of" in capsys.readouterr().err


def test_an_interrupt_keeps_what_is_packed_and_says_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import recorder.archives.finalize

    whole = recorder.archives.finalize.finalize

    def interrupted(path: Path, *args: Any, **settings: Any) -> Iterator[Any]:
        yield from whole(path, *args, **settings)
        if path.name == "b":
            raise KeyboardInterrupt

    monkeypatch.setattr("recorder.archives.finalize.finalize", interrupted)
    paths = [session(tmp_path / name) for name in "abc"]
    assert run(*paths, "--to", "vrs") == 1
    captured = capsys.readouterr()
    assert "run the same command again to pack the rest" in captured.err
    assert str(paths[1] / "_archives/vrs/b.vrs") in captured.out
    assert not (paths[2] / "_archives").exists()


def test_what_an_interrupted_recording_lacks_is_added_before_packing(tmp_path: Path) -> None:
    path = session(tmp_path / "drive")
    assert run(path, "--to", "vrs") == 0
    assert (path / "_recorder" / "checksums.csv").is_file()


def test_what_fails_alone_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = session(tmp_path / "drive")
    assert run(path, "--to", "ncore", "--option", "ncore.poses=none", "--format", "json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("has no stream 'none'") == 1


def test_options_have_types() -> None:
    given = {"radar_limit": "3", "poses": "imu", "x": "[1, 2]", "y": "{a: b}", "z": "1e-05"}
    (step,) = parse_steps("ncore", [f"ncore.{key}={value}" for key, value in given.items()])
    wanted = {"radar_limit": 3, "poses": "imu", "x": [1, 2], "y": {"a": "b"}, "z": 1e-05}
    assert step == ArchiveRequest("ncore", wanted)


def test_options_that_are_handed_on_keep_their_types() -> None:
    archives: dict[str, dict[str, Any]] = {
        "ncore": {"poses": "imu", "store": "1", "x": "yes", "y": 2.5, "z": None},
        "l5kit": {"classes": {"a": "b=c"}, "empty": ""},
    }
    arguments = option_arguments(archives)
    assert arguments[::2] == ["--option"] * 7
    steps = parse_steps("ncore,l5kit", arguments[1::2])
    assert {step.archive: step.options for step in steps} == archives


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
    assert steps == [ArchiveRequest("ncore", {"store": "folder"})]
    with pytest.raises(ConfigError, match=r"rig\.yaml:3: finalize\[0\]: ncore\.stor: unknown"):
        configured_steps(config(tmp_path, "[{ncore: {stor: folder}}]"))


@pytest.mark.campaign
def test_a_session_is_packed_by_a_process_that_gives_way(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session(tmp_path / "drive")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    archives = finalize_session(
        path, [ArchiveRequest("ncore", {"store": "folder", "radar_limit": 5})]
    )
    assert archives is not None
    assert (path / "_archives/ncore/drive.ncore4.zarr").is_dir()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, b""))
    assert finalize_session(tmp_path / "none", [ArchiveRequest("ncore", {})]) is None
    assert "not all archives could be packed" in capfd.readouterr().err


def test_only_packs_groups_again_as_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = session(tmp_path / "drive")
    (path / "config.yaml").write_text(
        "version: 1\nfinalize: [{ncore: {groups: standard}}, vrs]\n"
        "sensors: {camera: {driver: camera, source: 'sim:'}}\n"
    )
    assert run(path) == 0
    sensors = path / "_archives/ncore/drive.ncore4-sensors.zarr.itar"
    before = sensors.stat(), sensors.read_bytes()
    vrs = (path / "_archives/vrs/drive.vrs").stat()
    capsys.readouterr()
    assert run(path, "--only", "labels,poses", "--format", "json") == 0
    (archive,) = json.loads(capsys.readouterr().out)["archives"]
    assert {Path(file).name for file in archive["files"]} == {
        "drive.ncore4-poses.zarr.itar", "drive.ncore4-labels.zarr.itar", "drive.json"
    }  # fmt: skip
    assert (sensors.stat(), sensors.read_bytes()) == before
    assert (path / "_archives/vrs/drive.vrs").stat() == vrs
    assert run(path, "--to", "ncore", "--only", "labels") == 0  # groups as they were packed
    assert run(path, "--only", "label") == 1
    assert "no group (sensors, poses, labels)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "vrs", "--only", "labels"], "--only: vrs is packed as a whole"),
        (["--to", "ncore", "--only", "a,,b"], "--only: 'a,,b' has an empty name"),
        (["--to", "ncore", "--only", "a", "--on", "local"], "--on: packs whole archives, without"),
        (["--to", "ncore", "--option", "ncore.groups={a: [camera]}"],
         "ncore.groups.a: 'camera' is no component (did you mean 'cameras'?)"),
    ],
)  # fmt: skip
def test_only_is_for_archives_with_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    path = session(tmp_path / "drive")
    assert run(path, *arguments) == 2
    assert words in capsys.readouterr().err


def test_only_needs_an_archive_with_groups_in_the_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = session(tmp_path / "drive")
    (path / "config.yaml").write_text(
        "version: 1\nfinalize: [vrs]\nsensors: {camera: {driver: camera, source: 'sim:'}}\n"
    )
    assert run(path, "--only", "labels") == 2
    assert "--only: the config names no archive with groups" in capsys.readouterr().err
    assert run("--pending", path / "config.yaml", "--only", "labels") == 2
