"""Assembly of a report from its sections, the verdict and the embedded summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from recorder.common.errors import StorageError
from recorder.common.files import PosixDisk
from recorder.common.text_format import clean
from recorder.session.accounts import sum_incomplete
from recorder.session.layout import REPORT
from recorder.session.outputs import SessionSummary, summary_element
from recorder.session.reader import Session
from recorder.session.verdict import Reason, Verdict
from recorder.viewers.report.cameras import cameras_section
from recorder.viewers.report.clocks import clocks_section
from recorder.viewers.report.events_section import events_section, kept_section
from recorder.viewers.report.lidars import lidars_section
from recorder.viewers.report.markup import Content, Html, element, page, section
from recorder.viewers.report.overview import head
from recorder.viewers.report.packed import archives_section
from recorder.viewers.report.radars import radars_section
from recorder.viewers.report.rates import rates_section
from recorder.viewers.report.report_context import Make, ReportContext
from recorder.viewers.report.series import series_section
from recorder.viewers.report.session_scan import (
    READ_ERRORS,
    SessionScan,
    format_error,
    scan_session,
    verdict,
)
from recorder.viewers.report.setup import disk_section, setup_section
from recorder.viewers.report.timelines import timeline_section
from recorder.viewers.report.tracks import tracks_section

_MOST_REASONS = 30
_LONGEST_REASON = 300
"""Limits of the summary in the head, so that it fits in the bytes that readers of the head read."""
_SECTIONS: Sequence[tuple[str, str, Make]] = (
    ("Timeline", "timeline", timeline_section),
    ("Cameras", "cameras", cameras_section),
    ("Lidars", "lidars", lidars_section),
    ("Radars", "radars", radars_section),
    ("Position", "tracks", tracks_section),
    ("Motion and other values", "series", series_section),
    ("Streams", "streams", rates_section),
    ("Clocks", "clocks", clocks_section),
    ("Disk", "disk", disk_section),
    ("Archives", "archives", archives_section),
    ("Setup", "setup", setup_section),
    ("Kept events", "kept", kept_section),
    ("Events", "events", events_section),
)


def make_report(path: Path, out: Path | None, progress: Callable[[str, float], None]) -> Path:
    """Write the report; see `recorder.viewers.report.write_report`."""
    progress("reading", 0.0)
    found = scan_session(path)
    target = path / REPORT if out is None else out
    made: list[tuple[str, str, Html]] = []
    unreadable: list[Reason] = []
    if found.summary is not None:
        try:
            with Session(path, virtual=True, partial=True) as session:
                material = ReportContext(found, session, unreadable=unreadable)
                for k, (title, id_, make) in enumerate(_SECTIONS):
                    progress(title, 0.3 + 0.7 * k / len(_SECTIONS))
                    if (shown := _make_section(material, title, id_, make)) is not None:
                        made.append((title, id_, shown))
        except READ_ERRORS as error:
            unreadable.append(Reason("unreadable", "session", format_error(error)))
    judged = verdict(found, unreadable)
    links = [element("a", title, href=f"#{id_}") for title, id_, _ in made]
    content: list[Content] = [
        head(found, judged, linked=out is None),
        element("nav", links) if links else None,
        *(shown for _, _, shown in made),
    ]
    text = page(
        f"{judged.word} {found.name}", *content, data=summary_element(_sum_up(found, judged))
    )
    try:
        PosixDisk().write_file(target, text.encode())
    except OSError as error:
        raise StorageError(f"{target}: cannot be written: {error.strerror or error}") from error
    progress("done", 1.0)
    return target


def _sum_up(found: SessionScan, judged: Verdict) -> SessionSummary:
    """Return the values that the index of the reports shows for a session."""
    values: Mapping[str, Any] = found.summary or {"streams": {}, "marks": (), "faults": ()}
    streams = values["streams"]

    def count(of: Callable[[Mapping[str, Any]], int]) -> int | None:
        return sum(map(of, streams.values())) if found.recorded else None

    reasons = [reason.text[:_LONGEST_REASON] for reason in judged.reasons[:_MOST_REASONS]]
    if (more := len(judged.reasons) - _MOST_REASONS) > 0:
        reasons.append(f"and {more} more")
    return SessionSummary(
        state=found.state,
        verdict=judged.word,
        reasons=tuple(reasons),
        samples=sum(stream["samples"] or 0 for stream in streams.values()),
        marks=len(values["marks"]),
        faults=len(values["faults"]),
        start_ns=values.get("start_ns"),
        end_ns=values.get("end_ns"),
        duration_s=values.get("duration_s"),
        streams=tuple(map(clean, streams)),
        lost=count(lambda s: sum(s["lost"].values())),
        lost_intervals=count(lambda s: len(s["lost_intervals"])),
        incomplete=count(lambda s: sum_incomplete(s["incomplete"])[0]),
    )


def _make_section(material: ReportContext, title: str, id_: str, make: Make) -> Html | None:
    """Make a section; a section that cannot be made shows the error instead."""
    try:
        with np.errstate(all="ignore"):  # damaged values may be anything; they are shown as such
            content = make(material)
            return None if content is None else section(title, content, id_=id_)
    except (*READ_ERRORS, cv2.error) as error:
        return section(title, material.fail(title, error), id_=id_)
