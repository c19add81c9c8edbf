"""Priority of a process, and a launcher of a module at background priority.

Recording continues without settings that are not permitted, with one warning per process.  The
launched module ends with its parent process::

    python -m recorder.recording.supervisor.background_process PARENT MODULE ARGS...
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from recorder.common.process_setup import die_with_parent
from recorder.common.syscalls import set_io_priority
from recorder.config.settings import ProcessSettings
from recorder.recording.supervisor.process_table import BACKGROUND

POLICIES = {
    "other": os.SCHED_OTHER,
    "batch": os.SCHED_BATCH,
    "idle": os.SCHED_IDLE,
    "fifo": os.SCHED_FIFO,
    "rr": os.SCHED_RR,
}
"""Scheduling policies of sched(7), by name."""
REALTIME = ("fifo", "rr")


def apply(settings: ProcessSettings, pid: int) -> list[str]:
    """Apply settings to a process; return the settings that the kernel refuses, with the reason.

    The list is empty for a process that has ended.
    """
    refused = []
    for what, action in _requested_settings(settings, pid):
        try:
            action()
        except ProcessLookupError:
            return []
        except OSError as error:
            refused.append(f"{what} ({error.strerror or error})")
    return refused


def _requested_settings(
    settings: ProcessSettings, pid: int
) -> Sequence[tuple[str, Callable[[], object]]]:
    requested: list[tuple[str, Callable[[], object]]] = []
    if settings.cpus:
        shown = ",".join(map(str, settings.cpus))
        requested.append((f"cpus {shown}", lambda: os.sched_setaffinity(pid, settings.cpus)))
    if settings.policy is not None:
        number = settings.priority if settings.policy in REALTIME else 0
        parameter = os.sched_param(number)
        shown = f"{settings.policy} {number}" if number else settings.policy
        policy = POLICIES[settings.policy]
        requested.append(
            (f"scheduling {shown}", lambda: os.sched_setscheduler(pid, policy, parameter))
        )
    if settings.nice:
        requested.append(
            (f"nice {settings.nice}", lambda: os.setpriority(os.PRIO_PROCESS, pid, settings.nice))
        )
    if settings.io_class is not None:
        io_class, level = settings.io_class, settings.io_level
        requested.append((f"I/O class {io_class}", lambda: set_io_priority(pid, io_class, level)))
    return requested


_FIRST_TO_GO = "500"  # oom_score_adj(5): the daemon's own is far below


def give_way() -> None:
    """Set the lowest priority for processor and disk, and a high rank for the OOM killer."""
    apply(BACKGROUND, os.getpid())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)


def main() -> None:
    """Run the module as ``python -m MODULE ARGS`` does."""
    parent, module, *arguments = sys.argv[1:]
    die_with_parent(int(parent))
    give_way()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
