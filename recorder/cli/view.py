"""``recorder view SESSION``: play a session or archive in the dashboard of the live view."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.output import add_format, emit, note, open_in_browser
from recorder.common.errors import UsageError

if TYPE_CHECKING:
    from recorder.config.settings import LiveSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session, the server's address, and the access options."""
    parser.add_argument(
        "session",
        type=Path,
        metavar="SESSION",
        help="play the session in this folder, or an archive that `recorder import` takes",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="listen on this port (default: a free one)",
    )
    parser.add_argument(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listen on this address; all but loopback addresses need --token (default: 127.0.0.1)",
    )
    parser.add_argument("--token", metavar="T", help="require this password from viewers")
    parser.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="permit pages of this origin, such as file:// for a desktop app; may be repeated",
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="start at X times the recorded speed (default: 1; inf: as fast as possible)",
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return 0."""
    from recorder.cli.viewed_archive import import_while_viewed, is_archive

    settings = _make_settings(args)
    if not is_archive(args.session):
        return _serve(args, args.session, settings)
    with import_while_viewed(args.session) as session:
        return _serve(args, session, settings)


def _serve(args: argparse.Namespace, session: Path, settings: LiveSettings) -> int:
    import asyncio

    from recorder.viewers.live.playback_backend import serve_session

    def announce(url: str, name: str, problems: Mapping[str, str]) -> None:
        for stream, text in problems.items():
            note(f"recorder view: {stream}: {text}")
        emit({"url": url, "session": name}, args, lambda result: result["url"])
        sys.stdout.flush()  # a program that waits for the address reads it from a pipe
        open_in_browser(url, unless=args.no_browser)

    asyncio.run(serve_session(session, settings, announce, speed=args.speed))
    return 0


def _make_settings(args: argparse.Namespace) -> LiveSettings:
    """Convert the options to the config's section ``live``, and check them by its rules."""
    from recorder.config.settings import LiveSettings

    if not 0 <= args.port <= 65535:
        raise UsageError(f"--port {args.port}: needs a number from 0 to 65535")
    origins = tuple(args.origin)
    settings = LiveSettings(port=args.port, bind=args.bind, token=args.token, origins=origins)
    for key, text in settings.faults():
        raise UsageError(f"--{key.replace('origins', 'origin')}: {text.replace('live.', '--')}")
    return settings
