"""``recorder download URL/NAME FOLDER``: download a session from a store."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.output import add_format, emit, end_on_sigterm, progress
from recorder.common.errors import UsageError
from recorder.common.text_format import format_bytes

if TYPE_CHECKING:
    from recorder.fleet.encryption import Identity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the session and the target folder."""
    parser.add_argument(
        "url", metavar="URL/NAME", help="get this session from its store (s3://BUCKET/PREFIX/NAME)"
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="make the session in this folder"
    )
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        help="take the keys of the store from this file, in the format of ~/.aws/credentials",
    )
    add_identity(parser)
    add_format(parser)


def add_identity(parser: argparse.ArgumentParser) -> None:
    """Declare the file of secret keys."""
    parser.add_argument(
        "--identity",
        type=Path,
        metavar="FILE",
        help="decrypt with the secret keys in this file, which age-keygen made",
    )


def read_identity(args: argparse.Namespace) -> Identity | None:
    """Read the user's secret keys, if there is a file."""
    from recorder.fleet.encryption import Identity

    return None if args.identity is None else Identity(args.identity)


def run(args: argparse.Namespace) -> int:
    """Download the session and return 0."""
    from recorder.fleet.fetching import download_session
    from recorder.fleet.store import open_store
    from recorder.fleet.store.base import is_store

    url, _, name = args.url.rstrip("/").rpartition("/")
    if not is_store(args.url) or url.endswith(":/"):
        raise UsageError(f"{args.url}: needs a store and a session in it, s3://BUCKET/PREFIX/NAME")
    store = open_store(url, credentials=args.credentials)
    with end_on_sigterm(), ExitStack() as stack:
        advance: Any = None

        def count(size: int, total: int) -> None:
            nonlocal advance
            if advance is None:
                bar = progress(f"downloading {name}", total=float(total))
                advance = stack.enter_context(bar)
            advance(size)

        done = download_session(
            store, name, args.folder, identity=read_identity(args), progress=count
        )
    emit(done, args, lambda _: f"{done.session}: {done.files} files, {format_bytes(done.bytes)}")
    return 0
