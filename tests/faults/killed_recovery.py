"""Kills a recovery before each of its calls that change something, and recovers again.

``python -m tests.faults.killed_recovery TEMPLATE WORK SEED STEP`` kills before every STEP-th call
and prints, as JSON, one object a line: ``{"kills": [N, ...], "result": {...}}``; the first is the
result of a recovery left alone.  It is a process of its own, so that what is forked has no threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest

from recorder.common.clock import SystemClock
from recorder.common.files import PosixDisk
from recorder.recording.writer.recovery import recover
from tests.faults.syscalls import Syscalls

_KILLED = 9


def result_of(path: Path) -> dict[str, str]:
    """What a recovery made of a session, by file, but for the times at which it did."""
    return {
        str(file.relative_to(path)): hashlib.md5(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name not in ("commits", "lock")
    }


def recover_until(path: Path, call: int) -> bool:
    """Recover in a process that dies before its call of that number; False: it had fewer."""
    pid = os.fork()
    if pid == 0:
        calls = count()

        def hook(name: str, where: str) -> None:
            if next(calls) == call:
                os._exit(_KILLED)

        Syscalls(path, pytest.MonkeyPatch()).hook = hook
        recover(path, PosixDisk(), SystemClock())
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, _KILLED):
        raise SystemExit(f"{path}: recovery ended with {code}")
    return code == _KILLED


def tell(path: Path, kills: list[int]) -> None:
    """Recover what the kills have left, and say what came of it."""
    recover(path, PosixDisk(), SystemClock())
    values: dict[str, Any] = {"kills": kills, "result": result_of(path)}
    print(json.dumps(values), flush=True)


def main() -> None:
    template, work = Path(sys.argv[1]), Path(sys.argv[2])
    seed, step = map(int, sys.argv[3:])
    rng = random.Random(seed)
    for call in chain([-1], count(0, step)):
        path = work / template.name
        shutil.copytree(template, path)
        kills = []
        if call >= 0:
            if not recover_until(path, call):
                return
            kills.append(call)
            second = rng.randrange(call + 1)  # and once more in the one that follows
            if recover_until(path, second):
                kills.append(second)
        tell(path, kills)
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
