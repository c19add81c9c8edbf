"""Targets of the figures, in ``targets.csv``; `verdicts` compares them with results."""

from __future__ import annotations

import csv
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from benchmarks.figures import Figure, Result

_HOLDS = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Target:
    """Limit of a figure.

    Attributes:
        work: the measured work.
        against: the comparison.
        benchmark, figure: names of the benchmark and the figure, whose median counts.
        sign, limit: comparison with which the target is met.
    """

    work: str
    against: str
    benchmark: str
    figure: str
    sign: Literal["<=", ">="]
    limit: float

    def holds(self, figure: Figure) -> bool:
        """Return whether a figure's median is within the limit."""
        return bool(_HOLDS[self.sign](figure.median, self.limit))


def _read_targets() -> Iterator[Target]:
    with Path(__file__).with_suffix(".csv").open(newline="") as file:
        for row in csv.DictReader(file):
            yield msgspec.convert(row, Target, strict=False)


TARGETS: Final = tuple(_read_targets())


@dataclass(frozen=True)
class Verdict:
    """A target and its measured figure; the figure is None if it was not measured."""

    target: Target
    figure: Figure | None

    @property
    def word(self) -> str:
        """Verdict as a word: ``met``, ``MISSED`` or ``not run``."""
        if self.figure is None:
            return "not run"
        return "met" if self.target.holds(self.figure) else "MISSED"


def verdicts(results: Iterable[Result]) -> list[Verdict]:
    """Return each target of the benchmarks that were run, with its figure."""
    by_name = {result.benchmark: result for result in results}
    return [
        Verdict(target, by_name[target.benchmark].figure(target.figure))
        for target in TARGETS
        if target.benchmark in by_name
    ]
