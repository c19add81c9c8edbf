"""``recorder status``: show the daemon's status."""

from __future__ import annotations

import argparse

from recorder.cli.control import add_socket, ask, status_text
from recorder.cli.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how the daemon is reached."""
    add_socket(parser)


def run(args: argparse.Namespace) -> int:
    """Print it; 0 where a daemon answers, whatever it says."""
    reply = ask(args, "status")
    emit(dict(reply.status), args, status_text)
    return 0
