"""A session's folder, or a file in it, that somebody removes or replaces while it is recorded.

The writer's descriptors go on working; what they write is in no session any more.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.command import TWO_IMUS
from tests.kills import Recording
from tests.support.waiting import wait_until

CONFIG = TWO_IMUS.replace("{min", "{sync_interval_ms: 50, min")
SECONDS = 4.0  # some 80 sync intervals
COMMIT = b"commit"
BEFORE = 20
ONE_AND_THE_ONE_BEGUN = 2
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h


@dataclass
class Deed:
    """What is done to a session.

    Attributes:
        path: the file or folder that it is done to, below the session.
        do: called with that path and a folder to hide things in.
    """

    path: str
    do: Callable[[Path, Path], object]


def remove(path: Path, attic: Path) -> None:
    path.rename(attic / path.name)  # at once: a folder that is written to cannot be emptied
    gone = attic / path.name
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()


def rename(path: Path, attic: Path) -> None:
    path.rename(attic / path.name)


def replace(path: Path, attic: Path) -> None:
    """By a copy, at once, as an editor or a tool that synchronizes folders does it."""
    copy = attic / path.name
    if path.is_dir():
        shutil.copytree(path, copy)
    else:
        shutil.copyfile(path, copy)
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(path), os.fsencode(copy)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


DEEDS = {
    "the folder is removed": Deed("", remove),
    "the folder is renamed": Deed("", rename),
    "the folder is replaced": Deed("", replace),
    "a channel is removed": Deed("imu/acc", remove),
    "a channel is replaced": Deed("imu/acc", replace),
    "a stream's folder is renamed": Deed("imu", rename),
    "the journal is removed": Deed("_recorder/commits", remove),
    "the journal is replaced": Deed("_recorder/commits", replace),
}


@pytest.mark.campaign(weight=4)
@pytest.mark.parametrize("what", DEEDS)
def test_what_vanishes_is_a_fault(tmp_path: Path, what: str) -> None:
    deed = DEEDS[what]
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    attic = tmp_path / "attic"
    attic.mkdir()
    recording = Recording(config, "s", SECONDS, "second")
    journal_path, path = recording.path / "_recorder/commits", recording.path / deed.path
    try:
        recording.wait_for_samples()
        fd = os.open(journal_path, os.O_RDONLY)
        try:
            wait_until("commits", lambda: path.exists() and commits(fd) >= BEFORE)
            deed.do(path, attic)
            before = commits(fd)  # of the file that the writer has open, wherever it is by now
            code, stderr = recording.finish()
            more = commits(fd) - before
        finally:
            os.close(fd)
    finally:
        recording.process.kill()
    assert code in (1, 3), stderr
    assert "Traceback" not in stderr
    assert any(str(path) in line for line in stderr.splitlines()[1:]), stderr
    assert more <= ONE_AND_THE_ONE_BEGUN, "nothing is acknowledged that is in no session"
    assert not recording.children()


def commits(fd: int) -> int:
    return os.pread(fd, os.fstat(fd).st_size, 0).count(COMMIT)
