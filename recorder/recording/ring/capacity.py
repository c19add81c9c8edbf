"""Checks of a ring's size and of the memory that it uses."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from recorder.config.settings import RingSettings, TriggerSettings
from recorder.recording.host.disk import file_system, nearest
from recorder.recording.ring.retention_policy import SLACK_NS, TRIGGER_NS

Problems = list[tuple[str, str]]
"""Problems as pairs of a config key and a description."""
_MOST_OF_MEMORY = 0.5
"""Share of the machine's memory that a ring in RAM may use."""


def ring_findings(
    ring: RingSettings, triggers: Sequence[TriggerSettings], rate: float
) -> tuple[Problems, list[str]]:
    """Return the problems and warnings of a ring, for `rate` bytes per second.

    A ring needs room for two more parts: the open one, and one that is only partly needed.
    """
    problems, warnings = _folder_problems(ring) if ring.ram_folder else [], []
    spare_s = 2 * ring.part_seconds + (SLACK_NS + TRIGGER_NS) / 1e9
    for trigger in triggers:
        if (needed := (trigger.before + spare_s) * rate) > ring.gb * 1e9:
            text = (
                f"{ring.gb:g} GB is too small for {trigger.before:g} s before "
                f"triggers.{trigger.name}: that takes {needed / 1e9:.2f} GB"
            )
            problems.append(("ring.gb", text))
    needed = (ring.seconds + spare_s) * rate
    if not problems and needed > ring.gb * 1e9:
        text = f"ring.gb: {ring.seconds:g} s take {needed / 1e9:.2f} GB: the ring will be shorter"
        warnings.append(text)
    if ring.ram_folder is not None and not problems:
        problems += _memory_problems(ring, min(needed, ring.gb * 1e9))
    return problems, warnings


def _folder_problems(ring: RingSettings) -> Problems:
    folder = ring.folder
    system = file_system(folder)
    kind = "unknown" if system is None else system.kind
    if kind not in ("tmpfs", "ramfs"):
        text = f"{folder} is not in RAM, its file system is {kind}: mount a tmpfs (docs/events.md)"
        return [("ring.folder", text)]
    return []


def _memory_problems(ring: RingSettings, needed: float) -> Problems:
    """Return why the tmpfs or the memory is too small for `needed` bytes."""
    size = shutil.disk_usage(nearest(ring.folder)).total
    if size < needed:
        text = (
            f"{ring.folder} has {size / 1e9:.2f} GB, {ring.seconds:g} s take {needed / 1e9:.2f} GB"
        )
        return [("ring.folder", text)]
    memory = _memory_bytes()
    if needed > _MOST_OF_MEMORY * memory:
        text = (
            f"{ring.seconds:g} s in RAM take {needed / 1e9:.2f} GB, more than half of the memory "
            f"({memory / 1e9:.2f} GB)"
        )
        return [("ring.seconds", text)]
    return []


def _memory_bytes(path: Path = Path("/proc/meminfo")) -> int:
    """Return the memory available to this process's control group, else the machine's, in bytes."""
    total = next(line for line in path.read_text().splitlines() if line.startswith("MemTotal:"))
    memory = 1024 * int(total.split()[1])
    try:
        group = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
        limit = Path(f"/sys/fs/cgroup{group}/memory.max").read_text().strip()
    except OSError:
        return memory
    return memory if limit == "max" else min(memory, int(limit))
