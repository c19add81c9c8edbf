"""Archives whose samples are made by processes are those that one process makes."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.archives import finalize as finalizer
from recorder.archives.base import available, load_packer
from recorder.archives.finalize import ArchiveRequest, PackedArchive, collect, finalize
from recorder.archives.worker_process import WorkerProcess
from recorder.common.errors import ArchiveError
from tests.acceptance.command import contents
from tests.session.simulated import simulated_session

for package in ("numcodecs", "pyarrow", "mcap"):
    pytest.importorskip(package, reason=f"needs {package} (the extra `archives`)")

USERS = [name for name in available() if load_packer(name).worker_modules]
WAYS = {name: ArchiveRequest(name) for name in USERS} | {
    "ros2": ArchiveRequest("mcap", {"profile": "ros2", "maps": True, "iq": True}),
    "staggered": ArchiveRequest("mcap", {"points": "staggered", "lidar": "points_and_ranges"}),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_session(tmp_path_factory.mktemp("workers") / "drive", 0.8).path


def packed(out: Path) -> dict[str, str]:
    """Digests of the archives in a folder, without the records beside them, which have times."""
    return {path: digest for path, digest in contents(out).items() if "/" in path}


@pytest.mark.parametrize("way", WAYS)
def test_processes_change_nothing(
    session: Path, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for processes in (0, 2):
        monkeypatch.setattr(finalizer, "processes_for", lambda _, n=processes: n)
        (result,) = finalize(session, [WAYS[way]], out=tmp_path / str(processes))
        made.append((packed(tmp_path / str(processes)), result.notes))
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
    # Verification reads some samples; which ones depends on their number.
    monkeypatch.setattr("recorder.archives.finalize.sessions._find_warnings", lambda _: [])
    told = []
    for processes in (0, 2):
        monkeypatch.setattr(finalizer, "processes_for", lambda _, n=processes: n)
        with pytest.raises(ArchiveError) as caught:
            list(finalize(damaged, [ArchiveRequest(archive)], out=tmp_path / "out"))
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert told[0].startswith(f"{damaged}: {archive}: lidar, sample 5: ")
    assert not list((tmp_path / "out" / archive).iterdir())


def test_archives_packed_at_once_are_those_packed_apart(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [ArchiveRequest(archive) for archive in available()]
    monkeypatch.setattr(finalizer, "processes_for", lambda _: 2)
    at_once = list(finalize(session, steps, out=tmp_path / "at_once"))
    monkeypatch.setattr(finalizer, "processes_for", lambda _: 0)
    apart = [made for step in steps for made in finalize(session, [step], out=tmp_path / "apart")]
    assert packed(tmp_path / "at_once") == packed(tmp_path / "apart")
    assert list(map(told, at_once)) == list(map(told, apart))


def told(made: PackedArchive) -> tuple[Any, ...]:
    return made.archive, made.bytes, made.summary, made.notes


def test_a_killed_worker_is_one_clear_error_of_each_archive_that_uses_it(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = WorkerProcess.ask

    def killed(worker: WorkerProcess, task: Any) -> Any:
        os.kill(worker.pid, signal.SIGKILL)
        return ask(worker, task)

    monkeypatch.setattr(WorkerProcess, "ask", killed)
    monkeypatch.setattr(finalizer, "processes_for", lambda _: 2)
    failures: list[str] = []
    steps = [ArchiveRequest(archive) for archive in available()]
    made = finalize(session, steps, out=tmp_path, failed=lambda error: failures.append(str(error)))
    assert [result.archive for result in made] == [a for a in available() if a not in USERS]
    for text, archive in zip(failures, USERS, strict=True):
        assert text.startswith(f"{session}: {archive}: ")
        assert "a process that packs samples ended: SIGKILL" in text
    for archive in USERS:
        assert not list((tmp_path / archive).iterdir())


_STOPPED = """
import faulthandler, os, signal, sys, threading
from recorder.archives import finalize as finalizer
from recorder.__main__ import main
from recorder.archives import worker_process

