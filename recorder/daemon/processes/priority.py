"""How the kernel treats a process of the recorder: CPUs, scheduling, niceness, I/O class.

What is not permitted is done without: recording goes on, and there is one warning per process.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Sequence

from recorder.contract.config.settings import ProcessSettings

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # linux syscall numbers of ioprio_set(2)
_IOPRIO_WHO_PROCESS = 1
_IO_CLASS_SHIFT = 13
IO_CLASSES = {"realtime": 1, "best-effort": 2, "idle": 3}
"""Names of ioprio_set(2)'s classes."""
POLICIES = {
    "other": os.SCHED_OTHER,
    "batch": os.SCHED_BATCH,
    "idle": os.SCHED_IDLE,
    "fifo": os.SCHED_FIFO,
    "rr": os.SCHED_RR,
}
"""Names of sched(7)'s policies."""
REALTIME = ("fifo", "rr")


def apply(settings: ProcessSettings, pid: int) -> list[str]:
    """Give a process what is asked for; returns what the kernel refuses, with its reason.

    A process that is gone already is refused nothing.
    """
    refused = []
    for what, action in _desired_state_file(settings, pid):
        try:
            action()
        except ProcessLookupError:
            return []
        except OSError as error:
            refused.append(f"{what} ({error.strerror or error})")
    return refused


def _desired_state_file(
    settings: ProcessSettings, pid: int
) -> Sequence[tuple[str, Callable[[], object]]]:
    desired_state_file: list[tuple[str, Callable[[], object]]] = []
    if settings.cpus:
        shown = ",".join(map(str, settings.cpus))
        desired_state_file.append(
            (f"cpus {shown}", lambda: os.sched_setaffinity(pid, settings.cpus))
        )
    if settings.policy is not None:
        number = settings.priority if settings.policy in REALTIME else 0
        parameter = os.sched_param(number)
        shown = f"{settings.policy} {number}" if number else settings.policy
        policy = POLICIES[settings.policy]
        desired_state_file.append(
            (f"scheduling {shown}", lambda: os.sched_setscheduler(pid, policy, parameter))
        )
    if settings.nice:
        desired_state_file.append(
            (f"nice {settings.nice}", lambda: os.setpriority(os.PRIO_PROCESS, pid, settings.nice))
        )
    if settings.io_class is not None:
        desired_state_file.append(
            (f"I/O class {settings.io_class}", lambda: _set_io(settings, pid))
        )
    return desired_state_file


def _set_io(settings: ProcessSettings, pid: int) -> None:
    number = _IOPRIO_SET.get(platform.machine())
    if number is None:
        raise OSError(0, f"not known for {platform.machine()}")
    assert settings.io_class is not None
    value = IO_CLASSES[settings.io_class] << _IO_CLASS_SHIFT
    if settings.io_class != "idle":
        value |= settings.io_level
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _IOPRIO_WHO_PROCESS, pid, value) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
