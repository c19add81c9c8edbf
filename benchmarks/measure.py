"""CPU time and memory of other processes, read from outside."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

_LABELS = {
    "recorder.recording.writer": "writer",
    "recorder.session.checksums": "checksums",
    "recorder.viewers.live": "live",
    "recorder.recording.triggers": "triggers",
    "drivers.can": "can",
    "drivers.hesai": "lidar",
    "benchmarks.rig_drivers.camera": "camera",
    "benchmarks.rig_drivers.lidar": "lidar",
    "benchmarks.rig_drivers.radar": "radar",
    "benchmarks.rig_drivers.imu": "imu",
    "drivers.camera": "camera",
    "drivers.topics": "topics",
    "drivers.lidar": "lidar",
}


_SAMPLE_S = 0.25
_PR_SET_CHILD_SUBREAPER = 36


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of one process, user and system, without its children's."""
    times = process.cpu_times()
    return float(times.user + times.system)


class ProcessTree:
    """A process and its descendants, as they start and end.

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
        """Return the CPU seconds so far by label; processes of one label are added up."""
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
        """Return the resident memory of a label's process; None if there is no such process."""
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
        seconds: times of the readings, from the session's start.
        rss_bytes: resident memory at these times.
    """

    seconds: list[float] = field(default_factory=list)
    rss_bytes: list[int] = field(default_factory=list)

    def add(self, seconds: float, rss_bytes: int) -> None:
        """Add one reading."""
        self.seconds.append(seconds)
        self.rss_bytes.append(rss_bytes)

    @property
    def max_mb(self) -> float:
        """Largest reading, MB."""
        return max(self.rss_bytes, default=0) / 1e6

    @property
    def slope_mb_per_minute(self) -> float | None:
        """Slope of a line through the later half of the readings; None below four readings."""
        half = len(self.seconds) // 2
        if len(self.seconds) - half < 4:
            return None
        slope = np.polyfit(self.seconds[half:], np.array(self.rss_bytes[half:]) / 1e6, 1)[0]
        return float(slope) * 60


def watch_processes(pid: int, label: str, seconds: float) -> tuple[dict[str, float], Memory]:
    """Watch a process and its descendants; return CPU s / s by label, and a label's memory."""
    tree, memory = ProcessTree(pid), Memory()
    before, begin_s = tree.cpu_seconds(), time.monotonic()
    while (elapsed_s := time.monotonic() - begin_s) < seconds:
        memory.add(elapsed_s, tree.rss_bytes(label) or 0)
        time.sleep(_SAMPLE_S)
    after = tree.cpu_seconds()
    return {name: (s - before.get(name, 0.0)) / elapsed_s for name, s in after.items()}, memory


class TreeMemory:
    """Sampler of the memory of a process and its descendants, in a thread, until closed.

    Memory is the proportional set size (PSS): a page that several processes share counts once.

    Args:
        pid: the process at the top.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._most = pid, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._thread.start()

    def close(self) -> float:
        """Stop sampling; return the peak, MB."""
        self._over.set()
        self._thread.join()
        return self._most / 1e6

    def _run(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            with contextlib.suppress(psutil.Error):
                top = psutil.Process(self._pid)
                processes = (top, *top.children(recursive=True))
                self._most = max(self._most, sum(map(_pss_bytes, processes)))


def _pss_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of its children's orphans (prctl(2)).

    This process can then wait for the orphans and read their CPU time from the kernel: a server of
    worker processes outlives the process that started it.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def file_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
