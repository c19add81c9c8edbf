"""Verdict on all contents of a report; `recorder.session.verdict` judges.

::

    judged = verdict(scan_session(path))
    judged.word                                    # PASS or FAIL
    for reason in judged.reasons:
        reason.what, reason.where, reason.how_much
"""

from __future__ import annotations

from collections.abc import Iterable

from recorder.session import verdict as session_verdict
from recorder.session.verdict import CAUSES as CAUSES
from recorder.session.verdict import FAIL as FAIL
from recorder.session.verdict import PASS as PASS
from recorder.session.verdict import Reason as Reason
from recorder.session.verdict import Verdict as Verdict
from recorder.session.verdict import format_intervals as format_intervals
from recorder.viewers.report.session_scan import SessionScan


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
    judged = session_verdict.verdict(
        found.accounts,
        unexplained={name: lost["unknown"] for name, lost in found.unexplained.items()},
        checked=found.validation,
        unreadable=[*further, *unreadable],
    )
    if not found.validation_fault:
        return judged
    remark = Reason("not validated", "", found.validation_fault)
    return Verdict(judged.open, judged.reasons, [*judged.remarks, remark])