ask, receive = worker_process.WorkerProcess.ask, worker_process.receive
asked = threading.local()

def ask_stopped(worker, task):
    os.kill(worker.pid, signal.SIGSTOP)
    asked.pid = worker.pid
    return ask(worker, task)

def say_and_receive(wire):
    os.write(1, b"%d\\n" % asked.pid)  # print() of two threads may mix their lines
    return receive(wire)

worker_process.WorkerProcess.ask = ask_stopped
worker_process.receive = say_and_receive
finalizer.processes_for = lambda _: 2
faulthandler.dump_traceback_later(100)  # where it hangs, should it hang
sys.exit(main())
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.campaign)]
)
def test_an_interrupted_command_leaves_no_process_and_no_file(
    session: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    words = [sys.executable, "-c", _STOPPED, "finalize", str(session), "--to", "mcap,ncore"]
    with subprocess.Popen(
        [*words, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        try:
            assert command.stdout is not None
            workers = [int(command.stdout.readline()) for _ in range(2)]
            command.send_signal(number)
            _, errors = command.communicate(timeout=500)
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            pytest.fail(f"it does not end: {command.communicate()[1]}")
        except BaseException:
            os.killpg(command.pid, signal.SIGKILL)
            raise
    assert command.returncode == 1
    assert "interrupted" in errors
    assert "Traceback" not in errors
    for worker in workers:
        assert not Path(f"/proc/{worker}").exists()
    assert not [path for path in out.rglob("*") if not path.is_dir()]
    with pytest.raises(ProcessLookupError):  # what workers were forked from has ended too
        for _ in range(1000):
            os.killpg(command.pid, 0)
            subprocess.run(["sleep", "0.02"], check=True)


def test_an_interrupt_while_archives_are_begun_ends_those_that_have_begun(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    class Interrupted(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            if self._threads:
                assert asked.wait(60)
                raise KeyboardInterrupt
            return super().submit(fn, *args, **kwargs)

    def stopped(worker: WorkerProcess, task: Any) -> Any:
        os.kill(worker.pid, signal.SIGSTOP)
        asked.set()
        return ask(worker, task)

    ask = WorkerProcess.ask
    monkeypatch.setattr(WorkerProcess, "ask", stopped)
    monkeypatch.setattr(finalizer, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(finalizer, "processes_for", lambda _: 2)
    with pytest.raises(KeyboardInterrupt):
        list(finalize(session, [ArchiveRequest("mcap"), ArchiveRequest("ncore")], out=tmp_path))
    assert not [path for path in tmp_path.rglob("*") if not path.is_dir()]


def test_workers_of_a_dataset_have_its_modules_from_the_start(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloaded: list[str] = []
    monkeypatch.setattr(forkserver, "set_forkserver_preload", preloaded.extend)
    monkeypatch.setattr(finalizer, "processes_for", lambda _: 2)
    list(collect([session], [ArchiveRequest("edgefirst")], tmp_path / "all"))
    assert set(load_packer("edgefirst").worker_modules) <= set(preloaded)


class Waits:
    def answer(self, task: Any) -> Any:
        return task


def test_two_threads_that_wait_for_the_end_of_a_worker_both_learn_how_it_ended() -> None:
    for _ in range(5):
        worker = WorkerProcess(Waits, ())
        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(worker.end) for _ in range(2)]
            os.kill(worker.pid, signal.SIGKILL)
            worker.stop()
            assert {end.result() for end in ends} == {"SIGKILL (no memory left?)"}
        worker.close()


class Collects:
    def answer(self, task: Any) -> Any:
        gc.collect()
        return gc.get_freeze_count(), len(gc.get_objects())


def test_a_collection_leaves_what_workers_share_alone() -> None:
    """Else each worker would copy the modules that are loaded already."""
    worker = WorkerProcess(Collects, ())
    try:
        frozen, own = worker.ask(None)
    finally:
        worker.stop()
        worker.close()
    assert frozen > 10 * own
