"""``recorder replay SESSION``: publish a recorded session as live streams on a PUB tap.

Subscribers receive the same messages as from a live recording
(`recorder.bus.sockets.TapSubscriber`): the same declarations, the same encoded frames, `t_mono` on
this machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from recorder.cli.output import add_format, emit, handle_signals, note
from recorder.common.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session, its streams, the pace and the endpoint."""
    parser.add_argument(
        "session", type=Path, metavar="SESSION", help="play the session in this folder"
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="play X times as fast as recorded (default: 1)",
    )
    parser.add_argument("--streams", metavar="A,B", help="play only these streams")
    parser.add_argument(
        "--tap",
        metavar="ENDPOINT",
        help="publish at ipc://PATH or tcp://HOST:PORT (default: a new ipc:// socket)",
    )
    parser.add_argument("--loop", action="store_true", help="start again at the end")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Replay to the end, or until SIGINT or SIGTERM; return 0."""
    from recorder.bus.sockets import TapPublisher
    from recorder.common.clock import SignalEvent, SystemClock
    from recorder.session.reader import Session
    from recorder.session.replay import Replay

    if not 0 < args.speed < float("inf"):
        raise UsageError(f"--speed {args.speed:g}: needs a number above 0")
    names = None if args.streams is None else [n for n in args.streams.split(",") if n]
    if names == []:
        raise UsageError(f"--streams {args.streams!r}: names no stream")
    stop = SignalEvent()
    with Session(args.session) as session, tempfile.TemporaryDirectory(prefix="recorder-") as own:
        replay = Replay(session, names, speed=args.speed)
        endpoint = args.tap or f"ipc://{own}/tap"
        result = {"endpoint": endpoint, "streams": list(replay.specs)}
        with TapPublisher(endpoint) as publisher, handle_signals(lambda _: stop.set()):
            emit(result, args, lambda _: endpoint)
            sys.stdout.flush()  # a program that waits for the endpoint reads it from a pipe
            sent = replay.run(publisher, SystemClock(), stop, loop=args.loop)
    note("recorder replay: " + ", ".join(f"{name} {count}" for name, count in sent.items()))
    return 0
