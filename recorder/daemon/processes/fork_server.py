"""Forks the first processes of a run from one that has loaded what they share.

``python -m recorder.daemon.processes.fork_server PARENT ROOM`` serves requests on the Unix socket
that is its standard input, and ends when the socket is closed (`recorder.daemon.processes.forked`
is the other side).  A request is a JSON list, the arguments of ``python -m``, with four
descriptors: the child's standard streams, and a pipe.  The answer is the child's process id.

A child waits for a byte on that pipe, and then runs the module as ``python -m`` does.  The byte
comes after this process has ended, when the children are children of PARENT (a subreaper, see
prctl(2)): so signals, exit codes and PDEATHSIG are those of processes that PARENT started itself.

Only what is loaded before a fork is shared: no thread runs and no ZeroMQ context exists by then,
and what a driver needs beyond that is imported in the child.

ROOM is text that makes this process's command line long enough for those of its children, which
are written over it (as setproctitle does): ``ps`` and ``pkill`` see ``-m drivers.camera``.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import sys
from pathlib import Path

from recorder.contract.process import die_with_parent

SHARED = ("drivers._kit.runner", "drivers.sim.world")
"""Loaded before the first fork: with numpy and ZeroMQ, what drivers and writer have in common."""
MOST_REQUEST = 1 << 16
GO = b"g"
_ARGUMENTS = slice(45, 47)  # proc(5): arg_start and arg_end, the fields 48 and 49; from the third


def main() -> None:
    """Serve until the socket is closed; in a child, run its module."""
    die_with_parent(int(sys.argv[1]))
    requests = socket.socket(fileno=os.dup(0))
    for module in SHARED:
        with contextlib.suppress(
            ImportError
        ):  # the child reports the error, if it needs the module
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    arguments = _serve(requests)
    if arguments is not None:
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork a child per request; returns its arguments in a child, None at the end."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, MOST_REQUEST, 4)
        if not message:
            return None
        arguments = json.loads(message)
        if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208  a lock may be held elsewhere
            sys.exit("fork server: a library has started a thread")
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become(arguments, fds)
            return [str(argument) for argument in arguments]
        requests.send(str(pid).encode())
        for fd in fds:
            os.close(fd)


def _become(arguments: list[str], fds: list[int]) -> None:
    """Take the standard streams and the command line of a child, and wait for its turn."""
    os.setpgid(0, 0)  # the supervisor alone gets Ctrl-C
    *streams, go = fds
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  open until the end
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    _show_command([sys.executable, "-P", "-m", *arguments])
    if os.read(go, 1) != GO:  # the supervisor has died, or has given this child up
        os._exit(1)
    os.close(go)


def _show_command(words: list[str]) -> None:
    """Write a command over this process's own, as the kernel shows it (/proc/PID/cmdline)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = map(int, fields[_ARGUMENTS])
    if 0 < start < end:
        text = "\0".join(words).encode()[: end - start - 1]
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
