"""``recorder report SESSION_OR_ROOT``: write a session's HTML report, or the index of a root."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, emit, end_on_sigterm, note, share_progress
from recorder.common.errors import RecorderError, SessionError, StorageError, UsageError
from recorder.common.text_format import format_bytes, format_seconds

if TYPE_CHECKING:
    from recorder.viewers.report.index_rows import Row

_MOST_REASONS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session or root, and the output file."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="SESSION_OR_ROOT",
        help="read this session, or this root of sessions",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write this file instead of report.html in the session, or index.html in the root",
    )
    parser.add_argument(
        "--index",
        action="store_true",
        help="rewrite the index of the session's root, too",
    )
    parser.add_argument(
        "--missing",
        action="store_true",
        help="write the missing and outdated reports of a root's sessions first",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file; return 0, or 1 if a report of ``--missing`` failed (the rest is written)."""
    # As for packing: threads of a matrix library only get in the way of what records.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from recorder.common.syscalls import be_idle

    if args.out is not None:
        if args.out.is_dir():
            raise UsageError(f"--out {args.out}: is a folder; name a file in it")
        if not args.out.absolute().parent.is_dir():
            raise UsageError(f"--out {args.out}: there is no folder {args.out.parent}")
    if not args.path.is_dir():
        raise SessionError(f"{args.path}: no such folder")
    of_session = _is_session(args.path)
    if args.missing and of_session:
        raise UsageError(f"--missing: {args.path} is a session; name the root of the sessions")
    if args.index and not of_session:
        raise UsageError(f"--index: {args.path} is no session; its index is written anyway")
    if args.out is not None:
        _check_out(args.path if of_session else None, args.out)
    be_idle()
    with end_on_sigterm():
        return _report_session(args) if of_session else _report_root(args)


def _check_out(session: Path | None, out: Path) -> None:
    """Check that ``--out`` replaces no file of a session except its own report."""
    from recorder.session.discovery import find_session_around
    from recorder.session.layout import REPORT

    if (around := find_session_around(out)) is None:
        return
    place = out.parent.resolve() / out.name
    if session is None or place != session.resolve() / REPORT:
        raise UsageError(f"--out {out}: is in the session {around}; name another place")


def _is_session(path: Path) -> bool:
    """Check that a folder is a session, intact or damaged."""
    from recorder.session.discovery import is_session
    from recorder.session.layout import private
    from recorder.session.reader import sensor_folders

    return is_session(path) or private(path).is_dir() or bool(sensor_folders(path))


def _report_session(args: argparse.Namespace) -> int:
    """Write the report of a session, and with ``--index`` the index of its root."""
    from recorder.session.outputs import read_summary

    began_s = time.monotonic()
    report = _write_report(args.path, args.out)
    seconds = time.monotonic() - began_s
    summary = read_summary(report)
    index = None
    if args.index:
        index, _ = _write_index(args.path.resolve().parent, None)
    result = {
        "session": args.path,
        "report": report,
        "index": index,
        "verdict": summary and summary.verdict,
        "reasons": summary.reasons if summary else (),
        "bytes": report.stat().st_size,
        "seconds": round(seconds, 3),
    }
    emit(result, args, lambda _: _format_session(result))
    return 0


def _format_session(result: dict[str, Any]) -> str:
    size, seconds = format_bytes(result["bytes"]), format_seconds(result["seconds"])
    lines = [f"verdict  {result['verdict']}"]
    lines += [f"  {reason}" for reason in result["reasons"][:_MOST_REASONS]]
    if (more := len(result["reasons"]) - _MOST_REASONS) > 0:
        lines.append(f"  and {more} more")
    lines.append(f"report   {result['report']} ({size} in {seconds})")
    if result["index"] is not None:
        lines.append(f"index    {result['index']}")
    return "\n".join(lines)


def _report_root(args: argparse.Namespace) -> int:
    """Write the index of a root; with ``--missing``, first write the missing reports."""
    from recorder.session.discovery import find_sessions

    sessions = find_sessions(args.path)
    if not sessions:
        raise SessionError(f"{args.path}: is no session, and there are no sessions in it")
    made: list[Path] = []
    failed: list[Path] = []
    for path in filter(_lacks_report, sessions) if args.missing else ():
        try:
            made.append(_write_report(path, None))
        except RecorderError as error:
            note(f"recorder report: {error}")
            failed.append(path)
    index, rows = _write_index(args.path, args.out)
    for row in rows:
        if row.problem is not None:
            note(f"recorder report: {row.problem}")
    result = {"index": index, "sessions": len(rows), "reports": made, "failed": failed}
    emit(result, args, lambda _: "\n".join([*map(str, made), _format_root(index, rows)]))
    return 1 if failed else 0


def _format_root(index: Path, rows: list[Row]) -> str:
    from collections import Counter

    words = Counter(row.word for row in rows)
    counts = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
    return f"{index}: {len(rows)} session{'s' if len(rows) > 1 else ''}: {counts}"


def _lacks_report(path: Path) -> bool:
    """Check that a session has no current report; skip links out of the root."""
    from recorder.session.discovery import describe_outside_link
    from recorder.session.layout import CLEAN, REPORT
    from recorder.session.outputs import read_summary
    from recorder.session.reader import read_header

    if describe_outside_link(path) is not None:
        return False
    try:
        state = (read_header(path) or {}).get("state", CLEAN)
    except RecorderError:
        state = None  # the report says what is wrong
    summary = read_summary(path / REPORT)
    return summary is None or summary.state != state


def _write_report(session: Path, out: Path | None) -> Path:
    """Write the report of a session under a lock against other reports, repair and deletion."""
    from recorder.session.discovery import describe_outside_link
    from recorder.session.lock import hold_session
    from recorder.viewers.report import write_report

    if out is None and (elsewhere := describe_outside_link(session)) is not None:
        raise SessionError(f"{elsewhere}; no report is written there: name that folder, or --out")
    with _lock_folder(session), hold_session(session) as held:
        if not held:
            note(f"{session}: is being recorded or repaired: the report has the data so far")
        with _bar(session.name) as show:
            return write_report(session, out, show)


def _write_index(root: Path, out: Path | None) -> tuple[Path, list[Row]]:
    from recorder.viewers.report.report_index import write_index

    with _lock_folder(root), _bar(root.name) as show:
        return write_index(root, out, show)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder so that one process at a time writes its file there."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be read: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar for one file."""
    with share_progress(f"reporting {name}") as show:
        yield lambda what, share: show(share, f"reporting {name}: {what}")


def report_session(session: Path) -> Path | None:
    """Report a session that has just been recorded, in a separate process of low priority.

    Returns:
        The report; None if it failed (the process prints the reason).
    """
    from recorder.cli.post_session import run_separately
    from recorder.session.layout import REPORT

    if run_separately("recorder", "report", str(session), "--index"):
        return session / REPORT
    note(f"{session}: recorded, but its report could not be made; see `recorder report`")
    return None
