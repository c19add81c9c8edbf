"""``recorder events SESSION... --triggers CONFIG``: the moments at which triggers fire."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, emit, format_table, note

if TYPE_CHECKING:
    from recorder.triggers.evaluation import Fired


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sessions and the config."""
    parser.add_argument(
        "sessions", nargs="+", type=Path, metavar="SESSION",
        help="the session's folder; several are the parts of one recording, in order",
    )  # fmt: skip
    parser.add_argument(
        "--triggers",
        type=Path,
        required=True,
        metavar="CONFIG",
        help="evaluate the triggers of this config",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate; 0, or 1 where a trigger cannot be evaluated (the others are)."""
    from recorder.clip.sources import check_closed
    from recorder.contract.errors import UsageError
    from recorder.daemon.driver_registry import load
    from recorder.session.layout import read_session_json
    from recorder.triggers.evaluation import Evaluation

    triggers = load(args.triggers).triggers
    if not triggers:
        raise UsageError(f"{args.triggers}: has no triggers")
    for session in args.sessions:
        check_closed(session)
    rows: list[dict[str, Any]] = []
    evaluation: Evaluation | None = None
    problems: dict[str, str] = {}
    for session in args.sessions:
        start_ns = int(read_session_json(session)["start_ns"])
        evaluation = Evaluation(session, triggers, evaluation)
        rows += [_row(session, start_ns, fired) for fired in evaluation.read()]
        problems |= evaluation.problems
    assert evaluation is not None
    result = {"events": rows, "suppressed": evaluation.suppressed, "problems": problems}
    emit(result, args, _text)
    for name, problem in problems.items():
        note(f"recorder events: {name}: {problem}")
    return 1 if problems else 0


def _row(session: Path, start_ns: int, fired: Fired) -> dict[str, Any]:
    at_s = (fired.t_ns - start_ns) / 1e9
    return {"session": str(session), "at_s": at_s} | asdict(fired)


def _text(result: dict[str, Any]) -> str:
    rows = []
    for event in result["events"]:
        keeps = f"{event['before']:g}:{event['after']:g}"
        values = ", ".join(f"{name} {_shown(v)}" for name, v in event["values"].items())
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


def _shown(value: Any) -> str:
    if value is None:
        return "missing"
    return str(value) if isinstance(value, bool) else f"{value:.6g}"
