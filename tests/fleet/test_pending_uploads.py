"""What of a config's root is uploaded, and when; and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyrage
import pytest

from recorder.cli import main
from recorder.common.errors import ConfigError
from recorder.config.loading import Config
from recorder.config.settings import UploadSettings
from recorder.fleet import pending_uploads
from recorder.fleet.pending_uploads import NotNowError, find_obstacle, upload_pending
from recorder.fleet.store import open_store
from recorder.fleet.store.manifest import Manifest
from recorder.fleet.uploading import sort_by_urgency, upload_session
from recorder.recording.supervisor import driver_registry
from recorder.session.outputs import is_safe_at
from tests.fleet.sessions import make_session


def text(tmp_path: Path, more: str = "", **upload: Any) -> str:
    values = {"url": f"file://{tmp_path}/store", **upload}
    (tmp_path / "store").mkdir(exist_ok=True)
    return f"""
version: 1
session: {{root: {tmp_path}/root}}
sensors: {{imu: {{driver: xsens, source: "sim:"}}}}
upload: {json.dumps(values)}
{more}
"""


def load(folder: Path, config: str) -> Config:
    path = folder / "rig.yaml"
    path.write_text(config)
    return driver_registry.load(path)


def finished(session: Path) -> Path:
    (session / "_recorder/checksums.csv").write_text("file,md5\n")
    return session


@pytest.mark.parametrize(
    ("when", "at", "free"),
    [
        ("22:00-06:00", "23:59", True),
        ("22:00-06:00", "00:00", True),
        ("22:00-06:00", "06:00", False),
        ("22:00-06:00", "21:59", False),
        ("08:30-17:00", "08:30", True),
        ("08:30-17:00", "17:00", False),
        ("08:30-17:00", "08:29", False),
        ("always", "12:00", True),
    ],
)
def test_hours(when: str, at: str, free: bool) -> None:
    hour, minute = map(int, at.split(":"))
    found = find_obstacle(
        UploadSettings("s3://b", when), lambda: True, hour * 60 + minute, lambda: False
    )
    assert (found is None) is free
    assert free or "it is not between " in str(found)


def test_a_daemon_that_records_and_a_metered_link_are_in_the_way() -> None:
    idle = UploadSettings("s3://b")
    assert find_obstacle(idle, lambda: True, 0, lambda: False) == "the daemon records"
    assert find_obstacle(idle, lambda: False, 0, lambda: False) is None
    assert "metered" in str(find_obstacle(idle, lambda: False, 0, lambda: True))
    dear = UploadSettings("s3://b", metered=True)
    assert find_obstacle(dear, lambda: False, 0, lambda: True) is None


@pytest.mark.parametrize(("told", "metered"), [("yes", True), ("yes (guessed)", True), ("no", 0)])
def test_networkmanager_tells_whether_a_link_is_metered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, metered: bool
) -> None:
    """Of the device of the default route, in the format of proc_net_route(5)."""
    routes = tmp_path / "route"
    routes.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
        "wwan0\t00000000\t00000000\t0001\t0\t0\t100\t00000000\t0\t0\t0\n"
        "eth0\t0002A8C0\t00000000\t0001\t0\t0\t50\t00FFFFFF\t0\t0\t0\n"
    )
    program = tmp_path / "bin/nmcli"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "-g GENERAL.METERED device show wwan0" ] && echo "{told}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(pending_uploads, "_ROUTES", routes)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin")
    assert pending_uploads.is_metered() == metered
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pending_uploads.is_metered() is False  # nobody knows


def test_finished_sessions_are_uploaded_and_the_others_wait(tmp_path: Path) -> None:
    config = load(tmp_path, text(tmp_path, mbit=1000))
    first = finished(make_session(tmp_path / "root/a"))
    make_session(tmp_path / "root/b")  # without its checksums
    ring = finished(make_session(tmp_path / "root/ring"))
    header = ring / "_recorder/session.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | {"ring": True}))
    kept = finished(make_session(tmp_path / "root/kept"))
    (kept / "_recorder/keep").write_text("{}")
    failed: list[str] = []

    def failure(path: Path, error: Exception) -> None:
        failed.append(f"{path.name}: {error}")

    done = list(upload_pending(config, failure, look=lambda: None))
    assert [each.session for each in done] == [kept, first] and failed == []
    assert not done[0].read_back
    _, waiting = pending_uploads.find_due_uploads(config)
    assert waiting == {str(tmp_path / "root/b"): "is not finished: checksums; uploaded later"}
    assert list(upload_pending(config, failure, look=lambda: None)) == []
    # Where sessions are deleted, uploads are read back.
    config = load(tmp_path, text(tmp_path, "retention: {gb: 100}"))
    assert {each.read_back for each in upload_pending(config, failure, look=lambda: None)} == {True}
    assert list(upload_pending(config, failure, look=lambda: None)) == []


def test_an_upload_stops_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_uploads, "_LOOK_S", 0.0)
    config = load(tmp_path, text(tmp_path))
    session = finished(make_session(tmp_path / "root/a"))
    looks = iter([None, None, None, "the daemon records"])
    with pytest.raises(NotNowError, match="the daemon records"):
        list(upload_pending(config, lambda *_: None, look=lambda: next(looks)))
    store = open_store(f"file://{tmp_path}/store")
    there = [found.key for found in store.list()]
    assert 2 <= len(there) < 6 and not any(key.startswith("_manifests") for key in there)
    assert not (session / "_recorder/uploaded.json").exists()
    assert len(list(upload_pending(config, lambda *_: None, look=lambda: None))) == 1


def test_a_disk_that_is_not_mounted_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the recordings would fill the disk that the mount point is on."""
    config = tmp_path / "rig.yaml"
    config.write_text(text(tmp_path))
    finished(make_session(tmp_path / "root/a"))
    (tmp_path / "store").rmdir()
    assert main(["upload", "--pending", str(config)]) == 0
    assert "store: there is no such folder; is its disk mounted?" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_what_was_labelled_after_its_upload_is_kept(tmp_path: Path) -> None:
    """Labels that are only here are not deleted with the session; a new report changes nothing."""
    config = load(tmp_path, text(tmp_path, "retention: {gb: 0}"))
    url, session = str(config.upload.url), finished(make_session(tmp_path / "root/a"))
    assert [each.session for each in upload_pending(config, fail, look=lambda: None)] == [session]
    assert is_safe_at(session, url)
    (session / "report.html").write_text("another one")
    (session / "_archives/new").write_text("")
    assert is_safe_at(session, url) and pending_uploads.find_due_uploads(config) == ([], {})
    (session / "_labels").mkdir()
    (session / "_labels/front.jsonl").write_text("{}\n")
    assert not is_safe_at(session, url)
    why = f"has changed since its upload into {url}; it is not deleted here"
    assert pending_uploads.find_due_uploads(config) == ([], {str(session): why})
    done = upload_session(session, open_store(url), read_back=True)
    assert "_labels/front.jsonl" in done.changed and not is_safe_at(session, url)
    (session / "_labels/front.jsonl").unlink()
    assert not is_safe_at(session, url)  # nobody has compared it since
    upload_session(session, open_store(url), read_back=True)
    (session / "_labels").rmdir()
    assert is_safe_at(session, url)


