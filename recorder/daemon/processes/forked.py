"""Children of this process that a fork server makes, faster than Python starts.

::

    server = ForkServer()                       # loads in the background what children share
    child = server.start(command, stdin="{}")   # OSError: start it as any other process
    server.finish()                             # the server ends, and its children begin to run

See `recorder.daemon.processes.fork_server`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO, Protocol, Self

from recorder.contract.launch import module_command
from recorder.daemon.processes.fork_server import GO, MOST_REQUEST

PATIENCE_S = 20.0
"""For one answer: the server may still compile what it loads."""
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_ROOM = 400
_PREFIX = module_command("")[:-1]


class Process(Protocol):
    """What the supervisor needs of a child process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def child_environment() -> dict[str, str]:
    """The environment of a child: numeric libraries start a thread per core by default."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class ForkedProcess:
    """A child of this process that it did not start itself; used as `subprocess.Popen` is.

    Attributes:
        pid: its process id.
        stdout, stderr: what it prints.
        returncode: its exit code, negative for a signal; None before its end is seen.
    """

    def __init__(self, command: Sequence[str], pid: int, stdout: int, stderr: int) -> None:
        self.args = list(command)
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self.stdout: IO[bytes] | None = open(stdout, "rb", buffering=0)  # noqa: SIM115
        self.stderr: IO[bytes] | None = open(stderr, "rb", buffering=0)  # noqa: SIM115
        self.returncode: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code; None while the process runs."""
        with self._lock:
            if self.returncode is None:
                # Until the server has ended, the process is the server's child.
                with contextlib.suppress(ChildProcessError):
                    ended = os.waitid(os.P_PIDFD, self._fd, os.WEXITED | os.WNOHANG)
                    if ended is not None:
                        exited = ended.si_code == os.CLD_EXITED
                        self.returncode = ended.si_status if exited else -ended.si_status
                        os.close(self._fd)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once the process has ended; TimeoutExpired after so many seconds."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            poller = select.poll()
            with contextlib.suppress(OSError, ValueError):  # another thread has seen its end
                poller.register(self._fd, select.POLLIN)
                poller.poll(100 if left_s is None else min(100, left_s * 1000 + 1))
        return code

    def terminate(self) -> None:
        """Send SIGTERM, unless the process has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._lock:
            if self.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._fd, number)


class ForkServer:
    """See the module's example; the server loads its modules while the caller goes on.

    Args:
        patience_s: for one answer of the server.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._problem: str | None = None
        self._go: list[int] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(patience_s)
        module = "recorder.daemon.processes.fork_server"
        try:
            _adopt_orphans(True)
            self._server = subprocess.Popen(
                module_command(module, str(os.getpid()), "." * _ROOM),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                process_group=0,
                env=child_environment(),
            )
        except OSError as error:  # no such call, no memory, too many processes
            self._problem = f"cannot be started: {error.strerror or error}"
        finally:
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def start(self, command: Sequence[str], stdin: str = "") -> ForkedProcess:
        """Start what `recorder.contract.launch.module_command` made; it runs after `finish`.

        Raises:
            OSError: the server has ended, or cannot start this.
        """
        if self._server is None or list(command[: len(_PREFIX)]) != _PREFIX:
            raise OSError("no fork server for this command")
        request = json.dumps(list(command[len(_PREFIX) :])).encode()
        if len(request) >= MOST_REQUEST:
            raise OSError("the command is too long for a fork server")
        with contextlib.ExitStack() as stack:
            source = os.memfd_create("stdin")  # a pipe could fill up before the child reads
            stack.callback(os.close, source)
            with open(source, "wb", closefd=False) as file:
                file.write(stdin.encode())
            os.lseek(source, 0, os.SEEK_SET)
            ours, theirs = [], [source]
            for reads in (True, True, False):  # standard output and error, and the go
                ends = os.pipe()
                ours.append(ends[0 if reads else 1])
                theirs.append(ends[1 if reads else 0])
                stack.callback(os.close, theirs[-1])
            try:
                socket.send_fds(self._socket, [request], theirs)
                pid = int(self._socket.recv(64))
                child = ForkedProcess(command, pid, *ours[:2])
            except (OSError, ValueError) as error:
                for fd in ours:
                    os.close(fd)
                self._problem = f"gave no answer: {error or 'it has ended'}"
                self._end(kill=True)
                raise OSError(self._problem) from error
            self._go.append(ours[2])
        return child

    def finish(self) -> str | None:
        """End the server, and let the children run; harmless when repeated.

        Returns:
            Why the server could not start all of them; None if it could.
        """
        self._end(kill=not self._go)
        for fd in self._go:
            with contextlib.suppress(BrokenPipeError):  # the child was killed
                os.write(fd, GO)
            os.close(fd)
        self._go.clear()
        return self._problem

    def _end(self, *, kill: bool) -> None:
        """End the server; its children are children of this process then."""
        self._socket.close()
        if self._server is not None:
            if kill:
                self._server.kill()
            self._server.wait()
            self._server = None
            _adopt_orphans(False)


def _adopt_orphans(adopt: bool) -> None:
    """Whether this process becomes the parent of its descendants that lose theirs."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt)) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
