"""``recorder replay SESSION``: publish a recorded session on a PUB tap, or as topics.

Subscribers of the tap receive the same messages as from a live recording
(`recorder.bus.sockets.TapSubscriber`): the same declarations, the same encoded frames, `t_mono` on
this machine's monotonic clock.  With ``--to``, the messages are those of a packed ROS 2 bag.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
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
    parser.add_argument(
        "--to",
        metavar="TARGET",
        help="publish as ROS 2 topics with /clock, to ros2:DOMAIN or zenoh:[LOCATOR/]DOMAIN",
    )
    parser.add_argument(
        "--await",
        dest="awaited",
        metavar="A,B",
        help="start when these topics of --to have subscribers (default: after a second)",
    )
    parser.add_argument("--loop", action="store_true", help="start again at the end")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Replay to the end, or until SIGINT or SIGTERM; return 0."""
    if not 0 < args.speed < float("inf"):
        raise UsageError(f"--speed {args.speed:g}: needs a number above 0")
    names = None if args.streams is None else [n for n in args.streams.split(",") if n]
    if names == []:
        raise UsageError(f"--streams {args.streams!r}: names no stream")
    if args.to is not None:
        if args.tap is not None:
            raise UsageError("--to, --tap: give one of the two")
        return _replay_topics(args, names)
    if args.awaited is not None:
        raise UsageError("--await: only with --to")
    return _replay_tap(args, names)


def _replay_tap(args: argparse.Namespace, names: Sequence[str] | None) -> int:
    from recorder.bus.sockets import TapPublisher
    from recorder.common.clock import SignalEvent, SystemClock
    from recorder.session.reader import Session
    from recorder.session.replay import Replay

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


def _replay_topics(args: argparse.Namespace, names: Sequence[str] | None) -> int:
    """Return 0, or 3 if a topic or a message could not be published."""
    from recorder.archives.sample_workers import open_part
    from recorder.common.clock import SignalEvent, SystemClock
    from recorder.recording.topic_replay import TopicPublisher, TopicReplay
    from recorder.session.part import Part

    stop = SignalEvent()
    awaited = [name for name in (args.awaited or "").split(",") if name]
    part = Part(streams=None if names is None else tuple(names))
    with open_part(args.session, part) as session, handle_signals(lambda _: stop.set()):
        replay = TopicReplay(session, speed=args.speed)
        with TopicPublisher(args.to, replay.topics, awaited, stop) as publisher:
            topics = [each.name for each in replay.topics if each.name not in publisher.refused]
            emit({"target": args.to, "topics": topics}, args, lambda _: "\n".join(topics))
            sys.stdout.flush()
            replay.run(publisher, SystemClock(), stop, loop=args.loop)
            done = publisher.finish()
    counts = ", ".join(f"{name} {count}" for name, count in sorted(done.published.items()))
    note(f"recorder replay: {counts or 'no message'}")
    for line in replay.notes:
        note(f"recorder replay: {line}")
    for name, reason in done.reasons.items():
        note(f"recorder replay: {done.failed.get(name, 0)} messages not published: {reason}")
    return 3 if done.reasons else 0
