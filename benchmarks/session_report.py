"""Cost of a session's report: time, memory and size at several lengths.

The session's own writer makes a session of each length, and ``recorder report`` runs in a separate
process.  The lengths show whether memory grows with a session.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Figure, Option, Run, recorder, run_measured, succeed
from recorder.session.summary import folder_bytes
from tests.viewers.report.hour import long_session

OPTIONS = {
    "lengths": Option("str", "20,60", "minutes of the sessions"),
    "rounds": Option("int", 3, "reports of each session", minimum=1),
}
QUICK = {"lengths": "2,8", "rounds": 1}


def measure(run: Run) -> Iterator[Figure]:
    """Make each session, and measure its reports."""
    run.data["sessions"] = "made by tests.viewers.report.hour"
    for minutes in map(int, run.options["lengths"].split(",")):
        with run.scratch() as folder:
            session = long_session(folder / str(minutes), 60 * minutes)
            done = [succeed(run_measured(recorder("report", session))) for _ in run.rounds()]
            report_mb = (session / "report.html").stat().st_size / 1e6
            session_mb = folder_bytes(session) / 1e6
        for name, unit, values in (
            ("time", "s", [m.wall_s for m in done]),
            ("CPU time", "CPU s", [m.cpu_s for m in done]),
            ("memory", "MB", [m.peak_mb for m in done]),
            ("size of the report", "MB", [report_mb]),
            ("size of the session", "MB", [session_mb]),
        ):
            yield Figure(f"{name}, {minutes} minutes", values, unit, f"{name} by minutes", minutes)
