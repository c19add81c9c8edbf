"""Rows of the index of reports: one for each session, grouped by recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recorder.config.names import split_part_name
from recorder.session.outputs import SessionSummary
from recorder.session.verdict import FAIL, PASS

NONE = "not known"
"""Verdict of a session that could not be judged."""


@dataclass(frozen=True, slots=True)
class Row:
    """A session in the index.

    Attributes:
        name, state, live, start_ns, duration_s, bytes, streams, lost, lost_intervals, incomplete,
            verdict, reasons, problem: as returned by `brief`.
        metadata: the session's free-form metadata, as texts.
        archives: names of the packed archives.
        report: URL of the report, relative to the index; None if there is no report.
        summary: from the head of the report; None if there is no report of this version.
    """

    name: str
    state: str | None
    live: bool
    start_ns: int | None
    duration_s: float | None
    bytes: int
    streams: Sequence[str]
    lost: int | None
    lost_intervals: int | None
    incomplete: int | None
    verdict: str | None
    reasons: Sequence[str]
    problem: str | None
    metadata: dict[str, str]
    archives: Sequence[str]
    report: str | None
    summary: SessionSummary | None

    @property
    def outdated(self) -> bool:
        """True if the report was made before the session was closed or repaired."""
        return self.summary is not None and self.summary.state != self.state

    @property
    def word(self) -> str:
        """Verdict, of the report where it is not outdated; `NONE` without a verdict."""
        words = [self.verdict] if self._judged is None else [self._judged.verdict, self.verdict]
        return next((word for word in words if word in (PASS, FAIL)), NONE)

    @property
    def why(self) -> Sequence[str]:
        """Reasons of the verdict, the worst first."""
        return self.reasons if self._judged is None else self._judged.reasons

    @property
    def _judged(self) -> SessionSummary | None:
        return None if self.outdated else self.summary

    @property
    def recording(self) -> tuple[str, int]:
        """Name of the recording, and the number of its part in this session (0: the whole)."""
        return split_part_name(self.name)


@dataclass(frozen=True, slots=True)
class Recording:
    """Sessions of one recording: its parts in their order, or the only session."""

    name: str
    parts: Sequence[Row]

    @property
    def start_ns(self) -> int:
        """Start of the first part that has a start; 0 if no part has one."""
        return min((row.start_ns for row in self.parts if row.start_ns is not None), default=0)


def group(rows: Sequence[Row]) -> list[Recording]:
    """Group rows by recording, the newest first; parts of a recording stay in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.recording[0], []).append(row)
    recordings = [
        Recording(name, sorted(parts, key=lambda row: (row.recording[1], row.start_ns or 0)))
        for name, parts in found.items()
    ]
    return sorted(recordings, key=lambda recording: recording.start_ns, reverse=True)
