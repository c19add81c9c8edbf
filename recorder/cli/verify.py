"""``recorder verify PATH``: prove that a recording is unchanged."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.cli.download import add_identity, read_identity
from recorder.cli.output import add_format, emit, progress
from recorder.common.errors import UsageError
from recorder.common.text_format import clean

if TYPE_CHECKING:
    from recorder.integrity.proof import Proof


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the path, and the trusted keys."""
    parser.add_argument(
        "path",
        metavar="PATH_OR_URL",
        help="verify this session, clip, archive, folder of sessions or archives, or store "
        "(s3://BUCKET/PREFIX)",
    )
    parser.add_argument(
        "--public-key",
        action="append",
        default=[],
        metavar="FILE_OR_FINGERPRINT",
        help="trust only this key (vehicle.pub, or its fingerprint); may be repeated. Without it, "
        "the key in a session is trusted",
    )
    parser.add_argument(
        "--sources",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="search this folder, too, for the source sessions of an archive or a clip",
    )
    add_identity(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print the proof; return 0 if nothing is changed, missing or added, else 1."""
    from recorder.fleet.store import open_store
    from recorder.fleet.store.base import is_store
    from recorder.fleet.verified import verify_store
    from recorder.integrity.proof import Trust
    from recorder.integrity.verify import verify

    trust = Trust(args.public_key)
    identity = read_identity(args)
    if identity is not None and not is_store(args.path):
        raise UsageError("--identity: is of stores; what is here is not encrypted")
    with ExitStack() as stack:
        if is_store(args.path):
            proof = verify_store(open_store(args.path), trust, identity=identity)
        else:
            proof = verify(Path(args.path), trust, args.sources, lambda path: _bar(stack, path))
    emit(proof.to_wire(), args, lambda _: "\n".join(map(clean, _format_lines(proof))))
    return 0 if proof.sound else 1


def _bar(stack: ExitStack, path: Path) -> Callable[[int], None]:
    stack.close()  # the bar of what was verified before
    if not sys.stderr.isatty():
        return lambda _: None
    files = path.rglob("*") if path.is_dir() else (path.parent / path.stem).rglob("*")
    total = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    return stack.enter_context(progress(f"verifying {path.name}", total=max(total, 1.0)))


def _format_lines(proof: Proof) -> Iterator[str]:
    for part in proof.parts:
        yield from _format_lines(part)
    yield from (f"proven    {line}" for line in proof.proven)
    yield from (f"unproven  {line}" for line in proof.unproven)
    yield from (f"fault     {line}" for line in proof.faults)
    yield f"{proof.path}: {proof.kind}: {proof.verdict}"
