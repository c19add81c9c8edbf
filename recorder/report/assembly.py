"""Assembles a report: looks at the session, makes every section, and judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import cv2

from recorder.contract.errors import StorageError
from recorder.formats.disk import PosixDisk
from recorder.report.findings import ODD, Findings, look, odd_text
from recorder.report.happenings import events_section
from recorder.report.markup import Content, Html, element
from recorder.report.overview import head
from recorder.report.page import page, section
from recorder.report.rates import rates_section
from recorder.report.timelines import timeline_section
from recorder.report.verdict import Reason, verdict
from recorder.session.layout import REPORT
from recorder.session.reader import Session

Make = Callable[[Findings, Session], Html | None]

_SECTIONS: Sequence[tuple[str, str, Make]] = (
    ("Timeline", "timeline", lambda found, _: timeline_section(found)),
    ("Streams", "streams", rates_section),
    ("Events", "events", events_section),
)


def make_report(path: Path, out: Path | None, progress: Callable[[str, float], None]) -> Path:
    """See `recorder.report.write_report`."""
    progress("reading", 0.0)
    found = look(path)
    target = path / REPORT if out is None else out
    made: list[tuple[str, str, Html]] = []
    unreadable: list[Reason] = []
    with ExitStack() as stack:
        session = None
        if found.summary is not None:
            session = stack.enter_context(Session(path, virtual=True, partial=True))
        for k, (title, id_, make) in enumerate(_SECTIONS):
            progress(title, 0.3 + 0.7 * k / len(_SECTIONS))
            if session is None:
                break
            try:
                shown = make(found, session)
            except (*ODD, cv2.error, MemoryError) as error:
                text = odd_text(error)
                unreadable.append(Reason("unreadable", title, text))
                shown = section(title, element("p", text, class_="odd"), id_=id_)
            if shown is not None:
                made.append((title, id_, shown))
    judged = verdict(found, unreadable)
    links = [element("a", title, href=f"#{id_}") for title, id_, _ in made]
    content: list[Content] = [
        head(found, judged, linked=out is None),
        element("nav", links) if links else None,
        *(shown for _, _, shown in made),
    ]
    text = page(f"{judged.word} {found.name}", *content)
    try:
        PosixDisk().write_file(target, text.encode())
    except OSError as error:
        raise StorageError(f"{target}: cannot be written: {error.strerror or error}") from error
    progress("done", 1.0)
    return target
