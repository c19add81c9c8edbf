"""What an event promises is stored, or listed as missing with its cause: over random recordings."""

from __future__ import annotations

from recorder.session.event_clips import CAUSES, OPEN
from tests.campaigns import seeded
from tests.recording.ring.recording_model import (
    Recording,
    assert_promise,
    replace_events,
    without_shortfalls,
)


@seeded(150, weight=100, least=10_000)
def test_a_window_is_stored_or_its_shortfall_is_listed(seed: int) -> None:
    recording = Recording(seed)
    recording.run(60)
    assert_promise(recording)
    for event in recording.disk.events(lambda _: None):
        assert event.state != OPEN
        assert (event.state == "short") == bool(event.shortfalls)
        assert all(s.cause in CAUSES and s.from_ns < s.until_ns for s in event.shortfalls)


@seeded(30, weight=10, least=30)
def test_the_ring_takes_no_more_than_a_part_above_its_size(seed: int) -> None:
    recording = Recording(seed)
    for _ in range(80):
        recording.tick()
        # A part that is not closed yet cannot be deleted; here that is the open one, and one more.
        closing = sum(p.closes_at_ns is not None for p in recording.disk.parts.values())
        allowed = recording.ring.gb * 1e9 + (1 + closing) * recording.largest
        assert recording.held <= allowed


def test_runs_have_events_of_all_kinds() -> None:
    causes: set[str] = set()
    states: set[str] = set()
    count = 0
    for seed in range(60):
        recording = Recording(seed)
        recording.run(60)
        count += assert_promise(recording)
        for event in recording.disk.events(lambda _: None):
            states.add(event.state)
            causes.update(s.cause for s in event.shortfalls)
    assert count > 100 and states == {"kept", "short"}
    assert causes >= {"start", "stop", "power", "disk", "ring", "lost"}


def test_a_forgotten_shortfall_is_noticed() -> None:
    noticed = 0
    for seed in range(20):
        recording = Recording(seed)
        recording.run(60)
        if any(e.shortfalls for e in recording.disk.events(lambda _: None)):
            replace_events(recording.disk, without_shortfalls)
            recording.disk.apart.clear()
            recording.kept.clear()
            try:
                assert_promise(recording)
            except AssertionError as error:
                noticed += "neither stored nor listed" in str(error)
    assert noticed > 10
