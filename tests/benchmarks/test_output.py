"""Results as Markdown, JSON and plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Result
from benchmarks.output import benchmark_text, missing_table, table, text, write_results

HEAD: dict[str, Any] = {
    "command": "python -m benchmarks all",
    "when": "2026-11-23T07:00:00+00:00",
    "quick": True,
    "filesystem": "ext4",
    "machine": {
        "cpus": 4,
        "usable_cpus": 2,
        "memory_gb": 8,
        "machine": "x86_64",
        "system": "Linux 6",
        "python": "3.11",
        "packages": {"numpy": "2.0"},
        "load": 0.5,
        "commit": "1a334c3",
    },
}


def _results() -> list[Result]:
    rig = Result("rig", "The rig load.", "python -m benchmarks rig", {"camera": "real video"})
    rig.figures = [Figure("CPU ratio", [0.4, 0.6, 0.5]), Figure("samples missing", [0], "samples")]
    rig.seconds = 12.0
    grown = Result("growth", "Costs.", "python -m benchmarks growth", error="died\nof something")
    for size, cost in ((1, 2.0), (4, 8.0), (16, 32.0)):
        grown.figures.append(Figure(f"CPU, {size}", [cost], "CPU s", "CPU by streams", size))
    screen = Result("screen", skipped={"all": "no browser | none"})
    return [rig, grown, screen]


def test_columns_are_aligned() -> None:
    assert table(("a", "long"), [("wide cell", "b")]) == [
        "| a         | long |",
        "|-----------|------|",
        "| wide cell | b    |",
    ]


def test_a_cell_is_one_line_without_bars() -> None:
    assert table(("a",), [("x | y\nz",)])[2] == "| x \\| y z |"
    assert len(table(("a",), [("x" * 999,)])[2]) < 220


def test_what_is_missing_is_listed_with_its_reason() -> None:
    lines = missing_table(_results())
    assert "| screen    | all      | no browser \\| none        |" in lines
    assert "| growth    | the rest | failed: died of something |" in lines
    assert missing_table(_results()[:1]) == []


def test_a_benchmark_shows_command_data_and_spread() -> None:
    lines = benchmark_text(_results()[0])
    assert "`python -m benchmarks rig`, 12.0 s." in lines
    assert "- camera: real video" in lines
    (row,) = [line for line in lines if line.startswith("| CPU ratio")]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "CPU ratio", "0.500", "ratio", "0.400 to 0.600", "3",
    ]  # fmt: skip


def test_a_series_is_a_row_with_its_exponent() -> None:
    (row,) = [line for line in benchmark_text(_results()[1]) if "CPU by streams" in line]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "CPU by streams", "CPU s", "2.00", "8.00", "32.0", "1.00",
    ]  # fmt: skip


def test_figures_of_a_series_have_no_rows_of_their_own() -> None:
    assert not [line for line in benchmark_text(_results()[1]) if "CPU, 4" in line]


def test_the_whole_text_judges_the_targets() -> None:
    written = text(HEAD, _results())
    assert "**MISSED** | rig load, live packing, CPU" in written
    assert "| met        | samples lost or missing" in written
    assert "too short to judge" in written
    assert "2 of 4 cores" in written


def test_json_markdown_and_plots_are_written(tmp_path: Path) -> None:
    write_results(tmp_path / "out", HEAD, _results())
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"results.json", "results.md", "targets.svg", "rig.svg", "growth_growth.svg"}
    written = json.loads((tmp_path / "out" / "results.json").read_bytes())
    assert Result.from_json(written["results"][1]) == _results()[1]
    cpu = next(target for target in written["targets"] if target["figure"] == "CPU ratio")
    assert (cpu["verdict"], cpu["median"], cpu["limit"]) == ("MISSED", 0.5, 0.46)
    for name in ("targets", "rig", "growth_growth"):
        assert f"![{name}]({name}.svg)" in (tmp_path / "out" / "results.md").read_text()
        assert "<svg" in (tmp_path / "out" / f"{name}.svg").read_text()


def test_results_without_any_figure_are_written(tmp_path: Path) -> None:
    write_results(tmp_path, HEAD, [Result("screen", skipped={"all": "no browser"})])
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.md"}
