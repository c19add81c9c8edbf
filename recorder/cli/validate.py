"""``recorder validate SESSION``: check a session."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.output import add_format, clean, emit, progress

if TYPE_CHECKING:
    from recorder.session.validation_report import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session and how deep to look."""
    parser.add_argument("session", type=Path, metavar="SESSION", help="the session's folder")
    parser.add_argument(
        "--deep", action="store_true", help="decode every sample instead of a few per channel"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report; 0 for a sound session (warnings or none), 1 where there is an error."""
    from recorder.session.validation import validate

    with progress("validating", total=1.0) as advance:
        shown = 0.0

        def show(done: int, total: int) -> None:
            nonlocal shown
            if total and done / total - shown >= 0.002:
                advance(done / total - shown)
                shown = done / total

        report = validate(args.session, deep=args.deep, progress=show)
    emit(report.to_wire(), args, lambda _: _text(report))
    return 0 if report.sound else 1


def _text(report: Report) -> str:
    lines = [f"checked  {item}" for item in report.checked]
    lines += [f"account  {account}" for account in report.accounts]
    lines += [f"{problem.severity:7}  {problem.message}" for problem in report.problems]
    errors = sum(problem.severity == "error" for problem in report.problems)
    warnings = len(report.problems) - errors
    verdict = "sound" if report.sound else "not sound"
    lines.append(f"{report.path}: {verdict}; {errors} errors, {warnings} warnings")
    return "\n".join(map(clean, lines))
