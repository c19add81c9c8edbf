"""``recorder validate SESSION_OR_ARCHIVE``: check a session, or packed archives."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.output import add_format, emit, share_progress
from recorder.common.errors import SessionError
from recorder.common.text_format import clean

if TYPE_CHECKING:
    from recorder.archives.validation import ArchiveReport
    from recorder.session.validation_report import Report
    from recorder.session.verdict import Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session or archive, and the depth of the check."""
    parser.add_argument(
        "session",
        type=Path,
        metavar="SESSION_OR_ARCHIVE",
        help="check this session; or this archive, or folder with archives, which are read "
        "completely, with the format's own software if it is installed",
    )
    parser.add_argument(
        "--deep",
        action="store_true",
        help="decode every sample of a session instead of a few per channel",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report; return 0 if there is no error (warnings are allowed), else 1."""
    try:
        report = _validate_session(args)
        judged = _judge(args.session, report)
    except SessionError:
        from recorder.archives.validation import find_archives

        archives = find_archives(args.session)
        if not archives:
            raise
        return _validate_archives(args, archives)
    emit(report.to_wire() | judged.to_wire(), args, lambda _: _format_text(report, judged))
    return 0 if report.sound else 1


def _judge(path: Path, report: Report) -> Verdict:
    """Judge a session whose files were checked."""
    from recorder.session.accounts import read_accounts
    from recorder.session.reader import Session
    from recorder.session.verdict import judge_unreadable_session, verdict

    try:
        with Session(path) as session:
            return verdict(read_accounts(session), checked=report)
    except SessionError as error:
        return judge_unreadable_session(str(error))


def _validate_session(args: argparse.Namespace) -> Report:
    from recorder.session.validation import validate

    with share_progress("validating") as show:

        def count(done: int, total: int) -> None:
            show(done / total if total else 0.0)

        return validate(args.session, deep=args.deep, progress=count)


def _validate_archives(args: argparse.Namespace, archives: list[Path]) -> int:
    """Check archives one after the other, and print the items checked and not checked."""
    from recorder.archives.validation import validate_archive

    def check(path: Path) -> ArchiveReport:
        title = f"validating {path.name}"
        with share_progress(title) as show:
            return validate_archive(path, lambda by, share: show(share, f"{title}: {by}"))

    reports = [check(path) for path in archives]
    sound = all(report.sound for report in reports)
    result = {"path": args.session, "sound": sound, "archives": [r.to_wire() for r in reports]}
    emit(result, args, lambda _: "\n".join(map(_format_archive, reports)))
    return 0 if sound else 1


def _format_archive(report: ArchiveReport) -> str:
    lines = [f"checked      {item}" for item in report.checked]
    lines += [f"not checked  {item}" for item in report.unchecked]
    lines += [f"remark       {remark}" for remark in report.remarks]
    lines += [f"error        {problem}" for problem in report.problems]
    verdict = "sound" if report.sound else "not sound"
    if report.sound and report.unchecked:
        verdict += " as far as it was checked"
    return "\n".join(map(clean, [*lines, f"{report.path}: {report.archive}: {verdict}"]))


def _format_text(report: Report, judged: Verdict) -> str:
    lines = [f"checked  {item}" for item in report.checked]
    lines += [f"account  {account}" for account in report.accounts]
    lines += [f"{problem.severity:7}  {problem.message}" for problem in report.problems]
    errors = sum(problem.severity == "error" for problem in report.problems)
    warnings = len(report.problems) - errors
    counts = f"{errors} errors, {warnings} warnings"
    lines.append(f"{report.path}: {report.state or 'unreadable'}, {judged.text}; {counts}")
    return "\n".join(map(clean, lines))
