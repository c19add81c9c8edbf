"""Whether the processes of a soak leak, told from their memory as it was sampled.

A driver holds what is not acknowledged in its ring, and the writer what is under way: while a disk
is full or a writer is away, they are larger by as much, and smaller again afterwards.  So a peak
says nothing of a leak.  What a process needs at rest is its median; that must not grow, and no
process may be larger by more than the config lets it hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

MOST_GROWTH = 1.25
"""Of the median in the second half over that in the first."""
YOUNG_S = 5.0
"""A process younger than that is still importing."""
BESIDES_MB = 15.0
"""What a process may hold for a moment besides: a message on its way, pages that malloc keeps."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory of a process at a time of the soak; `name` is ``daemon``, ``writer`` or a
    sensor's."""

    at_s: float
    name: str
    age_s: float
    rss_mb: float


@dataclass
class Memory:
    """What was found, by process: medians of both halves, the peak; `wrong` has sentences."""

    halves_mb: dict[str, tuple[float, float]] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def judge(samples: Iterable[Sample], seconds: float, holds_mb: Mapping[str, float]) -> Memory:
    """Judge the samples of a soak of so many seconds.

    Args:
        samples: in any order; of young processes, too.
        seconds: how long the soak took.
        holds_mb: by process, what the config lets it hold (a ring); nothing where it is missing.
    """
    found = Memory()
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.age_s >= YOUNG_S:
            by_name.setdefault(sample.name, []).append(sample)
    for name, of_name in sorted(by_name.items()):
        peak = found.peak_mb[name] = max(sample.rss_mb for sample in of_name)
        late = [s.rss_mb for s in of_name if s.at_s > seconds / 2]
        early = [s.rss_mb for s in of_name if s.at_s <= seconds / 2]
        if not early or not late:  # it was killed over and over
            continue
        first, second = found.halves_mb[name] = median(early), median(late)
        if second > first * MOST_GROWTH:
            found.wrong.append(
                f"memory of {name} grows: {first:.0f} MB in the first half, {second:.0f} MB in the "
                f"second ({second / first:.2f} times as much; {MOST_GROWTH:g} are the bound)"
            )
        most = first + holds_mb.get(name, 0.0) + BESIDES_MB
        if peak > most:
            found.wrong.append(
                f"memory of {name}: {peak:.0f} MB at most, where {first:.0f} MB at rest and what "
                f"it may hold are {most:.0f} MB"
            )
    return found
