"""A guard process that ends a program, with everything it has started, when its owner ends.

``python -m recorder.perception.redaction.guard LIFE COMMAND...``

LIFE is the descriptor of a pipe whose other end the owner holds; it closes when the owner ends, for
whatever reason.  The guard reaps the processes that the program leaves behind
(prctl(2), PR_SET_CHILD_SUBREAPER): processes of the program that outlive it are killed, so that no
pipe stays open.  The exit code is the program's; 128 and the signal's number if a signal killed it;
126 if it could not be started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from recorder.common.process_setup import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Run the program until it or the owner ends; return the exit code."""
    life, command = int(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches the owner, which ends this
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    begin = partial(_prepare_program, os.getpid())
    try:
        program = subprocess.Popen(command, preexec_fn=begin)
    except OSError as error:
        sys.stderr.write(f"cannot be started: {error.strerror}\n")
        return 126
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the pipes are the program's alone
        os.dup2(null, descriptor)
    ended = os.pidfd_open(program.pid)
    select.select([life, ended], [], [])
    code = program.poll()
    _end_all()
    if code is None:
        return 0
    return code if code >= 0 else 128 - code


def _prepare_program(guard: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    die_with_parent(guard)


def _end_all() -> None:
    """Kill all descendants, until there are none."""
    while True:
        for pid in _find_descendants():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _find_descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, waiting = list[int](), [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    sys.exit(main())
