"""``recorder export SESSION_OR_VRS STREAM --to FORMAT``: export one stream for a quick look."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.finalize import add_interval, parse_interval, parse_names
from recorder.cli.output import add_format, emit, end_on_sigterm, note, share_progress
from recorder.common.errors import UsageError
from recorder.common.text_format import format_bytes

if TYPE_CHECKING:
    from recorder.archives.export import Exported

_MOST_LINES = 20  # of problems
_FORMATS = ("csv", "npz", "png", "jpg", "pcd", "pcap", "blocks")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session, the stream, the format and the samples."""
    parser.add_argument(
        "session",
        type=Path,
        metavar="SESSION_OR_VRS",
        help="read the session in this folder, or this VRS file",
    )
    parser.add_argument(
        "stream",
        metavar="STREAM",
        help="export this stream; of a VRS file its id (214-1), type, flavor or name",
    )
    parser.add_argument(
        "--to",
        choices=_FORMATS,
        required=True,
        metavar="FORMAT",
        help="write csv: stamps and channels of few values; npz: arrays; jpg: pictures of a "
        "camera; png: pictures of a camera, ranges of a lidar, range and speed of a radar; pcd: "
        "points of a lidar, detections of a radar; pcap: datagrams of a udp sensor as a network "
        "capture; blocks: images, audio and other blocks of a VRS file as they are stored; of a "
        "VRS file csv, jpg, png and blocks",
    )
    add_interval(parser, "export")
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
    from recorder.session.reader import Session

    begin, end = parse_interval(args.begin, args.until)
    if args.every < 1:
        raise UsageError(f"--every {args.every}: needs a whole number of at least 1")
    if not args.max_gb > 0:
        raise UsageError(f"--max-gb {args.max_gb:g}: needs a number above 0")
    channels = parse_names("--channels", args.channels)
    wanted = Wanted(
        args.stream, args.to, begin, end, args.every, channels, int(args.max_gb * 1e9)
    )  # fmt: skip
    with end_on_sigterm(), share_progress(f"exporting {args.stream}") as show:

        def progress(done: float, total: float) -> None:
            show(min(1.0, done / total))

        if args.session.is_file():
            from recorder.archives.export.vrs_file import export_vrs

            exported = export_vrs(args.session, wanted, args.out, progress)
        else:
            with Session(args.session, virtual=True, partial=True) as session:
                exported = export(session, wanted, args.out, progress)
    emit(exported, args, _format_text)
    for problem in exported.problems[:_MOST_LINES]:
        note(f"recorder export: left out: {problem}")
    if len(exported.problems) > _MOST_LINES:
        note(f"recorder export: left out: {exported.damaged} samples in all; not all are listed")
    return 3 if exported.damaged else 0


def _format_text(exported: Exported) -> str:
    samples = f"{exported.samples} sample{'s' * (exported.samples != 1)}"
    lines = [f"{exported.stream}: {samples}, {format_bytes(exported.bytes)}"]
    files = len(exported.files)
    lines.append(f"  {exported.place}" + (f" ({files} files)" if files > 1 else ""))
    lines += [f"  note: {text}" for text in exported.notes]
    if exported.damaged:
        lines.append(f"  left out: {exported.damaged} that cannot be read")
    return "\n".join(lines)
