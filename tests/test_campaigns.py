"""The campaigns' budget is shared out whole, and each loop does its least."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.campaigns import SEEDS_APART, Budget, Campaign, Selector, choose, seeded


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_budget_is_shared_out_by_weight() -> None:
    clock = Clock()
    budget = Budget(1060.0, 1, [("a", 1.0), ("a", 3.0), ("b", 2.0)], clock)
    shares = []
    for index in range(3):
        shares.append(budget.share(index))
        clock.now += shares[-1]
    assert shares == [10.0, 30.0, 20.0]


def test_who_takes_longer_leaves_less_to_the_others() -> None:
    clock = Clock()
    budget = Budget(1060.0, 1, [("a", 1.0), ("b", 1.0), ("b", 1.0)], clock)
    clock.now += 50.0
    assert [budget.share(1), budget.share(2)] == [5.0, 10.0]
    clock.now += 20.0
    assert budget.share(2) == 0.0


def test_two_jobs_have_twice_the_time_but_a_file_has_one_job() -> None:
    weights = [("a", 1.0), ("b", 1.0), ("c", 1.0), ("c", 1.0)]
    budget = Budget(1060.0, 2, weights, Clock())
    assert [budget.share(index) for index in range(4)] == [30.0, 40.0, 30.0, 60.0]


@pytest.mark.parametrize("base", [0, 812])
def test_a_loop_does_its_least_though_there_is_no_time(base: int) -> None:
    campaign = Campaign(base, 3, 0.0, Clock())
    assert list(campaign.seeds()) == [base * SEEDS_APART + n for n in range(3)]
    assert campaign.done == 3


def test_a_loop_ends_when_its_share_is_used_up() -> None:
    clock = Clock()
    campaign = Campaign(0, 2, 10.0, clock)
    for _ in campaign.seeds():
        clock.now += 4.0
    assert (campaign.done, campaign.seconds) == (3, 12.0)


def test_a_part_of_the_least() -> None:
    campaign = Campaign(0, 10, 0.0, Clock(), part=0.25)
    assert campaign.part_of(10_000) == 2500
    assert len(list(campaign.seeds())) == 3
    assert Campaign(0, 1, 0.0, Clock(), part=0.01).least == 1


def test_a_loop_goes_on_until_there_is_enough() -> None:
    campaign, states = Campaign(0, 1, 0.0, Clock()), itertools.count()
    assert len(list(campaign.seeds(lambda: next(states) >= 5))) == 6


def test_a_failure_names_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        for seed in Campaign(7, 10, 0.0, Clock()).seeds():
            1 / (seed - 7 * SEEDS_APART - 2)
    assert capsys.readouterr().out.splitlines()[-1] == f"seed {7 * SEEDS_APART + 2}"


def test_a_seeded_test_runs_one_seed_or_all_of_a_campaign() -> None:
    ran: list[tuple[int, str]] = []

    def test(seed: int, tmp: str) -> None:
        ran.append((seed, tmp))

    run: Callable[..., None] = seeded(2, weight=1.0, least=4)(test)
    (mark,) = (m for m in run.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    values = mark.args[1]
    assert values[:2] == [0, 1] and [m.name for m in values[2].marks] == ["campaign"]
    run(seed=1, tmp="x", campaign=None)
    run(seed=None, tmp="y", campaign=Campaign(3, 4, 0.0, Clock()))
    assert ran == [(1, "x"), *((3 * SEEDS_APART + n, "y") for n in range(4))]


class Case:
    """What `choose` asks of a collected test."""

    def __init__(self, nodeid: str, **marked: Any) -> None:
        self.nodeid = nodeid
        self.obj = None
        self._mark = SimpleNamespace(kwargs=marked)

    def get_closest_marker(self, name: str) -> Any:
        return self._mark if name == "campaign" and "tests/plain" not in self.nodeid else None


def chosen(cases: list[Case], part: float, seed: int) -> list[str]:
    left_out: list[Case] = []
    config: Any = SimpleNamespace(
        option=SimpleNamespace(campaign_part=part, campaign_seed=seed),
        hook=SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items)),
    )
    items: list[Any] = list(cases)
    choose(config, items)
    assert sorted(items + left_out, key=cases.index) == cases
    return [item.nodeid for item in items]


def test_a_part_of_the_cases_of_each_test_is_done() -> None:
    many = [Case(f"tests/a.py::test_many[{n}]") for n in range(10)]
    always = [
        Case("tests/a.py::test_one"),
        Case("tests/plain.py::test_x[0]"), Case("tests/plain.py::test_x[1]"),
        *(Case(f"tests/a.py::test_loop[{n}]", least=4) for n in range(3)),
    ]  # fmt: skip
    kept = chosen([*many, *always], 0.25, 7)
    assert kept[3:] == [case.nodeid for case in always]
    assert len(kept) == 3 + len(always)
    assert chosen([*many, *always], 0.25, 7) == kept, "a run can be repeated"
    assert chosen(many, 1.0, 7) == [case.nodeid for case in many]
    tried = {name for seed in range(40) for name in chosen(many, 0.25, seed)}
    assert tried == {case.nodeid for case in many}, "other seeds, other cases"


def test_a_selection_has_both_ends_and_is_the_same_in_each_run() -> None:
    chosen = Selector("a test")(range(1000), 20)
    assert len(chosen) == len(set(chosen)) == 20 and chosen == sorted(chosen)
    assert (chosen[0], chosen[-1]) == (0, 999)
    assert chosen == Selector("a test")(range(1000), 20) != Selector("other")(range(1000), 20)
    assert Selector("a test")(range(20), 20) == list(range(20))
    assert Selector("a test", 1.0)(range(1000), 20) == list(range(1000))
    assert len(Selector("a test", 0.1)(range(1000), 20)) == 100
