"""Priority of a process of the recorder: CPUs, scheduling, niceness, I/O class.

Recording continues without settings that are not permitted, with one warning per process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from recorder.common.syscalls import set_io_priority
from recorder.config.settings import ProcessSettings

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
