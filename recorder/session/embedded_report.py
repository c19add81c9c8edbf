"""Summary in the head of a report, for the index of reports and the daemon.

::

    html = f"<head>{summary_element(summary)}</head>"
    read_summary(session / REPORT).verdict             # PASS
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recorder.common.struct_codec import prepare_type

HEAD_BYTES = 262_144
"""Number of bytes at the start of a report that are read and hold the element."""
_VERSION = 1
_BEGIN = '<meta name="session-summary" content="'
_ELEMENT = re.compile(re.escape(_BEGIN).encode() + rb'([^"]*)">')


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Result of a report.

    Attributes:
        state: the session's state when the report was made: ``recording``, ``clean``, ``sealed``,
            ``recovered``; None if it could not be read.
        verdict: `recorder.session.verdict.Verdict.word`.
        reasons: what broke, where, and how much, one line each, the worst first.
        samples: stored samples of all streams.
        marks, faults: number in the session.
        start_ns, end_ns: as in ``session.json``; None if unknown, or if the session is open.
        duration_s: seconds until the end, or the last sample of an open session.
        streams: names of the streams.
        lost: samples counted as lost; None for a plain roverd trace.
        lost_intervals: number of uncounted losses; None for a plain roverd trace.
        incomplete: samples that lack parts; None for a plain roverd trace.
    """

    state: str | None
    verdict: str
    reasons: tuple[str, ...]
    samples: int
    marks: int
    faults: int
    start_ns: int | None = None
    end_ns: int | None = None
    duration_s: float | None = None
    streams: tuple[str, ...] = ()
    lost: int | None = None
    lost_intervals: int | None = None
    incomplete: int | None = None


@dataclass(frozen=True, slots=True)
class _Element:
    version: int
    summary: SessionSummary


def summary_element(summary: SessionSummary) -> str:
    """Encode the summary as an element of a page's head: escaped JSON in ASCII."""
    text = json.dumps(msgspec.to_builtins(_Element(_VERSION, summary)), separators=(",", ":"))
    return f'{_BEGIN}{html.escape(text)}">'


def read_summary(report: Path) -> SessionSummary | None:
    """Read the summary of a report; None if the file is missing or no report of this version."""
    try:
        with report.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None
    element = _ELEMENT.search(head)
    if element is None:
        return None
    try:
        found = msgspec.json.decode(html.unescape(element[1].decode()), type=prepare_type(_Element))
    except (msgspec.DecodeError, ValueError):
        return None
    return found.summary if found.version == _VERSION else None
