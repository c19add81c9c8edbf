"""``recorder clip SESSION...``: cut sessions, or merge parts, into a new session."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.finalize import interrupt, parse_interval
from recorder.cli.output import add_format, emit, human_bytes, progress
from recorder.cli.signals import handled

if TYPE_CHECKING:
    from recorder.clip.writing import Clip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sessions, the interval and the streams."""
    parser.add_argument(
        "sessions", nargs="+", type=Path, metavar="SESSION",
        help="the session's folder; several are parts of one recording, and make one clip",
    )  # fmt: skip
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="T",
        help="cut from this time on: seconds since the start of the first session (12.5), or UTC "
        "(2026-01-01T12:00:30Z)",
    )
    parser.add_argument("--until", metavar="T", help="cut up to, and without, this time")
    parser.add_argument("--streams", metavar="A,B", help="take only these streams")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder that the clip is made in (default: that of the first session)",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="name of the clip (default: from session and interval)"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Cut; 0."""
    from recorder.clip.writing import write_clip
    from recorder.contract.errors import UsageError
    from recorder.session.part import Part

    begin, end = parse_interval(args.begin, args.until)
    names = None if args.streams is None else tuple(dict.fromkeys(args.streams.split(",")))
    if names is not None and "" in names:
        raise UsageError(f"--streams: {args.streams!r} has an empty name")
    if len(args.sessions) == 1 and Part(begin, end, names).is_whole:
        raise UsageError("needs --from, --until or --streams, or several sessions to merge")
    out = args.sessions[0].resolve().parent if args.out is None else args.out
    with (
        handled(interrupt, signal.SIGTERM),  # as Ctrl-C does: nothing half-made is left
        progress("cutting", total=1.0) as advance,
    ):
        shown = 0.0

        def show(share: float) -> None:
            nonlocal shown
            if share - shown >= 0.01:
                advance(share - shown)
                shown = share

        clip = write_clip(args.sessions, Part(begin, end, names), out, args.name, show)
    emit(clip, args, _text)
    return 0


def _text(clip: Clip) -> str:
    seconds = (clip.end_ns - clip.start_ns) / 1e9
    lines = [f"{clip.session}: {seconds:.3f} s, {human_bytes(clip.bytes)}"]
    lines += [f"  {name}: {count} samples" for name, count in clip.samples.items()]
    lines += [f"  note: {text}" for text in clip.notes]
    return "\n".join(lines)
