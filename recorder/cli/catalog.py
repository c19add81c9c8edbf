"""``recorder catalog ROOT_OR_URL``: write one table of all sessions, for DuckDB and others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recorder.cli.download import add_identity, read_identity
from recorder.cli.output import add_format, emit, note
from recorder.common.errors import UsageError
from recorder.common.text_format import format_bytes

if TYPE_CHECKING:
    pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the root, the file and the format."""
    parser.add_argument(
        "root",
        metavar="ROOT_OR_URL",
        help="list the sessions in this folder and in all folders below it, or in a store to which "
        "sessions were uploaded (s3://BUCKET/PREFIX)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write this Parquet file (default: catalog.parquet in ROOT, of a store: in this "
        "folder); sessions that are in it, and have not changed, are not read again",
    )
    add_identity(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Write the table; return 0, or 1 if a session or folder is unreadable (others are in it)."""
    from recorder.fleet.catalog.catalog import update_catalog
    from recorder.fleet.catalog.table import CATALOG
    from recorder.fleet.store import open_store
    from recorder.fleet.store.base import is_store
    from recorder.fleet.stored_catalog import catalog_store
    from recorder.session.verdict import FAIL

    if is_store(args.root):
        identity = read_identity(args)
        update = catalog_store(open_store(args.root), args.out or Path(CATALOG), identity)
    elif args.identity is not None:
        raise UsageError("--identity: is of stores; what is here is not encrypted")
    else:
        update = update_catalog(Path(args.root), args.out)
    values = {
        "path": str(update.path),
        "sessions": len(update.rows),
        "read": update.read,
        "unchanged": update.unchanged,
        "gone": update.gone,
        "hours": sum(row.duration_s or 0.0 for row in update.rows) / 3600,
        "bytes": sum(row.bytes for row in update.rows),
        "lost": sum(row.lost for row in update.rows),
        "lost_intervals": sum(row.lost_intervals for row in update.rows),
        "incomplete": sum(row.incomplete for row in update.rows),
        "failed": sum(row.verdict == FAIL for row in update.rows),
    }
    emit(values, args, _format_text)
    if not update.rows:
        note(f"recorder catalog: {args.root}: no sessions here")
    problems = [f"{row.location}: {row.problem}" for row in update.rows if row.problem is not None]
    for problem in [*update.unlisted, *problems]:
        note(f"recorder catalog: {problem}")
    return 1 if update.unlisted or problems else 0


def _format_text(values: dict[str, Any]) -> str:
    count = values["sessions"]
    return (
        f"{values['path']}: {count} session{'' if count == 1 else 's'}, {values['hours']:.2f} h, "
        f"{format_bytes(values['bytes'])}; {values['read']} read, {values['unchanged']} as before, "
        f"{values['gone']} gone; {count - values['failed']} PASS, {values['failed']} FAIL"
    )
