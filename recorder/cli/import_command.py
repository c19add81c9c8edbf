"""``recorder import FILE``: make a session of a foreign recording, with the recording's times.

The drivers play the recording as fast as the disk permits, through the writer, like any other
source.  An imported session is checked, repaired and packed like a recorded one.
"""

from __future__ import annotations

import argparse
import re
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.control import format_streams
from recorder.cli.import_kinds import ImportPlan, plan_import
from recorder.cli.info import format_verdict
from recorder.cli.output import ShowShare, add_format, emit, handle_signals, note, share_progress
from recorder.common.errors import StorageError, UsageError
from recorder.common.text_format import clean

if TYPE_CHECKING:
    from recorder.recording.foreground import Foreground, Outcome
    from recorder.recording.supervisor.sensors import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="import this MCAP file, ROS 2 bag (folder, .mcap, .db3), VRS file, NCore sequence "
        "(.json, .zarr.itar, folder) or EdgeFirst dataset (folder, .zip, .arrow, .parquet)",
    )
    parser.add_argument(
        "--root", type=Path, default=Path("sessions"), metavar="DIR",
        help="make the session in DIR (default: sessions)",
    )  # fmt: skip
    parser.add_argument(
        "--name", help="give the session this name, which must be new (default: the file's)"
    )
    parser.add_argument(
        "--topics", metavar="[NAME=]TOPIC,...",
        help="import only these topics; NAME names the sensor (default: derived from the topic)",
    )  # fmt: skip
    parser.add_argument(
        "--metadata", type=Path, metavar="FILE",
        help="use this metadata of the Ouster lidar if the recording has none",
    )  # fmt: skip
    parser.add_argument(
        "--map", type=Path, metavar="FILE",
        help="use this file's frames, mounts and sensors, where the recording does not say them",
    )  # fmt: skip
    parser.add_argument(
        "--sequence", metavar="NAME",
        help="import this recording of an EdgeFirst dataset that has several",
    )  # fmt: skip
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--plan", action="store_true",
        help="list what becomes what, and what is lost; write nothing",
    )  # fmt: skip
    only.add_argument(
        "--guess", action="store_true", help="print a draft of the file for --map; write nothing"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Import; return 0, 3 if messages were unreadable, 1 if the disk failed, 2 for a wrong file."""
    from recorder.common.clock import SystemClock
    from recorder.config.names import check_name
    from recorder.recording.foreground import Foreground
    from recorder.recording.preflight import check_root
    from recorder.recording.sessions.session_plan import plan_session

    if args.plan or args.guess:
        return _show_plan(args)
    name = check_name(args.name) if args.name is not None else derive_name(args.file)
    if args.name is not None and (args.root / name).exists():
        raise UsageError(f"{args.root / name}: a session of that name exists")
    with tempfile.TemporaryDirectory(prefix="recorder-import-") as folder:
        made = plan_import(args, Path(folder))
        made.prepare()
        plan = plan_session(made.config, name, exact_name=args.name is not None)
        plan.root = str(args.root.absolute())
        plan.source_start_ns = made.start_ns
        plan.metadata = {"imported": made.describe_origin()}
        root = check_root(Path(plan.root), made.config.storage)
        if root.problem is not None:
            raise StorageError(root.problem)
        foreground = Foreground(made.config, SystemClock(), note)
        with (
            foreground,
            handle_signals(lambda number: foreground.stop(signal.Signals(number).name)),
            share_progress(f"importing {args.file.name}") as show,
        ):
            foreground.arm()
            foreground.start(plan)
            outcome = foreground.record(partial(show_played, foreground, show, made.duration_s))
        return _finish(args, made, outcome, foreground.stopping)


def _show_plan(args: argparse.Namespace) -> int:
    """Print the plan, or the draft of a file of choices."""
    with tempfile.TemporaryDirectory(prefix="recorder-import-") as folder:
        made = plan_import(args, Path(folder))
        if args.guess:
            text = made.draft()
            emit({"map": text}, args, lambda _: text.rstrip())
        else:
            emit(made.describe(), args, lambda _: made.format())
    return 0


def derive_name(file: Path) -> str:
    """Derive a session's name from the file's name; replace invalid characters by ``_``."""
    stem = file.resolve().name
    if file.is_file():
        stem = Path(stem.removesuffix(".zstd")).stem
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", stem).lstrip("._-")[:80]
    return name or "imported"


def show_played(foreground: Foreground, show: ShowShare, duration_s: float, status: Status) -> None:
    """Move the bar to the least time of the sensors that still play."""
    start_ns = foreground.status.start_mono_ns
    if isinstance(start_ns, int) and duration_s:
        streams = status.streams.values()
        reached = [stream["last_ns"] or 0 for stream in streams if not stream["ended"]]
        show((min(reached, default=start_ns) - start_ns) / 1e9 / duration_s)


def _finish(args: argparse.Namespace, plan: ImportPlan, outcome: Outcome, stopped: bool) -> int:
    from recorder.cli.post_session import complete_played
    from recorder.cli.run import judge_session

    if outcome.sealed is None:
        plan.complete(outcome.session)
    exit_code = complete_played("import", outcome, stopped, "the recording")
    happened = judge_session(outcome.session)
    result = {
        "session": outcome.session,
        "exit_code": exit_code,
        "start_ns": plan.start_ns,
        "streams": {
            name: {key: s[key] for key in ("samples", "lost", "unknown_losses", "incomplete")}
            for name, s in outcome.streams.items()
        },
        **plan.describe_result(),
        "faults": outcome.faults,
        **{key: happened[key] for key in ("state", "verdict", "reasons", "remarks")},
    }
    emit(result, args, lambda _: _format_text(plan, outcome, happened))
    return exit_code


def _format_text(plan: ImportPlan, outcome: Outcome, happened: dict[str, Any]) -> str:
    lines = plan.format_result(outcome)
    lines += [f"state     {happened['state'] or 'unreadable'}", *format_verdict(happened)]
    lines.append(f"session {outcome.session}")
    return "\n".join([format_streams(outcome.streams, "ended"), *map(clean, lines)])
