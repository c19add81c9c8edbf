"""A machine without memory for a thread: every process ends visibly, and a recording goes on."""

from __future__ import annotations

import errno
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from recorder.cli import main
from recorder.common.process_setup import start_thread
from recorder.recording.supervisor.children import Child
from recorder.session.reader import Session
from recorder.session.validation import validate
from tests.faults import failing_threads
from tests.faults.failing_threads import ERROR, HOW, MARK, MUTE, THREAD
from tests.recording.daemon.fakes import vehicle

CONFIG = """
version: 1
session: {root: sessions, name: drive}
sensors:
  imu: {driver: xsens, source: "sim:"}
storage: {min_free_gb: 0, buffer_mb: 16}
"""
TEXT = "can't start new thread: no memory is left"
END_S = 120.0  # the test is that it ends


def python(folder: Path, arguments: list[str], **failing: str) -> subprocess.CompletedProcess[str]:
    """A process in which, or in whose children, a thread cannot start."""
    shutil.copy(failing_threads.__file__, folder / "sitecustomize.py")
    failing = {MARK: str(folder / "failed"), **failing}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{Path.cwd()}", **failing},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )


SCRIPT = """
import threading
from recorder.common.process_setup import {call}
{call}()
stays = threading.Event()
threading.Thread(target=stays.wait).start()
threading.Thread(target=print, name="second").start()
"""


@pytest.mark.parametrize(
    ("call", "how"),
    [
        ("end_visibly", ERROR),
        ("end_visibly", MUTE),
        ("end_where_threads_cannot_begin", MUTE),
    ],
)
def test_a_process_ends_although_another_of_its_threads_runs(
    call: str, how: str, tmp_path: Path
) -> None:
    (tmp_path / "it.py").write_text(SCRIPT.format(call=call))
    done = python(tmp_path, ["it.py"], **{THREAD: "second", HOW: how})
    assert done.returncode == 70 and TEXT in done.stderr


def test_an_error_of_the_main_thread_ends_a_process_too(tmp_path: Path) -> None:
    text = SCRIPT.format(call="end_visibly").replace("target=print", "target=1 / 0")
    (tmp_path / "it.py").write_text(text)
    done = python(tmp_path, ["it.py"])
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr


def run(folder: Path, thread: str, how: str) -> subprocess.CompletedProcess[str]:
    """A recording in which a thread cannot start."""
    (folder / "c.yaml").write_text(CONFIG)
    arguments = ["-m", "recorder", "run", "c.yaml", "--duration", "1", "--no-finalize"]
    done = python(folder, arguments, **{THREAD: thread, HOW: how})
    assert (folder / "failed").exists(), "no thread failed: what is tested here?"
    return done


@pytest.mark.parametrize(
    ("thread", "how"),
    [
        ("close", MUTE),
        *(
            pytest.param(*case, marks=pytest.mark.campaign(weight=6))
            for case in (("close", ERROR), ("link", MUTE), ("link", ERROR))
        ),
    ],
)
def test_a_recording_goes_on_where_a_thread_could_not_start(
    thread: str, how: str, tmp_path: Path
) -> None:
    done = run(tmp_path, thread, how)
    assert TEXT in done.stderr and done.returncode in (0, 3), done.stderr
    path = tmp_path / "sessions/drive"
    assert validate(path, deep=True).sound
    with Session(path) as session:
        assert all(len(stream) for stream in session.streams.values())


@pytest.mark.parametrize(
    ("thread", "how"),
    [
        ("sync", MUTE),
        *(
            pytest.param(*case, marks=pytest.mark.campaign(weight=4))
            for case in (("append", ERROR), ("sync", ERROR), ("fdatasync", MUTE))
        ),
    ],
)
def test_a_recording_that_the_writer_could_not_begin_ends(
    thread: str, how: str, tmp_path: Path
) -> None:
    done = run(tmp_path, thread, how)
    assert TEXT in done.stderr and done.returncode == 1
    assert "recorder run: the writer ended before it answered (start)" in done.stderr


@pytest.mark.parametrize(
    ("thread", "how"),
    [("read-imu", ERROR), pytest.param("read-imu", MUTE, marks=pytest.mark.campaign)],
)
def test_the_command_ends_with_a_message(thread: str, how: str, tmp_path: Path) -> None:
    done = run(tmp_path, thread, how)
    assert "can't start new thread" in done.stderr and "Traceback" not in done.stderr
    # A child whose output no thread reads counts as not started, and is started again.
    assert done.returncode in ((0, 1, 3) if how == ERROR else (70,))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets every later start of a thread fail."""

    def fail(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    return lambda: monkeypatch.setattr(threading, "_start_new_thread", fail)


def test_a_child_that_no_thread_can_follow_counts_as_not_started(
    full: Callable[[], None],
) -> None:
    full()
    events: queue.SimpleQueue[tuple[str, dict[str, object]]] = queue.SimpleQueue()
    with pytest.raises(OSError, match="read-x: can't start new thread") as error:
        Child("x", [sys.executable, "-c", "input()"], events, lambda: None)
    assert error.value.errno == errno.EAGAIN and events.empty()
    left = [child.cmdline() for child in psutil.Process().children()]
    assert not any("input()" in command for command in left)


def test_what_a_daemon_does_beside_recording_waits_for_memory(
    tmp_path: Path, full: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with vehicle(tmp_path) as rig:
        full()
        daemon = rig.daemon()
        assert rig.ask("start")["ok"]
        rig.run(30)
        assert daemon.state == "recording" and rig.writer.session is not None
        assert [line for line in rig.lines if "thread ring_manager: can't start" in line]
        monkeypatch.undo()
        rig.run(1)
        assert daemon.ring_manager._thread is not None and daemon.ring_manager._thread.is_alive()


def test_a_library_that_cannot_start_a_thread_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("recorder.cli.info.run", fail)
    assert main(["info", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"recorder info: can't start new thread: no memory is left, .*\n", said)


def test_a_thread_that_was_started_before_is_a_bug() -> None:
    thread = threading.Thread(target=int)
    start_thread(thread)
    thread.join()
    with pytest.raises(RuntimeError, match="only be started once"):
        start_thread(thread)