def fail(session: Path, error: Exception) -> None:
    raise AssertionError(f"{session}: {error}")


def test_a_server_that_is_not_there_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    config = tmp_path / "rig.yaml"
    config.write_text(text(tmp_path, url="s3://fleet/v"))
    for name in ("a", "b"):
        finished(make_session(tmp_path / "root" / name))
    assert main(["upload", "--pending", str(config)]) == 0
    said = capsys.readouterr().err
    assert said.startswith("recorder upload: not now: s3://fleet/v/") and said.count("\n") == 1
    assert "the server cannot be reached" in said
    assert main(["upload", str(tmp_path / "root"), "s3://fleet/v"]) == 1
    assert capsys.readouterr().err.count("the server cannot be reached") == 1


@pytest.mark.parametrize(
    ("upload", "message"),
    [
        ({"url": "ftp://x"}, "upload.url: needs s3://BUCKET/PREFIX or file:///FOLDER"),
        ({"url": "s3://key:secret@b"}, "upload.url: needs"),
        ({"when": "at night"}, "upload.when: needs idle, always, or hours such as 22:00-06:00"),
        ({"when": "24:00-06:00"}, "upload.when: needs idle"),
        ({"mbit": 0}, "upload.mbit"),
        ({"credentials": "missing"}, "upload.credentials: no such file"),
        ({"bucket": "x"}, "upload.bucket"),
    ],
)
def test_a_wrong_section_is_one_clear_message(
    tmp_path: Path, upload: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")) as error:
        load(tmp_path, text(tmp_path, **upload))
    assert str(tmp_path) in str(error.value) and "secret" not in str(error.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    for name in ("a", "b"):
        make_session(root / name)
    url = f"file://{tmp_path}/store"
    assert main(["upload", str(root), url, "--mbit", "10000"]) == 0
    said = capsys.readouterr()
    assert f"{root}/a: " in said.out and f"  {url}/_manifests/b.json" in said.out
    assert " sent in " in said.out and said.err == ""
    make_session(tmp_path / "other/a", seed=3)
    make_session(tmp_path / "other/c", seed=3)
    assert main(["upload", str(tmp_path / "other"), url, "--format", "json"]) == 1
    said = capsys.readouterr()
    values = json.loads(said.out)
    assert [each["manifest"] for each in values["uploads"]] == ["_manifests/c.json"]
    assert values["failed"] == [f"{tmp_path}/other/a"]
    assert said.err.count("\n") == 1 and "another session of this name" in said.err
    assert main(["upload", str(root / "a"), url]) == 0
    assert "all there already" in capsys.readouterr().out


def test_the_command_with_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "rig.yaml"
    config.write_text(text(tmp_path))
    finished(make_session(tmp_path / "root/a"))
    make_session(tmp_path / "root/b")
    assert main(["upload", "--pending", str(config)]) == 0
    said = capsys.readouterr()
    assert "_manifests/a.json" in said.out
    assert "root/b: is not finished: checksums; uploaded later" in said.err
    config.write_text(text(tmp_path, when="03:00-03:00"))
    assert main(["upload", "--pending", str(config)]) == 0
    assert "not now: it is not between 03:00 and 03:00" in capsys.readouterr().err
    config.write_text(text(tmp_path, url=None))
    assert main(["upload", "--pending", str(config)]) == 2
    assert "upload.url: names no store" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["upload"], "needs SESSION_OR_ROOT and URL, or --pending"),
        (["upload", "x"], "needs SESSION_OR_ROOT and URL, or --pending"),
        (["upload", "x", "s3://b", "--pending", "c"], "--pending: takes nothing else"),
        (["upload", "x", "s3://b", "--mbit", "0"], "--mbit: 0 is no rate"),
        (["upload", "x", "http://b"], "http://b: is no store; needs s3://BUCKET/PREFIX"),
    ],
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_an_empty_root_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upload", str(tmp_path), f"file://{tmp_path}/store"]) == 1
    assert "no sessions here" in capsys.readouterr().err


