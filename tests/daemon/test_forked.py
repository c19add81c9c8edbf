"""Processes that the fork server makes are the supervisor's own children, as any others."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recorder.contract.config.settings import ProcessSettings
from recorder.contract.launch import driver_module_command, module_command
from recorder.daemon.processes import fork_server
from recorder.daemon.processes.children import Child, Event
from recorder.daemon.processes.forked import ForkedProcess, ForkServer

PATIENCE_S = 60.0


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, in which a driver's module may lie."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def forks(beside: Path) -> Iterator[ForkServer]:
    with ForkServer(PATIENCE_S) as server:
        yield server


def module(folder: Path, text: str) -> list[str]:
    (folder / "own_driver.py").write_text(textwrap.dedent(text))
    return driver_module_command("own_driver", "run", "--bus", "here")


def printed(process: ForkedProcess) -> tuple[str, str]:
    """What a process prints, until its end."""
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        out, err = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE_S)
    return out.decode(), err.decode()


def test_a_fork_runs_the_module_as_a_child_of_this_process(forks: ForkServer, beside: Path) -> None:
    command = module(
        beside,
        """
        import json, os, sys, threading
        about = {
            "name": __name__, "arguments": sys.argv[1:], "said": sys.stdin.read(),
            "parent": os.getppid(), "group": os.getpgid(0), "pid": os.getpid(),
            "folder": os.getcwd(), "threads": len(os.listdir("/proc/self/task")),
            "loaded": "drivers._kit.runner" in sys.modules,
            "fds": sorted(os.listdir("/proc/self/fd")),
        }
        print(json.dumps(about))
        print("for people", file=sys.stderr)
        sys.exit(7)
        """,
    )
    process = forks.start(command, "x" * 300_000)
    assert forks.finish() is None
    out, err = printed(process)
    about = json.loads(out)
    assert (process.returncode, err) == (7, "for people\n")
    assert about["name"] == "__main__" and about["arguments"] == ["run", "--bus", "here"]
    assert about["said"] == "x" * 300_000
    assert about["parent"] == os.getpid() and about["pid"] == about["group"] == process.pid
    assert (about["folder"], about["threads"], about["loaded"]) == (str(beside), 1, True)
    assert about["fds"] == ["0", "1", "2", "3"]  # 3 lists the folder


def test_a_fork_shows_the_command_that_it_stands_for(forks: ForkServer, beside: Path) -> None:
    text = "from pathlib import Path\nprint(Path('/proc/self/cmdline').read_text())"
    command = module(beside, text)
    process = forks.start(command)
    forks.finish()
    shown = printed(process)[0].strip().split("\0")
    assert [word for word in shown if word] == command


def test_children_begin_when_the_server_has_ended(forks: ForkServer, beside: Path) -> None:
    process = forks.start(module(beside, "from pathlib import Path\nPath('begun').touch()"))
    asked = ProcessSettings(nice=3)
    os.setpriority(os.PRIO_PROCESS, process.pid, asked.nice)
    (server,) = {psutil.Process(process.pid).ppid()}
    assert server != os.getpid() and not (beside / "begun").exists()
    forks.finish()
    assert not psutil.pid_exists(server)
    printed(process)
    assert process.returncode == 0 and (beside / "begun").exists()


def test_a_signal_is_the_exit_code_of_a_fork(forks: ForkServer, beside: Path) -> None:
    command = module(beside, "import time\nprint('up', flush=True)\ntime.sleep(600)")
    one, two = forks.start(command), forks.start(command)
    forks.finish()
    for process in one, two:
        assert process.stdout is not None and process.stdout.read(3) == b"up\n"
        assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.01)
    one.terminate()
    two.kill()
    assert one.wait(PATIENCE_S) == -signal.SIGTERM and two.wait(PATIENCE_S) == -signal.SIGKILL
    one.kill()  # harmless: its number may be another process's by now
    printed(one), printed(two)


def test_every_thread_sees_the_exit_code(forks: ForkServer, beside: Path) -> None:
    process = forks.start(module(beside, "import sys\nsys.exit(5)"))
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(process.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    forks.finish()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert codes == [5] * 4
    printed(process)


def test_a_failed_module_leaves_its_traceback(forks: ForkServer, beside: Path) -> None:
    process = forks.start(module(beside, "raise ValueError('no such lens')"))
    forks.finish()
    assert printed(process)[1].endswith("ValueError: no such lens\n")
    assert process.returncode == 1


def test_a_dead_server_costs_nothing_but_time(forks: ForkServer, beside: Path) -> None:
    command = module(beside, "print('up')")
    before = forks.start(command)
    os.kill(psutil.Process(before.pid).ppid(), signal.SIGKILL)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    child = Child("x", command, events, lambda: None, forks=forks)
    assert isinstance(child.process, subprocess.Popen)
    assert child.process.wait(PATIENCE_S) == 0
    child.end(0.0)
    problem = forks.finish()
    assert problem is not None and problem.startswith("gave no answer")
    assert printed(before)[0] == "up\n"  # it was forked, and is a child of this process


def test_what_is_no_module_of_this_python_is_refused(forks: ForkServer) -> None:
    with pytest.raises(OSError, match="no fork server for this command"):
        forks.start(["/bin/true"])
    with pytest.raises(OSError, match="too long"):
        forks.start(module_command("recorder.writer", "x" * 70_000))
    assert forks.finish() is None


def test_forks_die_with_this_process(tmp_path: Path) -> None:
    """A process that forks two children and is killed, one of them before it began."""
    (tmp_path / "own_driver.py").write_text(
        "import sys, time\n"
        "from recorder.contract.process import die_with_parent\n"
        "die_with_parent(int(sys.argv[1]))\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    code = (
        "import os, signal\n"
        "from recorder.contract.launch import driver_module_command as command\n"
        "from recorder.daemon.processes.forked import ForkServer\n"
        "words = command('own_driver', str(os.getpid()))\n"
        "first, second = ForkServer(), ForkServer()\n"
        "begun = first.start(words)\n"
        "first.finish()\n"
        "assert begun.stdout.read(3) == b'up\\n'\n"
        "print(begun.pid, second.start(words).pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    for pid in map(int, run.stdout.split()):
        try:
            psutil.Process(pid).wait(PATIENCE_S)
        except psutil.NoSuchProcess:
            continue


def test_a_thread_in_the_server_forbids_to_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock that another thread holds is held for ever in a fork."""
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forks"))
    try:
        with ours, theirs, Path(os.devnull).open("rb") as nothing:
            socket.send_fds(ours, [b"[]"], [nothing.fileno()] * 4)
            with pytest.raises(SystemExit, match="has started a thread"):
                fork_server._serve(theirs)
    finally:
        release.set()
        thread.join()


def test_what_is_shared_starts_no_thread_and_no_context() -> None:
    code = (
        "import os, sys, importlib\n"
        "from recorder.daemon.processes.fork_server import SHARED\n"
        "for module in SHARED: importlib.import_module(module)\n"
        "import zmq\n"
        "print(len(os.listdir('/proc/self/task')), zmq.Context._instance,\n"
        "      'numpy.random' in sys.modules, 'cv2' in sys.modules)\n"
    )
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "None", "False", "False"]
