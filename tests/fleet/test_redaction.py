"""Archives with redacted pictures on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recorder.archives.finalize import ORIGINALS, ArchiveRequest
from recorder.cli import main
from recorder.common.errors import RedactionError
from recorder.config.settings import RedactSettings
from recorder.fleet.packing_jobs import Job, plan_jobs
from recorder.fleet.packing_worker import pack_job
from recorder.fleet.store.manifest import Manifest
from recorder.formats.vrs import RecordType, VrsReader
from tests.perception.redaction.programs import GOOD, program
from tests.recording.writer.vrs_session import stream_of
from tests.session.build import build_session, camera_spec

VRS, L5KIT = ArchiveRequest("vrs"), ArchiveRequest("l5kit")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        build_session(tmp_path / "root" / name, camera_spec(), count=3)
    return tmp_path / "root"


def entries(tmp_path: Path, **more: Any) -> list[RedactSettings]:
    program(tmp_path / "blur.py", GOOD)
    return [RedactSettings("*", tmp_path, ("python", "blur.py"), **more)]


def jobs(root: Path, tmp_path: Path, redact: Any = (), out: str = "out") -> tuple[Job, ...]:
    plan = plan_jobs([str(root)], [VRS, L5KIT], f"file://{tmp_path}/{out}", redact=redact)
    assert plan.refused == {}
    return plan.jobs


def test_the_identity_has_the_programs(root: Path, tmp_path: Path) -> None:
    plain = jobs(root, tmp_path)
    assert [j.identity for j in jobs(root, tmp_path, ORIGINALS)] == [j.identity for j in plain]
    redacted = jobs(root, tmp_path, entries(tmp_path))
    assert [j.archive for j in redacted] == ["vrs", "l5kit"] * 2
    assert redacted[0].identity != plain[0].identity
    assert redacted[1] == plain[1]  # without pictures
    later = jobs(root, tmp_path, entries(tmp_path, timeout_s=5.0))
    assert later[0].identity == redacted[0].identity
    assert jobs(root, tmp_path, entries(tmp_path, quality=5))[0].identity != redacted[0].identity
    (tmp_path / "blur.py").write_text("another")
    moved = jobs(root, tmp_path, [RedactSettings("*", tmp_path, ("python", "blur.py"))])
    assert moved[0].identity != redacted[0].identity
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(redacted[0]), type=Job)
    assert sent.identity == redacted[0].identity


def test_a_worker_redacts_with_the_planned_program_only(root: Path, tmp_path: Path) -> None:
    job, *_ = jobs(root, tmp_path, entries(tmp_path))
    packed = pack_job(job, str(tmp_path / "scratch"))
    assert any("redacted: 3 boxes in 3 pictures" in note for note in packed.notes)
    manifest = Manifest.decode((tmp_path / "out/_manifests/a/vrs.json").read_bytes(), "")
    assert manifest.about["redaction"]["a"]["camera"]["boxes"] == 3
    with VrsReader(tmp_path / "out/a/vrs/a.vrs") as vrs:
        assert len(list(vrs.records(stream_of(vrs, "camera"), RecordType.DATA))) == 3
    job, *_ = jobs(root, tmp_path, entries(tmp_path), "other")
    (tmp_path / "blur.py").write_text((tmp_path / "blur.py").read_text() + "\n")
    with pytest.raises(RedactionError, match=r"worker .*: the programs of --redact are not those"):
        pack_job(job, str(tmp_path / "scratch"))
    (tmp_path / "blur.py").unlink()
    with pytest.raises(RedactionError, match="programs of --redact are not those"):
        pack_job(job, str(tmp_path / "scratch"))
    assert not list((tmp_path / "other").rglob("*.vrs"))


def test_a_session_that_asks_for_redaction_is_refused_on_a_worker(
    root: Path, tmp_path: Path
) -> None:
    for name in "ab":
        (root / name / "config.yaml").write_text("version: 1\nredact: {camera: keep}\n")
    job, other, *_ = jobs(root, tmp_path)
    with pytest.raises(RedactionError, match="asks for redacted pictures"):
        pack_job(job, str(tmp_path / "scratch"))
    pack_job(other, str(tmp_path / "scratch"))
    job, *_ = jobs(root, tmp_path, ORIGINALS)
    pack_job(job, str(tmp_path / "scratch"))


@pytest.mark.campaign
def test_local_workers(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed")
    entries(tmp_path)
    config = tmp_path / "rig.yaml"
    words = ["finalize", str(root), "--on", "local:1", "--to", "vrs", "--format", "json"]
    words += ["--redact", str(config)]
    config.write_text("redact: {camera: {command: [python, -c, 'exit(6)']}}\n")
    assert main([*words, "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    for name in "ab":
        assert f"{name}: vrs: " in captured.err and "camera, sample 0: redactor" in captured.err
    assert not list(tmp_path.glob("out/*/vrs/*"))
    config.write_text("redact: {camera: {command: [python, blur.py]}}\n")
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [entry["session"] for entry in values["archives"]] == ["a", "b"]
    assert all("redacted: 3 boxes" in str(entry["notes"]) for entry in values["archives"])
