"""How the kernel treats a process of the recorder: CPUs, scheduling, niceness, I/O class.

What is not permitted is done without: recording goes on, and there is one warning per process.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Priority:
    """What is asked for one process; the defaults ask for nothing.

    Attributes:
        cpus: CPUs that it may run on; all where empty.
        nice: its niceness.
        policy: a key of `POLICIES`; None: as it is inherited.
        priority: of ``fifo`` and ``rr``, 1 to 99.
        io_class: a key of `IO_CLASSES`; None: follows the niceness.
        io_level: 0 (first) to 7 within its class.
    """

    cpus: tuple[int, ...] = ()
    nice: int = 0
    policy: str | None = None
    priority: int = 1
    io_class: str | None = None
    io_level: int = 4

    @classmethod
    def of(cls, settings: object) -> Priority:
        """The priority that a config's ``process`` section asks for.

        Args:
            settings: has the attributes of this class; those that it lacks are not asked for.
        """
        known = {name: getattr(settings, name, None) for name in cls.__slots__}
        return cls(**{name: value for name, value in known.items() if value is not None})

    def apply(self, pid: int) -> list[str]:
        """Give a process what is asked for; returns what the kernel refuses, with its reason.

        A process that is gone already is refused nothing.
        """
        refused = []
        for what, action in self._wishes(pid):
            try:
                action()
            except ProcessLookupError:
                return []
            except OSError as error:
                refused.append(f"{what} ({error.strerror or error})")
        return refused

    def _wishes(self, pid: int) -> Sequence[tuple[str, Callable[[], object]]]:
        wishes: list[tuple[str, Callable[[], object]]] = []
        if self.cpus:
            shown = ",".join(map(str, self.cpus))
            wishes.append((f"cpus {shown}", lambda: os.sched_setaffinity(pid, self.cpus)))
        if self.policy is not None:
            number = self.priority if self.policy in REALTIME else 0
            parameter = os.sched_param(number)
            shown = f"{self.policy} {number}" if number else self.policy
            policy = POLICIES[self.policy]
            wishes.append(
                (f"scheduling {shown}", lambda: os.sched_setscheduler(pid, policy, parameter))
            )
        if self.nice:
            wishes.append(
                (f"nice {self.nice}", lambda: os.setpriority(os.PRIO_PROCESS, pid, self.nice))
            )
        if self.io_class is not None:
            wishes.append((f"I/O class {self.io_class}", lambda: self._set_io(pid)))
        return wishes

    def _set_io(self, pid: int) -> None:
        number = _IOPRIO_SET.get(platform.machine())
        if number is None:
            raise OSError(0, f"not known for {platform.machine()}")
        assert self.io_class is not None
        value = IO_CLASSES[self.io_class] << _IO_CLASS_SHIFT
        if self.io_class != "idle":
            value |= self.io_level
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(number, _IOPRIO_WHO_PROCESS, pid, value) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
