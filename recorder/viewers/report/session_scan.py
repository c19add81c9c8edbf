"""Contents of a session for its report, and the verdict on them; damage is recorded, not raised.

::

    judged = verdict(scan_session(path))
    judged.word                                    # PASS or FAIL
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.codecs.streams import StreamSpec
from recorder.common.errors import RecorderError
from recorder.session import layout
from recorder.session import verdict as session_verdict
from recorder.session.accounts import Accounts, read_accounts, read_postprocessing_steps
from recorder.session.journal.journal import read_journal
from recorder.session.reader import Session
from recorder.session.summary import summarize
from recorder.session.timeline import Timeline, make_timeline
from recorder.session.validation import validate
from recorder.session.validation_report import Report
from recorder.session.verdict import Reason, Verdict

READ_ERRORS = (
    *(RecorderError, OSError, ValueError, TypeError, LookupError, ArithmeticError),
    *(AttributeError, RecursionError, AssertionError),
)
"""Exceptions that reading of damaged or malformed files may raise."""


@dataclass(frozen=True, slots=True)
class SessionScan:
    """Contents of a session.

    Attributes:
        path: the session's folder.
        name: the session's name; the folder's name if the session cannot be opened.
        fault: reason why the session cannot be opened; empty if it can be opened.
        state: as `Session.state`; None if the session cannot be opened.
        live: a writer holds the session.
        recorded: this recorder wrote the session; False for a plain roverd trace.
        header: contents of ``session.json``; empty without that file.
        summary: see `summarize`; None if the session cannot be opened.
        accounts: see `accounts_of`; None if the session cannot be opened.
        timeline: see `make_timeline`; None if the session has no start.
        validation: result of the check without digests; None if the session was not checked.
        validation_fault: error of a check that failed.
        declared: the declared streams.
    """

    path: Path
    name: str
    fault: str = ""
    state: str | None = None
    live: bool = False
    recorded: bool = False
    header: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] | None = None
    accounts: Accounts | None = None
    timeline: Timeline | None = None
    validation: Report | None = None
    validation_fault: str = ""
    declared: Mapping[str, StreamSpec] = field(default_factory=dict)

    @property
    def sensors(self) -> Mapping[str, Mapping[str, Any]]:
        """Entries of the sensors in ``session.json``."""
        entries: Mapping[str, Any] = self.header.get("sensors") or {}
        return {name: entry for name, entry in entries.items() if isinstance(entry, Mapping)}

    @property
    def parts(self) -> tuple[str | None, str | None]:
        """Names of the previous and the next part of the same recording."""
        previous, following = self.header.get("previous"), None
        if self.recorded:
            # The verdict reports a journal that cannot be read.
            with contextlib.suppress(*READ_ERRORS):
                following = read_journal(layout.private(self.path, layout.JOURNAL)).next
        return None if previous is None else str(previous), following

    @property
    def postprocessing(self) -> tuple[Mapping[str, Mapping[str, Any]], bool]:
        """Steps of the daemon's postprocessing, and True if none was requested."""
        return read_postprocessing_steps(self.path)


def scan_session(path: Path, *, check: bool = True) -> SessionScan:
    """Read a session in any state.

    Args:
        path: the session's folder.
        check: also validate the session (without its digests: not every byte is read).

    Raises:
        SessionError: there is no such folder, or the folder is not a session.
    """
    try:
        session = Session(path)
    except READ_ERRORS as error:
        if not layout.private(path).is_dir() and isinstance(error, RecorderError):
            raise
        return SessionScan(path, path.resolve().name, fault=format_error(error))
    with session:
        try:
            accounts = read_accounts(session)
            summary = summarize(session, accounts=accounts)
            timeline = _read_timeline(path, summary)
        except READ_ERRORS as error:
            fault = f"{path}: {format_error(error)}"
            return SessionScan(path, session.name, fault, session.state, session.live)
        report, fault = None, ""
        if check:
            try:
                report = validate(path, digests=False)
            except READ_ERRORS as error:
                fault = format_error(error)
        return SessionScan(
            path,
            session.name,
            state=session.state,
            live=summary["live"],
            recorded=session.recorded,
            header=session.header or {},
            summary=summary,
            accounts=accounts,
            timeline=timeline,
            validation=report,
            validation_fault=fault,
            declared=session.declared,
        )


def _read_timeline(path: Path, summary: Mapping[str, Any]) -> Timeline | None:
    """Return the timeline, which includes the contents of damaged files."""
    start_ns, end_ns = _find_extent(summary)
    if start_ns is None or end_ns is None:
        return None
    with Session(path, partial=True) as session:
        return make_timeline(session, start_ns, end_ns)


def format_error(error: BaseException) -> str:
    """Format an error of any type."""
    return str(error) if isinstance(error, RecorderError) else f"{type(error).__name__}: {error}"


def _find_extent(summary: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return start and end of the shown time, epoch ns."""
    streams = summary["streams"].values()
    first = [s["first_ns"] for s in streams if s["first_ns"] is not None]
    last = [s["last_ns"] for s in streams if s["last_ns"] is not None]
    starts = [t for t in (summary["start_ns"], *first) if t is not None]
    ends = [t for t in (summary["end_ns"], *last) if t is not None]
    start_ns = min(starts, default=None)
    return start_ns, max([*ends, start_ns], default=None) if start_ns is not None else None


def verdict(found: SessionScan, unreadable: Iterable[Reason] = ()) -> Verdict:
    """Judge a session.

    Args:
        found: contents of the session.
        unreadable: further read errors, such as those of pictures.
    """
    if found.accounts is None:
        return session_verdict.judge_unreadable_session(found.fault)
    problems = (found.summary or {}).get("problems", ())
    known = found.accounts.problems
    further = [Reason("unreadable", "", text) for text in problems if text not in known]
    streams = found.timeline.streams if found.timeline is not None and found.recorded else {}
    judged = session_verdict.verdict(
        found.accounts,
        unexplained={name: made.lost.get("unknown", 0) for name, made in streams.items()},
        checked=found.validation,
        unreadable=[*further, *unreadable],
    )
    if not found.validation_fault:
        return judged
    remark = Reason("not validated", "", found.validation_fault)
    return Verdict(judged.open, judged.reasons, [*judged.remarks, remark])
