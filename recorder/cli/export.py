"""``recorder export SESSION STREAM --to FORMAT``: export one stream for a quick look."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.finalize import interrupt, parse_interval
from recorder.cli.output import add_format, emit, handle_signals, human_bytes, note, progress

if TYPE_CHECKING:
    from recorder.archives.export import Exported

_MOST_LINES = 20  # of problems
_FORMATS = ("csv", "npz", "png", "jpg", "pcd", "pcap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session, the stream, the format and the samples."""
    parser.add_argument(
        "session", type=Path, metavar="SESSION", help="read the session in this folder"
    )
    parser.add_argument("stream", metavar="STREAM", help="export this stream")
    parser.add_argument(
        "--to",
        choices=_FORMATS,
        required=True,
        metavar="FORMAT",
        help="write csv: stamps and channels of few values; npz: arrays; jpg: pictures of a "
        "camera; png: pictures of a camera, ranges of a lidar, range and speed of a radar; pcd: "
        "points of a lidar, detections of a radar; pcap: datagrams of a udp sensor as a network "
        "capture",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="T",
        help="export from this time on: seconds since the start of the session (12.5), or UTC "
        "(2026-01-01T12:00:30Z)",
    )
    parser.add_argument("--until", metavar="T", help="export up to, and without, this time")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="export every Nth sample (default: 1)"
    )
    parser.add_argument(
        "--channels", metavar="A,B", help="export only these channels, to csv, npz, or lidar png"
    )
    parser.add_argument(
        "--max-gb",
        type=float,
        default=4.0,
        metavar="GB",
        help="refuse npz with larger arrays (default: 4)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="create this file, or this folder of several files (default: SESSION_STREAM... in the "
        "working directory)",
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Export; return 0, or 3 if samples that cannot be read were left out."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads of the export are enough
    from recorder.archives.export import Wanted, export
    from recorder.common.errors import UsageError
    from recorder.session.reader import Session

    begin, end = parse_interval(args.begin, args.until)
    if args.every < 1:
        raise UsageError(f"--every {args.every}: needs a whole number of at least 1")
    if not args.max_gb > 0:
        raise UsageError(f"--max-gb {args.max_gb:g}: needs a number above 0")
    channels = None if args.channels is None else tuple(dict.fromkeys(args.channels.split(",")))
    if channels is not None and "" in channels:
        raise UsageError(f"--channels: {args.channels!r} has an empty name")
    wanted = Wanted(
        args.stream, args.to, begin, end, args.every, channels, int(args.max_gb * 1e9)
    )  # fmt: skip
    with (
        handle_signals(interrupt, signal.SIGTERM),  # as Ctrl-C does: nothing half-made is left
        Session(args.session, virtual=True, partial=True) as session,
        progress(f"exporting {args.stream}", total=1.0) as advance,
    ):
        shown = 0.0

        def show(done: float, total: float) -> None:
            nonlocal shown
            share = min(1.0, done / total)
            if share - shown >= 0.002:
                advance(share - shown)
                shown = share

        exported = export(session, wanted, args.out, show)
    emit(exported, args, _format_text)
    for problem in exported.problems[:_MOST_LINES]:
        note(f"recorder export: left out: {problem}")
    if len(exported.problems) > _MOST_LINES:
        note(f"recorder export: left out: {exported.damaged} samples in all; not all are listed")
    return 3 if exported.damaged else 0


def _format_text(exported: Exported) -> str:
    samples = f"{exported.samples} sample{'s' * (exported.samples != 1)}"
    lines = [f"{exported.stream}: {samples}, {human_bytes(exported.bytes)}"]
    files = len(exported.files)
    lines.append(f"  {exported.place}" + (f" ({files} files)" if files > 1 else ""))
    lines += [f"  note: {text}" for text in exported.notes]
    if exported.damaged:
        lines.append(f"  left out: {exported.damaged} that cannot be read")
    return "\n".join(lines)
