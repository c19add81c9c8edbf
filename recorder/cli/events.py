"""``recorder events``: list a root's kept events; with ``--triggers``, evaluate triggers."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.info import format_shortfall, format_window
from recorder.cli.list_command import parse_since
from recorder.cli.output import add_format, emit, format_table, note
from recorder.common.errors import UsageError
from recorder.common.text_format import format_time

if TYPE_CHECKING:
    from recorder.recording.triggers.evaluation import Fired

_ORDERS = ("oldest", "newest")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the folders, the filters and the config."""
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="ROOT_OR_SESSION",
        help="read this folder of sessions; with --triggers, this session, or the parts of one "
        "recording, in order",
    )  # fmt: skip
    parser.add_argument(
        "--since",
        metavar="WHEN",
        help="list events of this UTC date or time (2026-11-01, 2026-11-01T12:00) or later, or "
        "within this time before now (30m, 12h, 7d, 2w)",
    )
    parser.add_argument("--trigger", metavar="NAME", help="list events of this trigger")
    parser.add_argument(
        "--order",
        choices=_ORDERS,
        help="list the oldest or the newest event first (default: oldest)",
    )
    parser.add_argument(
        "--triggers",
        type=Path,
        metavar="CONFIG",
        help="show when the triggers of this config would have fired in recorded sessions",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """List the events, or evaluate triggers; return 0, or 1 after an error in a session.

    Raises:
        UsageError: the options do not fit together.
    """
    if args.triggers is not None:
        for name in ("since", "trigger", "order"):
            if getattr(args, name) is not None:
                raise UsageError(f"--{name} lists the events of a root: leave out --triggers")
        return _evaluate(args)
    if len(args.folders) > 1:
        raise UsageError("name one root; several sessions need --triggers")
    return _list(args)


def _list(args: argparse.Namespace) -> int:
    import msgspec

    from recorder.common.clock import SystemClock
    from recorder.session.discovery import is_session
    from recorder.session.event_clips import read_index

    root: Path = args.folders[0]
    if is_session(root):
        raise UsageError(f"{root}: is a session: name its root, or evaluate --triggers CONFIG")
    since_ns = None
    if args.since is not None:
        since_ns = parse_since(args.since, SystemClock().realtime_ns())
    problems: list[str] = []
    known = read_index(root, problems.append)
    events = [
        event
        for event in known
        if (since_ns is None or event.t_ns >= since_ns)
        and (args.trigger is None or event.trigger == args.trigger)
    ]
    if args.order == "newest":
        events.reverse()
    rows = []
    for event in events:
        gone = [name for name in event.parts if not (root / name).is_dir()]
        rows.append(msgspec.to_builtins(event) | {"gone": gone})
    emit(rows, args, _format_events)
    if not known:
        note(f"recorder events: {root}: no events here")
    elif not events:
        note(f"recorder events: {root}: none of the {len(known)} events here matches")
    for problem in problems:
        note(f"recorder events: {problem}")
    return 1 if problems else 0


def _format_events(events: list[dict[str, Any]]) -> str:
    if not events:
        return ""
    rows, missing = [], []
    for event in events:
        parts = " ".join(
            f"{name} (gone)" if name in event["gone"] else name for name in event["parts"]
        )
        cells = [event["id"], format_time(event["t_ns"]), event["trigger"], event["state"]]
        rows.append([*cells, format_window(event), parts or None, event["text"]])
        missing += [f"{event['id']}: {format_shortfall(s, event)}" for s in event["shortfalls"]]
    headers = ["event", "time", "trigger", "state", "window", "sessions", "text"]
    return "\n".join([format_table(headers, rows), *([""] if missing else []), *missing])


def _evaluate(args: argparse.Namespace) -> int:
    from recorder.recording.clip.sources import check_closed
    from recorder.recording.supervisor.driver_registry import load
    from recorder.recording.triggers.evaluation import Evaluation
    from recorder.session.layout import read_session_json

    triggers = load(args.triggers).triggers
    if not triggers:
        raise UsageError(f"{args.triggers}: has no triggers")
    for session in args.folders:
        check_closed(session)
    rows: list[dict[str, Any]] = []
    evaluation: Evaluation | None = None
    problems: dict[str, str] = {}
    unknown: list[set[tuple[str, str]]] = []
    for session in args.folders:
        start_ns = int(read_session_json(session)["start_ns"])
        evaluation = Evaluation(session, triggers, evaluation)
        rows += [_make_row(session, start_ns, fired) for fired in evaluation.read()]
        problems |= evaluation.problems
        unknown.append(evaluation.unknown)
    assert evaluation is not None
    result = {"events": rows, "suppressed": evaluation.suppressed, "problems": problems}
    emit(result, args, _format_text)
    for name, problem in problems.items():
        note(f"recorder events: {name}: {problem}")
    for name, stream in sorted(set.intersection(*unknown)):
        note(f"recorder events: {name}: no stream {stream} in what was read")
    return 1 if problems else 0


def _make_row(session: Path, start_ns: int, fired: Fired) -> dict[str, Any]:
    at_s = (fired.t_ns - start_ns) / 1e9
    return {"session": str(session), "at_s": at_s} | asdict(fired)


def _format_text(result: dict[str, Any]) -> str:
    rows = []
    for event in result["events"]:
        keeps = f"{event['before']:g}:{event['after']:g}"
        values = ", ".join(f"{name} {_format_value(v)}" for name, v in event["values"].items())
        name = Path(event["session"]).name
        rows.append((name, event["trigger"], f"{event['at_s']:.3f}", keeps, values))
    headers = ("session", "trigger", "at [s]", "keeps [s]", "values")
    lines = [format_table(headers, rows, right=[2]) if rows else "no trigger fired"]
    lines += [
        f"{name}: its cooldown held it back {count} times"
        for name, count in result["suppressed"].items()
        if count
    ]
    return "\n".join(lines)


def _format_value(value: Any) -> str:
    if value is None:
        return "missing"
    return str(value) if isinstance(value, bool) else f"{value:.6g}"
