"""Answers of several drivers from one process: ``python -m drivers.kit.queries``.

Most of the time of ``schema`` and ``check`` is the import of numpy and this kit.  This process
imports them once and forks a process for each driver, which answers as a process of its own does.

Standard input is a JSON object: ``verb``; ``queries``, a driver's module and the driver's standard
input each; ``parallel``, how many run at a time; ``timeout_s`` of each; ``most``, the bytes that
are kept of an output and of the errors.  The output is a JSON list with ``code`` (null: it did not
end in time), ``stdout``, ``stderr`` and ``seconds`` of each.  The process needs a process group of
its own: it ends that group if a driver did not end in time.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads should not fork

import drivers.kit.runner  # noqa: F401  imported by every driver
from recorder.common.module_launcher import run_driver_module
from recorder.common.process_setup import freeze_gc

_TICK_S = 0.01  # from the end of a process's output to its own


@dataclass
class _Query:
    """A process of a driver.

    Attributes:
        pid: its number.
        started_s: CLOCK_MONOTONIC.
        printed: its output and its errors by pipe.
        pipes: those that have not ended.
        code: its exit code, or minus its signal; None before its end.
        seconds: from its start to its end.
    """

    pid: int
    started_s: float
    printed: dict[int, bytearray]
    pipes: set[int] = field(init=False)
    code: int | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.pipes = set(self.printed)

    def has_ended(self) -> bool:
        """Return whether it and all that hold its pipes have ended."""
        if not self.pipes:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self.started_s
        return self.code is not None

    def answer(self) -> dict[str, Any]:
        """Return its entry of the output."""
        stdout, stderr = (part.decode(errors="replace") for part in self.printed.values())
        return {"code": self.code, "stdout": stdout, "stderr": stderr, "seconds": self.seconds}


def _fork(text: str) -> _Query | None:
    """Start a process whose standard input is the text; return None in that process."""
    started_s = time.monotonic()
    (output, stdout), (errors, stderr) = os.pipe(), os.pipe()
    with open(os.memfd_create("request"), "w+") as request:  # noqa: PTH123
        request.write(text)
        request.seek(0)
        pid = os.fork()
        if pid == 0:
            for target, source in enumerate((request.fileno(), stdout, stderr)):
                os.dup2(source, target)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115  the old one is at its end
            return None
    os.close(stdout)
    os.close(stderr)
    return _Query(pid, started_s, {output: bytearray(), errors: bytearray()})


def main() -> None:
    """Answer what is asked on standard input."""
    request = json.load(sys.stdin)
    waiting, timeout_s = request["queries"][::-1], request["timeout_s"]
    queries: list[_Query] = []
    running: list[_Query] = []
    selector = selectors.PollSelector()
    freeze_gc()  # a collection in a process that is forked would copy all that they share
    while waiting or running:
        while waiting and len(running) < request["parallel"]:
            module, text = waiting.pop()
            query = _fork(text)
            if query is None:
                run_driver_module(module, request["verb"])
                return
            for pipe, most in zip(query.printed, request["most"], strict=True):
                selector.register(pipe, selectors.EVENT_READ, (query, most))
            queries.append(query)
            running.append(query)
        ends_s = min(each.started_s for each in running) + timeout_s
        left_s = max(0.0, ends_s - time.monotonic())
        is_ending = not all(each.pipes for each in running)
        for key, _ in selector.select(min(left_s, _TICK_S) if is_ending else left_s):
            query, most = key.data
            if chunk := os.read(key.fd, 1 << 16):
                query.printed[key.fd] += chunk
                del query.printed[key.fd][:-most]
            else:
                selector.unregister(key.fd)
                query.pipes.discard(key.fd)
        for query in running[:]:
            if query.has_ended() or query.seconds >= timeout_s:
                running.remove(query)
                for pipe in query.pipes:
                    selector.unregister(pipe)
                query.pipes.clear()
    json.dump([query.answer() for query in queries], sys.stdout)
    sys.stdout.flush()
    if any(query.code is None for query in queries):
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
