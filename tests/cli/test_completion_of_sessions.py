"""What `recorder run` still does with a closed session, in processes beside the drivers' end."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recorder.cli import post_session
from recorder.cli.post_session import Completion, SeparateProcess
from recorder.session.checksums import data_files, write_checksums
from tests.drivers.world.test_annotate import make_session
from tests.session.build import full_session

CHECKSUMS = Path("_recorder", "checksums.csv")


def digests(session: Path) -> dict[str, str]:
    with (session / CHECKSUMS).open(newline="") as file:
        return {row["file"]: row["md5"] for row in csv.DictReader(file)}


def fresh(session: Path) -> dict[str, str]:
    files = list(data_files(session))
    return {str(f): hashlib.md5((session / f).read_bytes()).hexdigest() for f in files}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return full_session(tmp_path / "rig", 0.2).path


def test_labels_are_in_the_checksums(tmp_path: Path) -> None:
    session = make_session(tmp_path / "simulated")
    with Completion(session, simulated=True) as completion:
        completion.finish()
    found = digests(session)
    assert found == fresh(session)
    assert {"_cuboids/truth.jsonl", "_pose/meta.json"} <= set(found)


def test_a_session_that_cannot_be_labelled_gets_its_checksums(
    session: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Completion(session, simulated=True) as completion:
        completion.finish()
    assert digests(session) == fresh(session)
    assert f"{session}: the simulation's labels could not be written" in capfd.readouterr().err


def test_checksums_that_cannot_be_written_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Completion(tmp_path / "gone", simulated=False) as completion:
        completion.finish()
    assert "gone: its checksums could not be written" in capfd.readouterr().err


def test_what_changes_while_checksums_are_made_is_read_again(session: Path) -> None:
    first, second, *_ = (session / f for f in data_files(session) if f.parent != Path())

    def others() -> None:
        (session / "_labels").mkdir()
        (session / "_labels" / "camera.jsonl").write_text("{}")
        data = first.read_bytes()
        first.write_bytes(bytes(255 - b for b in data))  # of the same size
        times = first.stat()
        os.utime(first, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))
        second.unlink()

    write_checksums(session, others)
    assert digests(session) == fresh(session)


def test_a_file_that_is_renamed_meanwhile_is_no_fault(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = iter([[*data_files(session), Path("_labels/.camera.part")], None])

    def listed(path: Path) -> list[Path]:
        given = next(listings)
        return list(data_files(path)) if given is None else given

    monkeypatch.setattr("recorder.session.checksums.data_files", listed)
    write_checksums(session)
    assert digests(session) == fresh(session)


@pytest.mark.parametrize(("given", "code"), [(b"", 1), (b"g", 0)])
def test_checksums_wait_for_the_word(session: Path, given: bytes, code: int) -> None:
    """Without it the recorder has died: labels may be missing, and the next one completes them."""
    command = [sys.executable, "-m", "recorder.session.checksums", str(session), "--wait"]
    done = subprocess.run(command, input=given, check=False)
    assert done.returncode == code and (session / CHECKSUMS).exists() == (code == 0)


def test_a_long_wait_is_reported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(post_session, "_SOON_S", 0.0)
    with SeparateProcess("this", stdin=False) as process:
        assert process.succeeds("writing labels")
    assert capfd.readouterr().err == "writing labels\n"


def test_an_interrupt_ends_the_process(session: Path) -> None:
    checksums = SeparateProcess("recorder.session.checksums", str(session), "--wait", stdin=True)
    with pytest.raises(KeyboardInterrupt), checksums:
        raise KeyboardInterrupt
    assert checksums._process.returncode is not None
    assert not (session / CHECKSUMS).exists()
