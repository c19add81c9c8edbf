"""``recorder clip SESSION...``: cut sessions, or merge parts, into a new session."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.finalize import add_interval, parse_interval, parse_names
from recorder.cli.output import add_format, emit, end_on_sigterm, note, share_progress
from recorder.common.errors import RecorderError, UsageError
from recorder.common.text_format import format_bytes

if TYPE_CHECKING:
    from recorder.recording.clip.writing import Clip
    from recorder.session.part import Part


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sessions, the interval and the streams."""
    parser.add_argument(
        "sessions", nargs="+", type=Path, metavar="SESSION",
        help="cut this session; several sessions are parts of one recording and make one clip",
    )  # fmt: skip
    add_interval(parser, "cut", "first session")
    parser.add_argument("--streams", metavar="A,B", help="take only these streams")
    parser.add_argument(
        "--events",
        action="store_true",
        help="make a clip of each event in the sessions, named after the event",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="make the clip in DIR (default: the folder of the first session)",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="give the clip this name (default: from session and interval)",
    )
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="sign the clip with this key (`recorder keys`)"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Cut the clip and return 0."""
    from recorder.session.part import Part

    if args.events:
        return _cut_events(args)
    begin, end = parse_interval(args.begin, args.until)
    names = parse_names("--streams", args.streams)
    if len(args.sessions) == 1 and Part(begin, end, names).is_whole:
        raise UsageError("needs --from, --until or --streams, or several sessions to merge")
    emit(_cut(args, args.sessions, Part(begin, end, names), args.name), args, _format_text)
    return 0


def _choose_folder(args: argparse.Namespace) -> Path:
    folder: Path = args.sessions[0].resolve().parent if args.out is None else args.out
    return folder


def _cut(args: argparse.Namespace, sessions: list[Path], part: Part, name: str | None) -> Clip:
    from recorder.recording.clip.writing import write_clip

    with end_on_sigterm(), share_progress("cutting") as show:
        return write_clip(sessions, part, _choose_folder(args), name, show, args.key)


def _cut_events(args: argparse.Namespace) -> int:
    """Cut each event out of the sessions that hold it; return 0, or 1 if an event failed."""
    from recorder.session.event_clips import OPEN, read_events
    from recorder.session.part import Moment, Part

    for option in ("begin", "until", "name"):
        if getattr(args, option) is not None:
            shown = "from" if option == "begin" else option
            raise UsageError(f"--{shown}: an event has its own interval and name")
    names = parse_names("--streams", args.streams)
    holders = {path: read_events(path) for path in args.sessions}
    known = {event.id: event for events in holders.values() for event in events}
    clips, failed = [], 0
    for event in sorted(known.values(), key=lambda event: event.t_ns):
        if event.state == OPEN:
            note(f"recorder clip: {event.id}: is not over yet")
            continue
        if (_choose_folder(args) / event.id).exists():
            note(f"recorder clip: {_choose_folder(args) / event.id}: exists")
            continue
        bounds = (event.from_ns, event.until_ns + 1)
        begin, end = (Moment(str(ns), ns, since_epoch=True) for ns in bounds)
        holding = [path for path, events in holders.items() if event.id in {e.id for e in events}]
        try:
            clips.append(_cut(args, holding, Part(begin, end, names), event.id))
        except RecorderError as error:
            failed += 1
            note(f"recorder clip: {event.id}: {error}")
    if not known:
        note("recorder clip: the sessions hold no event")
    emit(clips, args, lambda _: "\n".join(map(_format_text, clips)))
    return 1 if failed else 0


def _format_text(clip: Clip) -> str:
    seconds = (clip.end_ns - clip.start_ns) / 1e9
    lines = [f"{clip.session}: {seconds:.3f} s, {format_bytes(clip.bytes)}"]
    lines += [f"  {name}: {count} samples" for name, count in clip.samples.items()]
    lines += [f"  note: {text}" for text in clip.notes]
    return "\n".join(lines)
