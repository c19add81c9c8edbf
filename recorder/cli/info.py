"""``recorder info SESSION``: show the contents of a session, also while it is being written."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recorder.cli.output import add_format, emit, format_table, note
from recorder.common.text_format import clean, format_bytes, format_seconds, format_time
from recorder.session.events import ENDS, format_event_line

_MOST_LINES = 20  # of marks, and of faults


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session, the listing of gaps, and the format."""
    parser.add_argument(
        "session", type=Path, metavar="SESSION", help="read the session in this folder"
    )
    parser.add_argument(
        "--gaps", action="store_true", help="list every loss with its time, duration and cause"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the summary; return 0, or 1 if a part of the session cannot be read."""
    from recorder.session.reader import Session
    from recorder.session.summary import summarize

    with Session(args.session) as session:
        summary = summarize(session, gaps=args.gaps)
    emit(summary, args, _format_text)
    for problem in summary["problems"]:
        note(f"recorder info: {problem}")
    return 1 if summary["problems"] else 0


def format_state(state: str | None, live: bool) -> str:
    """Format the state for users: an unclosed session without a writer needs ``recover``."""
    if state == "recording" and not live:
        return "not closed (run `recorder recover`)"
    return state or "unreadable"


def format_verdict(judged: Mapping[str, Any]) -> list[str]:
    """Format the verdict and its reasons, one a line.

    Args:
        judged: mapping with ``verdict`` and ``reasons``, from `summarize`.
    """
    from recorder.session.verdict import Reason

    reasons = [Reason(**reason).text for reason in judged["reasons"]]
    lines = [f"verdict   {judged['verdict']}"]
    lines += [f"reason    {text}" for text in reasons[:_MOST_LINES]]
    if (more := len(reasons) - _MOST_LINES) > 0:
        lines.append(f"reason    and {more} more (--format json has all)")
    return lines


def format_losses(lost: dict[str, int], intervals: list[dict[str, Any]]) -> str:
    """Format losses by cause: ``refused 3, 2 uncounted intervals (device, driver)``."""
    parts = [f"{cause} {count}" for cause, count in lost.items() if count]
    if intervals:
        causes = ", ".join(dict.fromkeys(str(interval["cause"]) for interval in intervals))
        plural = "s" if len(intervals) > 1 else ""
        parts.append(f"{len(intervals)} uncounted interval{plural} ({causes})")
    return ", ".join(parts) or "0"


def format_incidents(happened: dict[str, Any], start_ns: int | None) -> list[str]:
    """Format the end of a session, its marks and its faults with their time, one a line.

    Args:
        happened: mapping with ``ended``, ``marks`` and ``faults``, from `incidents`.
        start_ns: epoch ns of the session's start.
    """
    lines = []
    if (ended := happened["ended"]) is not None:
        detail = f": {ended['detail']}" if ended["detail"] else ""
        lines.append(f"ended     {ENDS.get(ended['cause'], ended['cause'])}{detail}")
    marks = [("mark", mark["t_ns"], mark["text"]) for mark in happened["marks"]]
    faults = [("fault", fault["t_ns"], format_event_line(fault)) for fault in happened["faults"]]
    for reported in (marks, faults):
        for kind, t_ns, text in reported[:_MOST_LINES]:
            at = "" if start_ns is None or t_ns is None else f"{(t_ns - start_ns) / 1e9:.1f} s  "
            lines.append(f"{kind:8}  {at}{text}")
        if len(reported) > _MOST_LINES:
            more = len(reported) - _MOST_LINES
            lines.append(f"{reported[0][0]:8}  and {more} more (--format json has all)")
    return lines


def format_events(events: Sequence[Mapping[str, Any]], start_ns: int | None) -> list[str]:
    """Format the events that touch a session, and the missing parts of each, one a line.

    Args:
        events: events from `summarize`.
        start_ns: epoch ns of the session's start.
    """
    lines = []
    for event in events[:_MOST_LINES]:
        at = "" if start_ns is None else f"{(event['t_ns'] - start_ns) / 1e9:.1f} s  "
        lines.append(f"event     {at}{event['text']} ({format_window(event)}, {event['state']})")
        lines += [f"{'':8}  {format_shortfall(each, event)}" for each in event["shortfalls"]]
    if (more := len(events) - _MOST_LINES) > 0:
        lines.append(f"event     and {more} more (--format json has all)")
    return lines


def format_window(event: Mapping[str, Any]) -> str:
    """Format the promised window of an event: ``30 s before, 15 s after``."""
    before_s = (event["t_ns"] - event["from_ns"]) / 1e9
    after_s = (event["until_ns"] - event["t_ns"]) / 1e9
    return f"{before_s:g} s before, {after_s:g} s after"


def format_shortfall(shortfall: Mapping[str, Any], event: Mapping[str, Any]) -> str:
    """Format a missing part: ``missing: lidar, -30.0 s to -22.5 s: samples were lost``."""
    from recorder.session.event_clips import CAUSES

    since, until = ((shortfall[key] - event["t_ns"]) / 1e9 for key in ("from_ns", "until_ns"))
    stream = "all streams" if shortfall["stream"] is None else shortfall["stream"]
    cause = CAUSES.get(shortfall["cause"], shortfall["cause"])
    return f"missing: {stream}, {since:+.1f} s to {until:+.1f} s: {cause}"


def _format_gaps(summary: dict[str, Any]) -> list[str]:
    """Format the losses as a table, with the number of losses left out."""
    rows, more = [], []
    for name, stream in summary["streams"].items():
        for gap in stream["gaps"][:_MOST_LINES]:
            rows.append([name, *_format_gap(gap, summary["start_ns"])])
        if (left := len(stream["gaps"]) - _MOST_LINES + stream["gaps_left_out"]) > 0:
            listed = f"--format json lists {len(stream['gaps'])}"
            more.append(f"{clean(name)}: {left} more losses; {listed}")
    if not rows:
        return ["gaps      none"]
    headers = ["gaps of", "at [s]", "for [s]", "cause", "samples"]
    return [format_table(headers, rows, right=(1, 2)), *more]


def _format_gap(gap: dict[str, Any], start_ns: int | None) -> list[str | None]:
    known = gap["start_ns"] is not None and start_ns is not None
    at = f"{(gap['start_ns'] - start_ns) / 1e9:.3f}" if known else None
    lasted = None if gap["duration_ns"] is None else f"{gap['duration_ns'] / 1e9:.3f}"
    about = "" if gap["estimate"] is None else f", about {gap['estimate']}"
    count = f"not counted{about}" if gap["count"] is None else str(gap["count"])
    return [at, lasted, gap["cause"], count]


def _format_missing(stream: dict[str, Any]) -> str:
    """Format losses and incomplete samples: ``0; 22 samples lack 353 parts (network)``."""
    from recorder.session.accounts import format_incomplete

    parts = [format_losses(stream["lost"], stream["lost_intervals"])]
    return "; ".join(filter(None, [*parts, format_incomplete(stream["incomplete"])]))


def _format_text(summary: dict[str, Any]) -> str:
    lines = [
        f"session   {summary['name']}",
        f"folder    {summary['path']}",
        f"state     {format_state(summary['state'], summary['live'])}",
        *format_verdict(summary),
        f"start     {format_time(summary['start_ns'])}",
        f"end       {format_time(summary['end_ns'])}",
        f"duration  {format_seconds(summary['duration_s'])}",
        f"size      {format_bytes(summary['bytes'])}",
    ]
    if archives := summary["archives"]:
        sizes = (f"{name} {format_bytes(size)}" for name, size in archives.items())
        lines.append(f"archives  {', '.join(sizes)}")
    if (commits := summary["commits"]) is not None:
        half, most, longest = (commits[key] for key in ("half_ms", "most_ms", "longest_ms"))
        shares = f"half under {half:g} ms, 99% under {most:g} ms, the longest {longest:.0f} ms"
        lines.append(f"commits   {commits['count']}, {shares}")
    lines += [f"{key:8}  {value}" for key, value in _flatten("", summary["metadata"])]
    lines += format_incidents(summary, summary["start_ns"])
    lines += format_events(summary["events"], summary["start_ns"])
    if not summary["recorded"]:  # its losses were not counted, and it was not closed
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
                format_bytes(stream["bytes"]),
                _format_missing(stream) if recorded else None,
            ]
        )
    headers = ["stream", "samples", "rate [Hz]", "first [s]", "last [s]", "size", "lost"]
    text = "\n".join(map(clean, lines)) + "\n\n" + format_table(headers, rows, right=range(1, 6))
    if virtual := summary["virtual"]:
        listed = [
            [
                name,
                "damaged" if s["samples"] is None else s["samples"],
                format_bytes(s["bytes"]),
                clean(", ".join(s["channels"])) or None,
            ]
            for name, s in virtual.items()
        ]
        headers = ["virtual sensor", "samples", "size", "channels"]
        text += "\n\n" + format_table(headers, listed, right=range(1, 3))
    topics = {name: s for name, s in summary["streams"].items() if "topic" in s}
    if topics:
        listed = [[n, clean(s["topic"]), clean(s["type"]) or None] for n, s in topics.items()]
        text += "\n\n" + format_table(["stream", "topic", "type"], listed)
    if any("gaps" in stream for stream in summary["streams"].values()):
        text += "\n\n" + "\n".join(_format_gaps(summary))
    if (vrs := summary["record_format"]) is not None:
        data = [f"{n} {s['data']}" for n, s in vrs["streams"].items() if s["data"]]
        text += f"\n\nsession.vrs  {vrs['records']} records, {format_bytes(vrs['bytes'])}; data: "
        text += ", ".join(data) or "none"
        text += "" if vrs["indexed"] else "; without an index"
    return text


def _flatten(before: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the non-empty values; keys of nested mappings are dotted."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(f"{before}{key}.", value)
        elif value:
            yield f"{before}{key}", value
