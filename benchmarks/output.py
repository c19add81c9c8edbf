"""Output of results as JSON, as Markdown (which is also printed), and as plots in one folder.

``OUT/results.json``, ``OUT/results.md``, ``OUT/NAME.svg``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Result, fit_exponent, format_number
from benchmarks.targets import Verdict, verdicts

_LONGEST = 200
"""Largest number of characters of a cell; a failure's whole message is on stderr."""


def write_results(out: Path, head: dict[str, Any], results: Sequence[Result]) -> None:
    """Write all results into a folder; make the folder.

    Args:
        out: the folder.
        head: the machine, the time, and the command.
        results: one result per benchmark.
    """
    from benchmarks import plots  # takes a second to load

    out.mkdir(parents=True, exist_ok=True)
    judged = verdicts(results)
    written = {
        **head,
        "targets": [
            {
                **vars(v.target),
                "median": v.figure.median if v.figure else None,
                "spread": list(v.figure.spread) if v.figure else None,
                "verdict": v.word,
            }
            for v in judged
        ],
        "results": [result.to_json() for result in results],
    }
    (out / "results.json").write_text(json.dumps(written, indent=1) + "\n")
    names = plots.draw(out, results, judged)
    pictures = "".join(f"\n![{name}]({name}.svg)\n" for name in names)
    (out / "results.md").write_text(text(head, results) + "\n## Plots\n" + pictures)


def text(head: dict[str, Any], results: Sequence[Result]) -> str:
    """Format all results as Markdown."""
    machine = head["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    lines = [
        "# Benchmarks",
        "",
        f"`{head['command']}` at {head['when']}, commit {machine['commit']}, load {machine['load']}"
        " at the beginning.",
        f"{machine['usable_cpus']} of {machine['cpus']} cores, {machine['memory_gb']} GB, "
        f"{machine['machine']}, {machine['system']}, {head['filesystem']}, "
        f"Python {machine['python']}, {packages}.",
    ]
    if head["quick"]:
        lines += ["", "**Quick runs: too short to judge a target by.**"]
    if targets := target_table(verdicts(results)):
        lines += ["", "## Targets", "", *targets]
    if absent := missing_table(results):
        lines += ["", "## Not run", "", *absent]
    for result in results:
        lines += ["", *benchmark_text(result)]
    return "\n".join(lines) + "\n"


def target_table(judged: Iterable[Verdict]) -> list[str]:
    """Format a table of the targets with their figures; empty without targets."""
    rows = [
        (
            v.word if v.word != "MISSED" else "**MISSED**",
            v.target.work,
            v.target.against or "-",
            f"{v.target.sign} {v.target.limit:g}",
            str(v.figure) if v.figure else "-",
        )
        for v in judged
    ]
    heads = ("", "work", "against", "target", "median (least to most, rounds)")
    return table(heads, rows) if rows else []


def missing_table(results: Iterable[Result]) -> list[str]:
    """Format a table of the parts that were not run, and the reasons; empty if all were run."""
    rows = [
        (result.benchmark, what, why)
        for result in results
        for what, why in [
            *result.skipped.items(),
            *([("the rest", f"failed: {result.error}")] if result.error else []),
        ]
    ]
    return table(("benchmark", "what", "why"), rows) if rows else []


def benchmark_text(result: Result) -> list[str]:
    """Format one benchmark: its title, data and figures."""
    lines = [f"## {result.benchmark}", "", result.title, ""]
    lines.append(f"`{result.command}`, {format_number(result.seconds)} s.")
    if result.data:
        lines += ["", *(f"- {name}: {origin}" for name, origin in result.data.items())]
    if rows := [(f.name, *_cells(f)) for f in result.figures if not f.series]:
        lines += ["", *table(("figure", "median", "unit", "least to most", "rounds"), rows)]
    for grown in _growth_tables(result.figures):
        lines += ["", *grown]
    if result.notes:
        lines += ["", *(f"- {note}" for note in result.notes)]
    return lines


def _cells(figure: Figure) -> tuple[str, str, str, str]:
    least, most = map(format_number, figure.spread)
    several = len(figure.values) > 1
    spread = f"{least} to {most}" if several else "-"
    return format_number(figure.median), figure.unit or "ratio", spread, str(len(figure.values))


def _growth_tables(figures: Sequence[Figure]) -> list[list[str]]:
    """Format a table of medians for all series that were measured at the same sizes."""
    series: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.series:
            series.setdefault(figure.series, []).append(figure)
    groups: dict[tuple[float, ...], list[list[Figure]]] = {}
    for each in series.values():
        groups.setdefault(tuple(figure.size for figure in each), []).append(each)
    tables = []
    for sizes, group in groups.items():
        rows = []
        for each in group:
            exponent = fit_exponent(each)
            shown = "-" if exponent is None else f"{exponent:.2f}"
            cells = [format_number(figure.median) for figure in each]
            rows.append((each[0].series, each[0].unit or "ratio", *cells, shown))
        heads = ("figure", "unit", *(f"{size:g}" for size in sizes), "exponent")
        tables.append(table(heads, rows))
    return tables


def _one_line(cell: str) -> str:
    text = " ".join(cell.split()).replace("|", "\\|")
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format a table of Markdown with aligned columns."""
    cells = [tuple(heads), *((_one_line(cell) for cell in row) for row in rows)]
    made = [tuple(row) for row in cells]
    widths = [max(map(len, column), default=0) for column in zip(*made, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in made
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [lines[0], rule, *lines[1:]]
