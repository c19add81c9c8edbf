"""Plots of results: the targets, every benchmark's figures, and growth with size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.figures import Figure, Result, fit_exponent, format_number
from benchmarks.targets import Verdict

_MET, _MISSED, _POINT = "#2a7f62", "#c1443c", "#33557f"
_LEAST, _MOST = 0.1, 100.0
_APART = 0.7  # between two labels, as the logarithm of their ratio
_ROW_INCHES, _WIDTH_INCHES = 0.34, 9.0


def draw(out: Path, results: Sequence[Result], judged: Sequence[Verdict]) -> list[str]:
    """Draw all plots; return their names without ``.svg``, in the order to show them."""
    names = []
    if measured := [(v, v.figure) for v in judged if v.figure is not None]:
        _save(_targets(measured), out / "targets.svg")
        names.append("targets")
    for result in results:
        if plain := [figure for figure in result.figures if not figure.series]:
            _save(_figures(result.benchmark, plain), out / f"{result.benchmark}.svg")
            names.append(result.benchmark)
        if sized := [figure for figure in result.figures if figure.series]:
            _save(_growth(result.benchmark, sized), out / f"{result.benchmark}_growth.svg")
            names.append(f"{result.benchmark}_growth")
    return names


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def _targets(measured: Sequence[tuple[Verdict, Figure]]) -> Any:
    """Plot the used share of each limit: left of 1 a target is met, whatever its sign."""
    figure, axes = plt.subplots(figsize=(_WIDTH_INCHES, 1 + _ROW_INCHES * len(measured)))
    for row, (verdict, values) in enumerate(measured):
        used = [_used(verdict, value) for value in values.values]
        colour = _MET if verdict.word == "met" else _MISSED
        middle = _used(verdict, values.median)
        axes.plot([min(used), max(used)], [row, row], color=colour, lw=2, alpha=0.4)
        axes.plot(used, [row] * len(used), "|", color=colour, ms=8)
        axes.plot([middle], [row], "o", color=colour)
        label = f"{format_number(values.median)} {verdict.target.sign} {verdict.target.limit:g}"
        axes.annotate(
            label, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8
        )
    axes.axvline(1, color="black", lw=1)
    axes.set_yticks(range(len(measured)), [_name(v) for v, _ in measured], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("share of the limit that is used; met left of 1")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", which="both", alpha=0.3)
    return figure


def _used(verdict: Verdict, value: float) -> float:
    target = verdict.target
    if target.sign == ">=":
        share = target.limit / value if value > 0 else _MOST
    else:
        share = value / target.limit if target.limit else 1.0 + value
    return min(max(share, _LEAST), _MOST)


def _name(verdict: Verdict) -> str:
    target = verdict.target
    whole = f"{target.work} / {target.against}" if target.against else target.work
    return whole if len(whole) <= 64 else whole[:63] + "…"


def _figures(benchmark: str, figures: Sequence[Figure]) -> Any:
    """Plot every repetition's value, a panel per unit."""
    units = list(dict.fromkeys(figure.unit for figure in figures))
    groups = [[figure for figure in figures if figure.unit == unit] for unit in units]
    heights = [len(group) + 1.6 for group in groups]
    made, panels = plt.subplots(
        len(units),
        1,
        figsize=(_WIDTH_INCHES, _ROW_INCHES * sum(heights) + 0.5),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    made.suptitle(benchmark)
    for axes, unit, group in zip(panels[:, 0], units, groups, strict=True):
        for row, figure in enumerate(group):
            axes.plot(figure.values, [row] * len(figure.values), "|", color=_POINT, ms=9)
            axes.plot([figure.median], [row], "o", color=_POINT)
        axes.set_yticks(range(len(group)), [figure.name for figure in group], fontsize=8)
        axes.set_ylim(len(group) - 0.4, -0.6)
        least, most = (f(v for figure in group for v in figure.values) for f in (min, max))
        room = 0.03 * (max(most, 0.0) - min(least, 0.0)) or 1.0
        axes.set_xlim(min(least, 0.0) - room, max(most, 0.0) + room)
        axes.axvline(0, color="black", lw=0.5)
        axes.set_xlabel(unit or "ratio", fontsize=8)
        axes.grid(axis="x", alpha=0.3)
    return made


def _growth(benchmark: str, figures: Sequence[Figure]) -> Any:
    """Plot cost by size, both logarithmic, with the exponent of the growth.

    The dashed line is growth in proportion to the work; the axis includes it for comparison.
    """
    names = list(dict.fromkeys(figure.series for figure in figures))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    made, panels = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 2.6 * rows), squeeze=False, layout="constrained"
    )
    made.suptitle(benchmark)
    for axes in panels.flat[len(names) :]:
        axes.axis("off")
    for axes, name in zip(panels.flat, names, strict=False):
        points = [figure for figure in figures if figure.series == name]
        sizes, costs = [p.size for p in points], [p.median for p in points]
        for point in points:
            axes.plot([point.size] * len(point.values), point.values, "_", color=_POINT)
        axes.plot(sizes, costs, "o-", color=_POINT)
        title = name
        if len(points) > 1 and min(*sizes, *costs) > 0:
            axes.loglog()
            if (exponent := fit_exponent(points)) is not None:
                title += f"\nsize^{exponent:.2f}"
            proportional = [costs[0] * size / sizes[0] for size in sizes]
            axes.plot(sizes, proportional, "--", color="grey", lw=1)
            axes.set_ylim(min(costs) / 1.5, max(*costs, proportional[-1]) * 1.5)
            axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
            ends = [costs[0], costs[-1]]
            if abs(math.log(ends[1] / ends[0])) < _APART:  # their labels would cover each other
                del ends[1]
            axes.set_yticks(ends, [format_number(cost) for cost in ends], fontsize=7)
        axes.minorticks_off()
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes.set_ylabel(points[0].unit or "ratio", fontsize=8)
        axes.set_title(title, fontsize=8)
        axes.grid(alpha=0.3)
    return made
