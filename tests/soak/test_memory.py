"""What the soak makes of memory."""

from __future__ import annotations

from tests.soak.memory import Sample, judge

HOLDS = {"wide": 20.0}


def samples(*rss_mb: float, name: str = "wide", age_s: float = 60.0) -> list[Sample]:
    """One a second."""
    return [Sample(float(at_s), name, age_s, rss) for at_s, rss in enumerate(rss_mb)]


def test_a_ring_that_was_full_once_is_no_leak() -> None:
    found = judge(samples(*[41.0] * 60, *[62.0] * 5, *[41.0] * 55), 120.0, HOLDS)
    assert found.wrong == [] and found.peak_mb == {"wide": 62.0}
    assert found.halves_mb == {"wide": (41.0, 41.0)}


def test_a_leak_is_told_with_its_process_and_numbers() -> None:
    found = judge(samples(*[40.0 + at / 4 for at in range(120)]), 120.0, {"wide": 100.0})
    assert found.wrong == [
        "memory of wide grows: 48 MB in the first half, 62 MB in the second (1.32 times as much; "
        "1.25 are the bound)"
    ]


def test_what_nothing_explains_is_told() -> None:
    found = judge(samples(*[41.0] * 60, 99.0, *[41.0] * 59), 120.0, HOLDS)
    assert found.wrong == [
        "memory of wide: 99 MB at most, where 41 MB at rest and what it may hold are 76 MB"
    ]


def test_the_young_and_the_short_lived_are_not_judged() -> None:
    young = samples(*[10.0] * 60, *[90.0] * 60, age_s=1.0)
    early = samples(*[40.0] * 10, name="fast")
    assert judge([*young, *early], 120.0, HOLDS).wrong == []
