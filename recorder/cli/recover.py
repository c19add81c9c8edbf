"""``recorder recover SESSION_OR_ROOT``: repair sessions left open by a crash."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, emit, format_table, note
from recorder.cli.post_session import write_missing_labels
from recorder.common.errors import RecorderError, SessionError
from recorder.common.text_format import format_bytes

if TYPE_CHECKING:
    from recorder.recording.writer.recovery import RecoveryReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="SESSION_OR_ROOT",
        help="repair this session, or the sessions in this folder",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="report what would be repaired; change nothing"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Recover; return 0 without losses, 3 with losses, 1 if a session could not be recovered."""
    from recorder.common.clock import SystemClock
    from recorder.common.files import PosixDisk
    from recorder.recording.writer.recovery import recover
    from recorder.session.discovery import describe_outside_link, find_sessions, is_session
    from recorder.session.layout import LOCK, PRIVATE, private
    from recorder.session.lock import lock_is_held

    one = is_session(args.path)
    paths = [args.path] if one else find_sessions(args.path)
    if not paths:
        raise SessionError(f"{args.path}: neither a session nor a folder of sessions")
    reports: list[RecoveryReport] = []
    failed = 0
    for path in paths:
        if not one and not (path / PRIVATE).is_dir():
            note(f"{path}: not a session of the recorder; skipped")
            continue
        if not one and (elsewhere := describe_outside_link(path)) is not None:
            note(f"{elsewhere}; skipped")
            continue
        if not one and lock_is_held(private(path, LOCK)):
            note(f"{path}: is being recorded; skipped")
            continue
        try:
            reports.append(recover(path, PosixDisk(), SystemClock(), dry_run=args.dry_run))
            if not args.dry_run:
                write_missing_labels(path)
        except (RecorderError, OSError) as error:
            if one:
                raise
            note(f"{path}: {error.strerror or error}" if isinstance(error, OSError) else str(error))
            failed += 1
    emit(
        {"sessions": [asdict(r) | {"lost": r.lost} for r in reports]},
        args,
        lambda _: _format_text(reports),
    )
    if failed:
        return 1
    return 3 if any(r.lost for r in reports) else 0


def _format_text(reports: list[RecoveryReport]) -> str:
    unclean = [r for r in reports if r.action != "none"]
    parts = [part for report in unclean for part in (_format_head(report), _format_streams(report))]
    if closed := len(reports) - len(unclean):
        parts.append(f"{closed} closed already: nothing to do")
    return "\n".join(parts)


def _format_head(report: RecoveryReport) -> str:
    why = {
        "killed": "its writer was killed",
        "power": "power was cut",
        "disk": "its disk had failed",
    }[report.cause]
    return f"{report.session}: {report.action} ({why})"


def _format_streams(report: RecoveryReport) -> str:
    rows: list[list[Any]] = []
    for name, stream in sorted(report.streams.items()):
        lost = stream.damaged or ("what came after, uncounted" if stream.interval_lost else "-")
        cut = sum(stream.cut_bytes.values())
        rows.append([name, stream.kept, stream.committed, format_bytes(cut) if cut else "-", lost])
    text = format_table(
        ["stream", "kept", "committed", "to salvage", "lost"], rows, right=(1, 2, 3)
    )
    if report.vrs is not None:
        salvaged = format_bytes(report.vrs.cut_bytes) if report.vrs.cut_bytes else "nothing"
        text += f"\nsession.vrs: {salvaged} to salvage; filled up from what was kept"
        text += f"; damaged: {report.vrs.damaged}" if report.vrs.damaged else ""
    return text
