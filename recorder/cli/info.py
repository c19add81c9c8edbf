"""``recorder info SESSION``: what a session holds, also while it is being written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

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
    """Declare the session and the format."""
    parser.add_argument("session", type=Path, metavar="SESSION", help="the session's folder")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the summary; 0, or 1 where a part of the session cannot be read."""
    from recorder.session.reader import Session
    from recorder.session.summary import summarize

    with Session(args.session) as session:
        summary = summarize(session)
    emit(summary, args, _text)
    for problem in summary["problems"]:
        note(f"recorder info: {problem}")
    return 1 if summary["problems"] else 0


def state_text(state: str | None, live: bool) -> str:
    """The state for people: a session that nobody writes and nobody closed needs ``recover``."""
    if state == "recording" and not live:
        return "not closed (run `recorder recover`)"
    return state or "unreadable"


def incomplete_text(incomplete: dict[str, int]) -> str:
    """Samples of which a part is missing: ``; 3 incomplete (120 columns missing)``."""
    if not incomplete:
        return ""
    columns = incomplete.get("columns_missing")
    more = f" ({columns} columns missing)" if columns is not None else ""
    return f"; {incomplete['samples']} incomplete{more}"


def lost_text(lost: dict[str, int], intervals: int) -> str:
    """Losses by cause: ``buffer 3, 1 uncounted interval``."""
    parts = [f"{cause} {count}" for cause, count in lost.items() if count]
    if intervals:
        parts.append(f"{intervals} uncounted interval{'s' if intervals > 1 else ''}")
    return ", ".join(parts) or "0"


def _text(summary: dict[str, Any]) -> str:
    lines = [
        f"session   {summary['name']}",
        f"folder    {summary['path']}",
        f"state     {state_text(summary['state'], summary['live'])}",
        f"start     {human_time(summary['start_ns'])}",
        f"end       {human_time(summary['end_ns'])}",
        f"duration  {human_seconds(summary['duration_s'])}",
        f"size      {human_bytes(summary['bytes'])}",
    ]
    lines += [f"{key:8}  {value}" for key, value in summary["metadata"].items() if value]
    if not summary["recorded"]:  # nobody counted its losses, or closed it
        lines[2] = "state     - (a roverd trace of another recorder)"
    start_ns, recorded = summary["start_ns"], summary["recorded"]
    rows = []
    for name, stream in summary["streams"].items():
        rate_hz = stream["rate_hz"]
        offsets = (
            None if t is None or start_ns is None else f"{(t - start_ns) / 1e9:.3f}"
            for t in (stream["first_ns"], stream["last_ns"])
        )
        rows.append(
            [
                name,
                "damaged" if stream["samples"] is None else stream["samples"],
                None if rate_hz is None else f"{rate_hz:.2f}",
                *offsets,
                human_bytes(stream["bytes"]),
                lost_text(stream["lost"], len(stream["lost_intervals"]))
                + incomplete_text(stream["incomplete"])
                if recorded
                else None,
            ]
        )
    headers = ["stream", "samples", "rate [Hz]", "first [s]", "last [s]", "size", "lost"]
    text = "\n".join(lines) + "\n\n" + format_table(headers, rows, right=range(1, 6))
    if (vrs := summary["record_format"]) is not None:
        data = [f"{n} {s['data']}" for n, s in vrs["streams"].items() if s["data"]]
        text += f"\n\nsession.vrs  {vrs['records']} records, {human_bytes(vrs['bytes'])}; data: "
        text += ", ".join(data) or "none"
        text += "" if vrs["indexed"] else "; without an index"
    return text
