"""``recorder list ROOT``: the sessions below a folder, one line each."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from recorder.cli.info import state_text
from recorder.cli.output import (
    add_format,
    emit,
    format_table,
    human_bytes,
    human_seconds,
    human_time,
    note,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the root and the format."""
    parser.add_argument("root", type=Path, metavar="ROOT", help="a folder of sessions")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list; 0, or 1 if a session cannot be read (the others are listed)."""
    from recorder.session.reader import find_sessions
    from recorder.session.summary import brief

    sessions = [brief(path) for path in find_sessions(args.root)]
    emit(sessions, args, _text)
    if not sessions:
        note(f"recorder list: {args.root}: no sessions here")
    broken = [session for session in sessions if session["problem"] is not None]
    for session in broken:
        note(f"recorder list: {session['problem']}")
    return 1 if broken else 0


def _text(sessions: list[dict[str, Any]]) -> str:
    if not sessions:
        return ""
    rows = []
    for session in sessions:
        lost = session["lost"]
        if session["lost_intervals"]:
            lost = f"{lost} + ?"
        rows.append(
            [
                session["name"],
                state_text(session["state"], session["live"]),
                human_time(session["start_ns"]),
                human_seconds(session["duration_s"]),
                human_bytes(session["bytes"]),
                " ".join(session["streams"]) or None,
                lost,
            ]
        )
    headers = ["session", "state", "start", "duration", "size", "streams", "lost"]
    return format_table(headers, rows, right=(3, 4, 6))
