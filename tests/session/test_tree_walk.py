"""Folders that lie deeper in each other than calls may."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.cli import main
from recorder.session.checksums import data_files, write_checksums
from recorder.session.discovery import fail, walk
from recorder.session.summary import folder_bytes
from tests.integrity.vehicle import Vehicle


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """The last of many folders in a session that was recorded."""
    session = Vehicle(tmp_path / "sessions", None).record("drive")
    folder = session
    for _ in range(sys.getrecursionlimit() + 100):
        folder /= "d"
        folder.mkdir()
    (folder / "file").write_bytes(bytes(11))
    yield folder
    while folder != session:  # what removes the test's folder calls itself for each
        for path in folder.iterdir():
            path.unlink() if path.is_file() else path.rmdir()
        folder = folder.parent


def test_a_session_is_closed_whatever_lies_in_it(deep: Path, tmp_path: Path) -> None:
    session = tmp_path / "sessions/drive"
    assert deep.relative_to(session) / "file" in set(data_files(session))
    assert str(deep.relative_to(session) / "file") in write_checksums(session).read_text()
    before = folder_bytes(session)
    (deep / "file").write_bytes(bytes(12))
    assert folder_bytes(session) == before + 1


def test_verbs_read_such_a_session(
    deep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("validate", "verify", "info"):
        main([verb, str(tmp_path / "sessions/drive")])
        out, err = capsys.readouterr()
        assert "drive" in out, verb
        assert "too deep" not in out + err, verb


def test_links_are_not_followed_and_errors_are_told(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    (tmp_path / "a/round").symlink_to("..")
    found = {
        place: ([e.name for e in folders], [e.name for e in files])
        for place, folders, files in walk(tmp_path / "a", fail)
    }
    assert found == {
        str(tmp_path / "a"): (["b"], ["round"]), str(tmp_path / "a/b"): ([], ["file"])
    }  # fmt: skip
    assert list(walk(tmp_path / "none")) == []
    with pytest.raises(FileNotFoundError):
        list(walk(tmp_path / "none", fail))
    assert os.fspath(tmp_path) not in found