def test_without_boto3_a_folder_works_and_s3_says_what_is_missing(tmp_path: Path) -> None:
    session = make_session(tmp_path / "a")
    program = (
        "import sys; sys.modules['boto3'] = None\n"
        "from recorder.cli import main\n"
        f"assert main(['upload', {str(session)!r}, 'file://{tmp_path}/store']) == 0\n"
        f"sys.exit(main(['upload', {str(session)!r}, 's3://bucket/x']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "s3://bucket/x: needs the extra s3 (" in done.stderr


def test_clips_and_what_is_kept_go_first(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    a, b, c, d = (make_session(tmp_path / name) for name in names)
    (c / "_recorder/keep").write_text("{}")
    header = d / "_recorder/session.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | {"origin": {}}))
    assert sort_by_urgency([b, a, d, c]) == [c, d, a, b]


def test_pending_uploads_are_encrypted_for_the_configs_recipients(tmp_path: Path) -> None:
    finished(make_session(tmp_path / "root/drive"))
    key = str(pyrage.x25519.Identity.generate().to_public())
    config = load(tmp_path, text(tmp_path, "retention: {days: 1}", recipients=[key], when="always"))
    (done,) = upload_pending(config, lambda path, error: pytest.fail(str(error)), look=lambda: None)
    store = open_store(done.url)
    manifest = Manifest.decode(store.read("_manifests/drive.json"), "")
    assert manifest.recipients == (key,) and all(entry.segments for entry in manifest.files)
    assert is_safe_at(tmp_path / "root/drive", done.url)
