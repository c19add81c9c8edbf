"""``recorder start``: have a daemon begin to record."""

from __future__ import annotations

import argparse
from typing import Any

from recorder.cli.control import add_socket, ask, tell


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare name, metadata, and how the daemon is reached."""
    parser.add_argument("--name", help="give the session this name, which must be new")
    parser.add_argument(
        "--meta",
        action="append",
        default=[],
        metavar="K=V",
        help="add metadata to the config's; may be repeated",
    )
    add_socket(parser)


def run(args: argparse.Namespace) -> int:
    """Start; 0 where it records now, else the reason and 1, or 2 for a name that cannot be."""
    from recorder.contract.errors import UsageError
    from recorder.daemon.control.requests import make_request

    meta = {}
    for item in args.meta:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--meta {item!r}: is not of the form K=V")
        if key in meta:
            raise UsageError(f"--meta {key}: duplicate key")
        meta[key] = value
    values: dict[str, Any] = {"meta": meta} if meta else {}
    if args.name is not None:
        values["name"] = args.name
    make_request("start", values)
    tell(args, ask(args, "start", **values))
    return 0
