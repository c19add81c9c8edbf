"""One time budget for all campaigns, and seeds that rotate.

``--campaign-minutes`` is what all campaign tests of a run may take together.  A loop over seeds
gets the share that its weight is of what is still to be done, and always does its least, or the
part of it that ``--campaign-part`` names; of other tests with several cases, and of the properties,
that part is done as well::

    @pytest.mark.campaign(weight=60, least=10)   # about 60 s of a budget that suffices; 10 seeds
    def test_kills(campaign: Campaign) -> None:
        for seed in campaign.seeds():
            ...

    @seeded(2, weight=60, least=10)              # seeds 0 and 1 always, the others in campaigns
    def test_deaths(make_plane: Any, seed: int) -> None: ...

    def test_a_cut(select: Selector) -> None:    # 20 of the lengths, in campaigns every one
        for length in select(range(size), 20):
            ...

Other campaign tests take what they take; their weight is about what that is in seconds.  How many
seeds a loop did is printed at the end.  Which ones these are follows from ``--campaign-seed``, so
that a failure can be repeated.  No test may assert how many it did beyond its least.
"""

from __future__ import annotations

import functools
import inspect
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import is_hypothesis_test

MARK = "campaign"
PROPERTIES = "properties"
MINUTES = 13.0
PART = 1.0
SEEDS_APART = 100_000  # between two base seeds: more than any loop does
_WEIGHT = 3.0  # of a test that states none
_BEGAN, _JOBS = "campaign_began", "campaign_jobs"


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("campaigns")
    text = "what all campaign tests may take together, but for the least that each does"
    group.addoption("--campaign-minutes", type=float, default=MINUTES, help=text)
    text = "what part of its least, or of its cases, each test does: 0.25 a quarter"
    group.addoption("--campaign-part", type=float, default=PART, help=text)
    text = "base of the seeds: another one, other seeds"
    group.addoption("--campaign-seed", type=int, default=0, help=text)


