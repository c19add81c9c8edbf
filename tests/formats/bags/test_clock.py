"""Steps of a recording's clock are distinguished from late messages and pauses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from recorder.formats.bags.clock import RecordingClock

S, MS = 1_000_000_000, 1_000_000
T0 = 1_700_000_000 * S


def clock_of(*entries: tuple[str, float], block: int = 1) -> RecordingClock:
    """A clock that has read (topic, log time in ms) in the order of the file."""
    clock = RecordingClock()
    for at in range(0, len(entries), block):
        found: dict[str, list[tuple[int, int]]] = {}
        for n, (topic, ms) in enumerate(entries[at : at + block]):
            found.setdefault(topic, []).append((at + n, T0 + round(ms * MS)))
        clock.take(
            {
                topic: (
                    np.array([n for n, _ in pairs], np.int64),
                    np.array([t for _, t in pairs], np.int64),
                )
                for topic, pairs in found.items()
            }
        )
    clock.finish()
    return clock


def one(times: list[float]) -> list[tuple[str, float]]:
    return [("a", ms) for ms in times]


def sizes(clock: RecordingClock) -> list[float]:
    return [step.step_ns / MS for step in clock.steps]


def run(start: float, count: int, gap: float = 10.0) -> list[float]:
    return [start + n * gap for n in range(count)]


@pytest.mark.parametrize(
    "times",
    [
        run(0, 50),
        [0, 10, 20, 19.5, 30, 40],  # one message a little late
        [0, 10, 20, 30, 15, 40, 50],
        [0, 10, 20, 50, 60, 30, 40, 70, 80, 90],  # a part that was written late
        [*run(0, 100), *run(2000, 100), *run(1000, 100), *run(3000, 100)],
        [*run(0, 10), *run(3_600_000, 10)],  # a pause
        [*run(0, 40), 380.5, *run(400, 40)],
        [*run(0, 101), 3000, *run(1010, 199), *run(3010, 50)],  # one message that came early
        [5, 4, 3, 2, 1, 0],
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_late_messages_and_pauses_are_no_steps(times: list[float], block: int) -> None:
    clock = clock_of(*one(times), block=block)
    assert clock.steps == [] and clock.shifts("a") == ([], [])


@pytest.mark.parametrize("back", [20, 25, 100, 105, 133, 500, 5_000, 60_000, 86_400_000])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_a_clock_that_was_set_back_is_a_step(back: float, block: int) -> None:
    clock = clock_of(*one([*run(0, 80), *run(800 - back, 90)]), block=block)
    assert sizes(clock) == [-back]
    assert clock.shifts("a") == ([80], [back * MS])
    (step,) = clock.steps
    assert (step.before_ns, step.after_ns) == (T0 + 790 * MS, T0 + round((800 - back) * MS))


def test_two_steps_add_up() -> None:
    clock = clock_of(*one([*run(0, 50), *run(400, 50), *run(700, 50)]))
    assert sizes(clock) == [-100, -200]
    assert clock.shifts("a") == ([50, 100], [100 * MS, 300 * MS])


def test_a_step_is_one_for_all_topics() -> None:
    """Of a slow topic no time goes back, and another topic begins after the step."""
    fast = [(t, "a", t - (100 if t >= 500 else 0)) for t in run(0, 100)]
    slow = [(t + 1, "b", t + 1 - (100 if t >= 500 else 0)) for t in run(0, 4, 330)]
    later = [(t + 2, "c", t + 2 - 100) for t in run(600, 10)]
    clock = clock_of(*((topic, log) for _, topic, log in sorted(fast + slow + later)))
    assert sizes(clock) == [-100]
    for topic in "abc":
        positions, shifts = clock.shifts(topic)
        assert shifts == [100 * MS] and len(positions) == 1


def test_another_topic_that_continues_disproves_a_step() -> None:
    """A topic of which a part was written again, as a buffer that is flushed twice."""
    good = [(t, "b", t) for t in run(0, 100)]
    twice = [(t + 1, "a", t - (200 if t >= 500 else 0)) for t in run(0, 70)]
    clock = clock_of(*((topic, log) for _, topic, log in sorted(good + twice)))
    assert clock.steps == []


def test_a_file_that_is_written_topic_by_topic_has_each_topics_steps_once() -> None:
    back = [t - (100 if t >= 300 else 0) for t in run(0, 60)]
    clock = clock_of(*[("a", t) for t in back], *[("b", t + 2) for t in back])
    assert sizes(clock) == [-100]
    assert clock.shifts("a") == ([30], [100 * MS]) and clock.shifts("b") == ([90], [100 * MS])


def test_a_recording_beside_another_has_its_own_clock() -> None:
    clock = RecordingClock()
    first = np.array([*run(0, 50), *run(400, 50)], np.int64) * MS + T0
    clock.take({"a": (np.arange(100), first)})
    clock.restart(100)
    second = np.array(run(0, 50), np.int64) * MS + T0
    clock.take({"a": (np.arange(100, 150), second)})
    clock.finish()
    assert sizes(clock) == [-100]
    assert clock.shifts("a") == ([50, 100], [100 * MS, 0])


def test_memory_does_not_grow_with_the_recording() -> None:
    clock = RecordingClock()
    for block in range(400):
        positions = np.arange(block * 1000, block * 1000 + 1000)
        clock.take({"a": (positions, T0 + positions * MS)})
    assert sum(len(topic.past) for topic in clock._topics.values()) < 20_000
    assert all(a[1] <= b[1] for a, b in pairwise(clock._topics["a"].past))
