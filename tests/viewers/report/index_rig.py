"""A root of small sessions, with the heads of their reports, for the tests of the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recorder.session.layout import read_session_json
from recorder.session.outputs import SessionSummary, summary_element
from tests.session.build import START_NS, imu_session, rewrite_header

HOSTILE = "</td><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\" &amp;"


def make_session(
    folder: Path, *, after_s: float = 0.0, seconds: float = 0.2, lost: int = 0, **header: Any
) -> Path:
    """A closed session of an IMU.

    Args:
        folder: of the session.
        after_s: seconds of its start after the start of the others.
        seconds: its duration.
        lost: samples that a driver's ring refused.
        header: keys of ``session.json`` that are different.
    """
    builder = imu_session(folder, seq=range(lost, round(seconds * 100) + lost))
    if lost:
        builder.lose("imu", 0, lost - 1, "refused")
    end_ns = read_session_json(builder.close())["end_ns"]
    shift_ns = round(after_s * 1e9)
    moved = {"start_ns": START_NS + shift_ns, "end_ns": end_ns + shift_ns}
    rewrite_header(folder, **(moved | header))
    return folder


def make_report(
    session: Path, verdict: str = "PASS", *reasons: str, state: str = "clean", **more: int
) -> None:
    """The head of a report."""
    numbers = {"samples": 20, "marks": 0, "faults": 0} | more
    samples, marks, faults = (numbers[key] for key in ("samples", "marks", "faults"))
    element = summary_element(SessionSummary(state, verdict, reasons, samples, marks, faults))
    (session / "report.html").write_text(f"<html><head>{element}</head><body>report</body></html>")
