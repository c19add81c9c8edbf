"""``recorder mark TEXT``: put a mark into the session that a daemon records."""

from __future__ import annotations

import argparse

from recorder.cli.control import add_socket, ask, tell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the text and how the daemon is reached."""
    parser.add_argument("text", metavar="TEXT", help="text of the mark")
    add_socket(parser)


def run(args: argparse.Namespace) -> int:
    """Mark; 0, or 1 where nothing is being recorded."""
    from recorder.daemon.control.requests import make_request

    make_request("mark", {"text": args.text})
    tell(args, ask(args, "mark", text=args.text))
    return 0
