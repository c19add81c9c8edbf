"""CPU time and memory of other processes, read from outside."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

_LABELS = {
    "recorder.writer": "writer",
    "recorder.session.checksums": "checksums",
    "recorder.live": "live",
    "benchmarks.rig_drivers.camera": "camera",
    "benchmarks.rig_drivers.lidar": "lidar",
    "benchmarks.rig_drivers.radar": "radar",
    "benchmarks.rig_drivers.imu": "imu",
}


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of one process, user and system, without its children's."""
    times = process.cpu_times()
    return float(times.user + times.system)


class ProcessTree:
    """A process and all below it, as they come and go.

    Usage::

        tree = ProcessTree(pid)
        before = tree.cpu_seconds()     # by label: "supervisor", "writer", "camera", ...
        ...
        after = tree.cpu_seconds()      # of a process that has ended: its last known value

    Args:
        pid: the process at the top; it is called ``supervisor``.
    """

    def __init__(self, pid: int) -> None:
        self._top = psutil.Process(pid)
        self._known: dict[psutil.Process, str] = {self._top: "supervisor"}
        self._seconds: dict[psutil.Process, float] = {}

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds so far by label; processes of one label are added up."""
        try:
            for child in self._top.children(recursive=True):
                if child not in self._known:
                    self._known[child] = _label(child)
        except psutil.NoSuchProcess:
            pass
        total: dict[str, float] = {}
        for process, label in self._known.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                self._seconds[process] = cpu_seconds(process)
            total[label] = total.get(label, 0.0) + self._seconds.get(process, 0.0)
        return total

    def rss_bytes(self, label: str) -> int | None:
        """Resident memory of the process of that label; None where there is none."""
        for process, known in self._known.items():
            if known == label:
                try:
                    return int(process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
        return None


def _label(process: psutil.Process) -> str:
    try:
        command = process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return "other"
    return next((label for module, label in _LABELS.items() if module in command), "other")


@dataclass(slots=True)
class Memory:
    """Resident memory over time.

    Attributes:
        seconds: when, from the session's start.
        rss_bytes: how much.
    """

    seconds: list[float] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)

    def add(self, seconds: float, rss_bytes: int) -> None:
        """Take one reading."""
        self.seconds.append(seconds)
        self.rss_bytes.append(rss_bytes)

    @property
    def max_mb(self) -> float:
        """The largest reading, MB."""
        return max(self.rss_bytes, default=0) / 1e6

    @property
    def slope_mb_per_minute(self) -> float | None:
        """Slope of a line through the readings of the later half; None below four of them."""
        half = len(self.seconds) // 2
        if len(self.seconds) - half < 4:
            return None
        slope = np.polyfit(self.seconds[half:], np.array(self.rss_bytes[half:]) / 1e6, 1)[0]
        return float(slope) * 60


def file_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
