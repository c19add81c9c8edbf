"""Duration of each phase of a command, from the start of its process."""

from __future__ import annotations

import os
import time
from pathlib import Path

_START_FIELD = 19  # proc(5): starttime, the field 22; counted from the third


class PhaseTimer:
    """Seconds by phase; the first phase includes the start of Python::

    timer = PhaseTimer()
    config = load(path)
    timer.end("config")
    timer.seconds               # {"config": 0.31}
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began_s = time.monotonic() - _age_s()

    def end(self, name: str) -> None:
        """End a phase, and begin the next one."""
        now_s = time.monotonic()
        self.seconds[name] = round(now_s - self._began_s, 3)
        self._began_s = now_s


def _age_s() -> float:
    """Return the age of this process, to the kernel's tick (10 ms)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
