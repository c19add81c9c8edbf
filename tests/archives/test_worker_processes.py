"""Archives whose samples are made by processes are those that one process makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from recorder import finalizer
from recorder.archives import ArchiveError
from recorder.archives.base import available, load_packer
from recorder.finalizer import Step, finalize
from tests.acceptance.command import contents
from tests.session.simulated import simulated_session

for package in ("numcodecs", "pyarrow", "mcap"):
    pytest.importorskip(package, reason=f"needs {package} (the extra `archives`)")

USERS = [name for name in available() if load_packer(name).worker_modules]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_session(tmp_path_factory.mktemp("workers") / "drive", 1.2).path


@pytest.mark.parametrize("archive", USERS)
def test_processes_change_nothing(
    session: Path, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for processes in (0, 2):
        monkeypatch.setattr(finalizer, "processes_for", lambda _, n=processes: n)
        (result,) = finalize(session, [Step(archive)], out=tmp_path / str(processes))
        made.append((contents(tmp_path / str(processes)), result.notes))
    assert made[0] == made[1]


@pytest.mark.parametrize("archive", USERS)
def test_processes_tell_the_same_damage(
    session: Path, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = shutil.copytree(session, tmp_path / "drive")
    ends = np.fromfile(damaged / "lidar" / "rng_i", "<u8")
    with (damaged / "lidar" / "rng").open("r+b") as file:
        file.seek(int(ends[5]) + 40)
        file.write(bytes(20))
    told = []
    for processes in (0, 2):
        monkeypatch.setattr(finalizer, "processes_for", lambda _, n=processes: n)
        with pytest.raises(ArchiveError) as caught:
            list(finalize(damaged, [Step(archive)], out=tmp_path / "out"))
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert told[0].startswith(f"{damaged}: {archive}: lidar, sample 5: ")
    assert not list((tmp_path / "out" / archive).iterdir())