class Budget:
    """The time of a run, shared out over what is still to be done.

    Args:
        ends: CLOCK_MONOTONIC in seconds when all should be done.
        jobs: tests that run at a time.
        weights: (file, weight) of each campaign test, in the order in which they run.
        clock: CLOCK_MONOTONIC in seconds.
    """

    def __init__(
        self,
        ends: float,
        jobs: int,
        weights: Sequence[tuple[str, float]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ends = ends
        self._jobs = jobs
        self._weights = weights
        self._clock = clock

    def share(self, index: int) -> float:
        """Seconds for the test of that index, from now on.

        What comes before it is taken for done, or as good as: tests run in order.  The rest of a
        file runs one by one (``--dist loadfile``), all the rest in so many jobs.
        """
        file, weight = self._weights[index]
        rest = self._weights[index:]
        of_all = sum(w for _, w in rest)
        of_file = sum(w for f, w in rest if f == file)
        left = max(self._ends - self._clock(), 0.0)
        return left * weight * min(self._jobs / of_all, 1 / of_file)


class Campaign:
    """The loop of one test.

    Attributes:
        done: seeds that it did.
        seconds: that they took.
    """

    def __init__(
        self,
        base: int,
        least: int,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        part: float = PART,
    ) -> None:
        self.first = base * SEEDS_APART
        self._part = part
        self.least = self.part_of(least)
        self.share = share
        self.done = 0
        self.seconds = 0.0
        self._clock = clock

    def part_of(self, count: int) -> int:
        """How many of the things that a test does at least are to be done."""
        return math.ceil(count * self._part)

    def seeds(self, enough: Callable[[], bool] = lambda: True) -> Iterator[int]:
        """Seeds until the share is used up, but its least, and until there is enough."""
        began = self._clock()
        while self.done < self.least or not enough() or self.seconds < self.share:
            seed = self.first + self.done
            print(f"seed {seed}")  # shown where it fails
            yield seed
            self.done += 1
            self.seconds = self._clock() - began

    def __str__(self) -> str:
        return (
            f"{self.done} seeds from {self.first} in {self.seconds:.0f} s"
            f" (share {self.share:.0f} s, least {self.least})"
        )


def seeded(always: int, *, weight: float, least: int) -> Callable[[Any], Any]:
    """Parametrize a test by ``seed``: so many at all times, rotating ones in campaigns."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*, seed: int | None, campaign: Campaign | None, **fixtures: Any) -> None:
            if campaign is None:
                test(seed=seed, **fixtures)
                return
            for rotating in campaign.seeds():
                test(seed=rotating, **fixtures)

        old = inspect.signature(test)
        more = inspect.Parameter("campaign", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = old.replace(  # type: ignore[attr-defined]
            parameters=[*old.parameters.values(), more]
        )
        rotating = pytest.param(
            None, id="rotating", marks=pytest.mark.campaign(weight=weight, least=least)
        )
        parametrized: Callable[..., None] = pytest.mark.parametrize(
            "seed", [*range(always), rotating]
        )(run)
        return parametrized

    return decorate


T = TypeVar("T")


class Selector:
    """Selects values for an exhaustive loop: some, the same in each run, or all.

    Args:
        seed: of the selection.
        part: of the values that is tried at least.
    """

    def __init__(self, seed: str, part: float = 0.0) -> None:
        self._dice, self._part = random.Random(seed), part

    def __call__(self, values: Iterable[T], count: int) -> list[T]:
        """The first and the last value and some between in their order: `count`, or the part."""
        every = list(values)
        count = max(count, math.ceil(self._part * len(every)))
        if len(every) <= count:
            return every
        between = self._dice.sample(range(1, len(every) - 1), count - 2)
        return [every[0], *(every[k] for k in sorted(between)), every[-1]]


# pytest's side; tests/conftest.py hands these on


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis makes the test's values."""
    return bool(is_hypothesis_test(getattr(item, "obj", None)))


def is_selective(item: pytest.Item) -> bool:
    """Whether the test selects the values that it tries."""
    return "select" in getattr(item, "fixturenames", ())


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the part of the cases that is to be done; the campaign's seed says which.

    Args:
        config: with ``--campaign-part`` and ``--campaign-seed``.
        items: all that were collected; those that are no campaigns stay.
    """
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker(MARK)
        if mark is not None and "least" not in mark.kwargs:
            name = PROPERTIES if is_property(item) else item.nodeid.partition("[")[0]
            families.setdefault(name, []).append(item)
    left_out: set[pytest.Item] = set()
    for name, cases in families.items():
        count = len(cases) - math.ceil(len(cases) * config.option.campaign_part)
        left_out.update(random.Random(f"{config.option.campaign_seed} {name}").sample(cases, count))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def begin(config: pytest.Config) -> None:
    """Note when the run began and how many jobs it has; workers are told."""
    reported: dict[str, Any] = getattr(config, "workerinput", {})
    config.stash[_began] = float(reported.get(_BEGAN, time.monotonic()))
    config.stash[_jobs] = int(reported.get(_JOBS, 1))


def tell_worker(node: Any) -> None:
    """Tell a worker of pytest-xdist what it cannot know."""
    node.workerinput[_BEGAN] = node.config.stash[_began]
    node.workerinput[_JOBS] = max(int(node.config.option.numprocesses or 1), 1)


def header(config: pytest.Config) -> str:
    options = config.option
    return (
        f"campaigns: {options.campaign_minutes:g} minutes, {options.campaign_part:g} of the least, "
        f"--campaign-seed {options.campaign_seed}"
    )


def collected(session: pytest.Session) -> None:
    """Share out the time over what was collected."""
    config = session.config
    items = [item for item in session.items if item.get_closest_marker(MARK)]
    weights = [(item.nodeid.partition("::")[0], _weight(item)) for item in items]
    ends = config.stash[_began] + 60 * config.option.campaign_minutes
    config.stash[_budget] = Budget(ends, config.stash[_jobs], weights)
    config.stash[_indices] = {item.nodeid: index for index, item in enumerate(items)}


def of_test(request: pytest.FixtureRequest) -> Iterator[Campaign | None]:
    """The loop of a campaign test, with its share; None for a test that is none."""
    mark = request.node.get_closest_marker(MARK)
    if mark is None:
        yield None
        return
    stash = request.config.stash
    share = stash[_budget].share(stash[_indices][request.node.nodeid])
    options = request.config.option
    least = mark.kwargs.get("least", 1)
    campaign = Campaign(options.campaign_seed, least, share, part=options.campaign_part)
    yield campaign
    if campaign.done:
        request.node.user_properties.append((MARK, str(campaign)))


def summary(reporter: pytest.TerminalReporter) -> None:
    """Print what each loop has done."""
    reports = reporter.getreports("")  # of the fixtures' ends
    lines = sorted(
        {
            f"{report.nodeid}: {text}"
            for report in reports
            for name, text in getattr(report, "user_properties", ())
            if name == MARK
        }
    )
    if lines:
        reporter.section("campaigns")
        reporter.line(header(reporter.config))
        for line in lines:
            reporter.line(line)


def _weight(item: pytest.Item) -> float:
    mark = item.get_closest_marker(MARK)
    return float(mark.kwargs.get("weight", _WEIGHT)) if mark else 0.0


_began = pytest.StashKey[float]()
_jobs = pytest.StashKey[int]()
_budget = pytest.StashKey[Budget]()
_indices = pytest.StashKey[dict[str, int]]()
