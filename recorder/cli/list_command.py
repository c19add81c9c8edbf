"""``recorder list ROOT``: list the sessions below a folder or in a catalog, one line each."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.info import format_state
from recorder.cli.output import add_format, emit, format_table, note
from recorder.common.errors import UsageError
from recorder.common.text_format import format_bytes, format_seconds, format_time

if TYPE_CHECKING:
    from recorder.session.summary import Filter

_AGES = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the root, the filters and the format."""
    parser.add_argument(
        "root",
        type=Path,
        metavar="ROOT",
        help="read this folder of sessions, or this catalog (.parquet)",
    )
    parser.add_argument(
        "--recursive",
        action="store_true",
        help="list the sessions in all folders below ROOT, too; symbolic links are not followed",
    )
    parser.add_argument(
        "--since",
        metavar="WHEN",
        help="list sessions that started at this UTC date or time (2026-11-01, "
        "2026-11-01T12:00) or later, or within this time before now (30m, 12h, 7d, 2w)",
    )
    parser.add_argument(
        "--lost", action="store_true", help="list sessions with losses or incomplete samples"
    )
    parser.add_argument(
        "--marked", metavar="TEXT", help="list sessions with a mark that contains this text"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list; return 0, or 1 if a session or folder is unreadable (the rest is listed)."""
    from recorder.common.clock import SystemClock
    from recorder.session.summary import Filter

    since_ns = None
    if args.since is not None:
        since_ns = parse_since(args.since, SystemClock().realtime_ns())
    wanted = Filter(since_ns, args.lost, args.marked)
    unlisted: list[str] = []
    root: Path = args.root
    sessions: list[dict[str, Any]] = []
    found = 0
    lines = _read_lines(root, wanted, args.recursive, unlisted)
    for found, line in enumerate(lines, start=1):  # noqa: B007  (used after the loop)
        if line is not None:
            sessions.append(line)
    emit(sessions, args, lambda lines: _format_text(lines, root if args.recursive else None))
    if not found:
        note(f"recorder list: {root}: no sessions here")
    elif not sessions:
        note(f"recorder list: {root}: none of the {found} sessions here matches")
    broken = [session["problem"] for session in sessions if session["problem"] is not None]
    for problem in unlisted + broken:
        note(f"recorder list: {problem}")
    return 1 if unlisted or broken else 0


def _read_lines(
    root: Path, wanted: Filter, recursive: bool, unlisted: list[str]
) -> Iterator[dict[str, Any] | None]:
    """Yield the result of `brief` for each session; None if the filter excludes the session."""
    from recorder.fleet.catalog.catalog import KnownRows, is_wanted
    from recorder.fleet.catalog.table import CATALOG, read_table
    from recorder.session.discovery import find_sessions, find_sessions_below
    from recorder.session.summary import brief_if

    if root.is_file():
        for row in read_table(root):
            yield row.line() if is_wanted(row, wanted) else None
        return
    known = KnownRows.read(root / CATALOG)
    paths = find_sessions_below(root, unlisted.append) if recursive else find_sessions(root)
    for path in paths:
        if (old := known.get(path)) is None:
            yield brief_if(path, wanted)
        else:
            yield old.line() | {"path": str(path)} if is_wanted(old, wanted) else None


def parse_since(text: str, now_ns: int) -> int:
    """Parse a UTC date, a UTC time, or an age (``30m``, ``12h``, ``7d``, ``2w``) as epoch ns.

    Args:
        text: the user's text.
        now_ns: epoch ns, from which ages count.

    Raises:
        UsageError: the text has another form.
    """
    from recorder.session.part import Moment

    text = text.strip()
    if age := re.fullmatch(r"(\d{1,9})([mhdw])", text):
        return now_ns - int(age[1]) * _AGES[age[2]] * 1_000_000_000
    day = re.fullmatch(r"\d{4}-\d\d-\d\d", text)
    try:
        moment = Moment.parse(f"{text}T00:00" if day else text)
        if moment.since_epoch:
            return moment.ns
    except UsageError:
        pass
    raise UsageError(
        f"--since {text!r}: needs a UTC date or time, such as 2026-11-01 or 2026-11-01T12:00, or "
        "an age, such as 30m, 12h, 7d, 2w"
    )


def _format_text(sessions: list[dict[str, Any]], root: Path | None) -> str:
    """Format a table; with `root`, sessions are named by their path below it."""
    if not sessions:
        return ""
    rows = []
    for session in sessions:
        lost = session["lost"]
        if session["lost_intervals"]:
            lost = f"{lost} + ?"
        rows.append(
            [
                _format_name(session, root),
                format_state(session["state"], session["live"]),
                format_time(session["start_ns"]),
                format_seconds(session["duration_s"]),
                format_bytes(session["bytes"]),
                " ".join(session["streams"]) or None,
                lost,
                session["incomplete"],
                _format_verdict(session),
            ]
        )
    headers = ["session", "state", "start", "duration", "size", "streams", "lost", "incomplete"]
    return format_table([*headers, "verdict"], rows, right=(3, 4, 6, 7))


def _format_verdict(session: dict[str, Any]) -> str | None:
    """Format the verdict with its first reason."""
    word, reasons = session["verdict"], session["reasons"]
    if not reasons:
        return None if word is None else str(word)
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{word}: {reasons[0]}{more}"


def _format_name(session: dict[str, Any], root: Path | None) -> str:
    if root is None or root.is_file() or Path(session["path"]) == root:
        return str(session["name"])
    return str(Path(session["path"]).relative_to(root))
