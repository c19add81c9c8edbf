"""When a trigger fires: edges, durations, releases, cooldowns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.config.settings import TriggerSettings
from recorder.recording.triggers.evaluation import Firing

S = 1_000_000_000


def fired(holds: str, releases: str = "", **settings: Any) -> list[int]:
    """The seconds at which a trigger fires: ``#`` where its condition holds, one a second."""
    firing = Firing(TriggerSettings("t", "True", **settings))
    found = []
    for second, one in enumerate(holds):
        free = releases[second] == "#" if releases else one != "#"
        if firing.update(second * S, one == "#", free):
            found.append(second)
    return found


def test_it_fires_at_edges() -> None:
    assert fired("..###..##.#") == [2, 7, 10]
    assert fired("###") == [0]
    assert fired("...") == []


def test_the_condition_must_hold_for_a_duration() -> None:
    assert fired("##.###.####", duration=2) == [5, 9]
    assert fired("##.##", duration=2) == []


def test_it_fires_again_when_it_was_released() -> None:
    assert fired("#.#.#.#", "...#...") == [0, 4]
    assert fired("#######", "..#....") == [0, 2]
    assert fired("#######", "...#...", duration=2) == [2, 5], "it must hold again"


def test_within_the_cooldown_it_does_not_fire_and_counts() -> None:
    assert fired("#.#.#.#", cooldown=3) == [0, 4]
    assert fired("#..#", cooldown=3) == [0, 3]
    firing = Firing(TriggerSettings("t", "True", cooldown=3))
    for second, one in enumerate("#.#.#.#"):
        firing.update(second * S, one == "#", one != "#")
    assert firing.suppressed == 2


@given(st.text("#.", max_size=40), st.integers(0, 4), st.integers(0, 6))
def test_properties(holds: str, duration: int, cooldown: int) -> None:
    times = fired(holds, duration=duration, cooldown=cooldown)
    for t in times:
        assert holds[t - duration : t + 1] == "#" * (duration + 1)
    for before, after in pairwise(times):
        assert after - before >= cooldown
        assert "." in holds[before:after]
    if not cooldown:
        runs = [run for run in holds.split(".") if len(run) > duration]
        assert len(times) == len(runs)
