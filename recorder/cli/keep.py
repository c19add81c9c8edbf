"""``recorder keep SESSION``: keep a session from being deleted by retention."""

from __future__ import annotations

import argparse
from pathlib import Path

from recorder.cli.control import add_socket, ask
from recorder.cli.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session, and how a daemon is reached that owns it."""
    parser.add_argument(
        "session", metavar="SESSION", help="the session's folder, or its name in a daemon's root"
    )
    parser.add_argument("--release", action="store_true", help="permit its deletion again")
    add_socket(parser)


def run(args: argparse.Namespace) -> int:
    """Keep it; 0 where it is kept now (or was before)."""
    from recorder.contract.errors import StorageError
    from recorder.daemon.postprocessing.retention import keep

    path = Path(args.session)
    if path.is_dir() or "/" in args.session:
        try:
            keep(path, release=args.release)
        except StorageError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            # The daemon's user may.
            ask(args, "keep", session=path.resolve().name, release=args.release)
        shown = str(path)
    else:
        reply = ask(args, "keep", session=args.session, release=args.release)
        shown = str(reply.session)
    result = {"session": shown, "kept": not args.release}
    word = "no longer kept" if args.release else "kept"
    emit(result, args, lambda _: f"{shown}: {word}")
    return 0
