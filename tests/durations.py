"""Time of the tests by folder, printed at the end of a run.

Besides wall time the table has CPU time: of the process that ran the tests and of the processes
that they started and waited for.  Workers of pytest-xdist send both with the report of a test.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

import pytest

_CPU = "cpu_s"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Add to a report what the phase of the test took of the CPUs."""
    report: pytest.TestReport = yield
    now = sum(os.times()[:4])
    report.user_properties = [*report.user_properties, (_CPU, now - item.session.stash[_cpu])]
    item.session.stash[_cpu] = now
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to count: imports are of no folder."""
    session.stash[_cpu] = sum(os.times()[:4])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, slowest folder first."""
    rows: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                row = rows.setdefault(_find_folder(report.nodeid), Counter())
                row["tests"] += report.when == "call"
                row["wall"] += report.duration
                row["cpu"] += sum(v for name, v in report.user_properties if name == _CPU)
    if not rows:
        return
    terminalreporter.section("durations by folder")
    total = Counter[str]()
    for row in rows.values():
        total.update(row)
    slowest = sorted(rows.items(), key=lambda item: -item[1]["wall"])
    terminalreporter.line(f"{'wall s':>8} {'CPU s':>8} {'tests':>6}")
    for name, row in [*slowest, ("all", total)]:
        terminalreporter.line(f"{row['wall']:8.1f} {row['cpu']:8.1f} {row['tests']:6} {name}")


def _find_folder(nodeid: str) -> str:
    return "/".join(PurePath(nodeid.partition("::")[0]).parts[:2])


_cpu = pytest.StashKey[float]()
