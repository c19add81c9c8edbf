"""Time of the tests by folder, printed at the end of a run, and failures as they come.

Besides wall time the table has CPU time: of the process that ran the tests and of the processes
that they started and waited for.  Workers of pytest-xdist send both with the report of a test.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import PurePath

import pytest

_CPU = "cpu_s"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a report what the phase of the test took of the CPUs."""
    report = yield
    now = sum(os.times()[:4])
    report.user_properties = [*report.user_properties, (_CPU, now - item.session.stash[_cpu])]
    item.session.stash[_cpu] = now
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Print failures as they come."""
    config.pluginmanager.register(_Failures(config))


class _Failures:
    """Names of failed tests, at once: a run that is ended early has no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        printer = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and printer is not None:  # a worker of pytest-xdist has none
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message.partition("\n")[0][:160] if crash else ""
            printer.write_line(f"\nfailed: {report.nodeid} ({report.when}): {text}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to count: imports are of no folder."""
    session.stash[_cpu] = sum(os.times()[:4])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, slowest folder first."""
    rows: dict[str, list[float]] = {}  # wall time, CPU time, tests
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                cpu_s = sum(float(str(s)) for key, s in report.user_properties if key == _CPU)
                for name in (_find_folder(report.nodeid), "all"):
                    row = rows.setdefault(name, [0.0, 0.0, 0.0])
                    row[0] += report.duration
                    row[1] += cpu_s
                    row[2] += report.when == "call"
    if not rows:
        return
    terminalreporter.section("durations by folder")
    terminalreporter.line(f"{'wall s':>8} {'CPU s':>8} {'tests':>6}")
    for name, (wall_s, cpu_s, tests) in sorted(rows.items(), key=lambda row: -row[1][0]):
        terminalreporter.line(f"{wall_s:8.1f} {cpu_s:8.1f} {tests:6.0f} {name}")


def _find_folder(nodeid: str) -> str:
    return "/".join(PurePath(nodeid.partition("::")[0]).parts[:2])


_cpu = pytest.StashKey[float]()
