"""Figures of repeated runs, and their statistics.

>>> ours, theirs = [1.0, 1.2, 1.1], [2.0, 2.0, 2.0]
>>> str(Figure("ratio", ratios(ours, theirs)))
'0.55 (0.50 to 0.60, 3)'
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_SIGNIFICANT = 3
_NOISE = {"CPU s / s": 0.03, "CPU s": 0.1, "s": 0.1}
"""Costs by unit below which differences are mostly noise of the kernel's clock and other work."""


@dataclass(frozen=True)
class Figure:
    """One quantity of a benchmark: a value from each repetition.

    Attributes:
        name: unique in its benchmark; targets name it.
        values: one value per repetition, at least one, all finite.
        unit: unit of the values; empty for a ratio.
        series, size: for a figure that is measured at several sizes: the common name of its series
            (``writer CPU by streams``), and the figure's size (``4.0``).
    """

    name: str
    values: Sequence[float]
    unit: str = ""
    series: str = ""
    size: float = 0.0

    def __post_init__(self) -> None:
        if not self.values or not all(map(math.isfinite, self.values)):
            raise ValueError(f"{self.name}: no finite values: {list(self.values)}")
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))

    @property
    def median(self) -> float:
        """Median of the values."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """Least and greatest value."""
        return min(self.values), max(self.values)

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if len(self.values) == 1:
            return f"{format_number(self.median)}{unit}"
        least, most = map(format_number, self.spread)
        return f"{format_number(self.median)}{unit} ({least} to {most}, {len(self.values)})"

    def to_json(self) -> dict[str, Any]:
        """Return the figure with its statistics, as stored in the results file."""
        return {
            "name": self.name,
            "unit": self.unit,
            "series": self.series,
            "size": self.size,
            "median": self.median,
            "spread": list(self.spread),
            "repetitions": len(self.values),
            "values": list(self.values),
        }


@dataclass
class Result:
    """Result of one benchmark.

    Attributes:
        benchmark: name of the benchmark.
        title: summary of the measurement.
        command: the command that repeats the measurement.
        data: the recorded or packed data, by part.
        figures: figures in the order of measurement.
        notes: remarks for people.
        skipped: parts that were not run, and the reasons.
        error: why the benchmark ended early; empty if it did not.
        seconds: duration.
    """

    benchmark: str
    title: str = ""
    command: str = ""
    data: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0

    def figure(self, name: str) -> Figure | None:
        """Return the figure of a name; None if it was not measured."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the result in the form that `from_json` reads."""
        return vars(self) | {"figures": [figure.to_json() for figure in self.figures]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """Return a result from the form that `to_json` returns."""
        names = ("name", "values", "unit", "series", "size")
        figures = [Figure(**{name: f[name] for name in names}) for f in values["figures"]]
        return cls(**dict(values) | {"figures": figures})


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each round.

    `theirs` has as many runs as `ours`, or one more.  In a series A B A B A each B is compared with
    the mean of the A before it and the A after it, so that a machine that becomes slower or faster
    during the series favours neither.

    Raises:
        ValueError: the series have other lengths.
    """
    if len(theirs) == len(ours) + 1:
        theirs = [(before + after) / 2 for before, after in pairwise(theirs)]
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def growth(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent k of cost = c * size ** k, by least squares in logarithms.

    1: the cost is proportional to the work; 0: it does not depend on it; 2: it is quadratic.

    Raises:
        ValueError: fewer than two sizes, or a size or cost that is not positive.
    """
    if len(sizes) < 2 or min(*sizes, *costs) <= 0:
        raise ValueError(f"no growth in {list(costs)} at {list(sizes)}")
    logs = [(math.log(size), math.log(cost)) for size, cost in zip(sizes, costs, strict=True)]
    return statistics.linear_regression(*zip(*logs, strict=True)).slope


def fit_exponent(figures: Sequence[Figure]) -> float | None:
    """Return the growth of a series from its second largest size to its largest.

    Returns:
        the exponent; None if there are fewer than two sizes, or the costs are within the noise.
    """
    last = sorted(figures, key=lambda figure: figure.size)[-2:]
    costs = [figure.median for figure in last]
    if len(last) < 2 or min(costs) <= 0 or max(costs) < _NOISE.get(last[0].unit, 0.0):
        return None
    return growth([figure.size for figure in last], costs)


def format_number(value: float) -> str:
    """Format a number with three significant digits, without an exponent below a million."""
    if value == 0:
        return "0"
    digits = max(0, _SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"
