"""Results on stdout, as text for people or JSON for programs; times and sizes for people.

Usage in a verb's module::

    def add_arguments(parser):
        add_format(parser)

    def run(args):
        emit(result, args, lambda r: format_table(["stream", "samples"], rows_of(r)))

Text is plain, aligned and without colour, so that it can be piped as it is.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

FORMATS = ("text", "json")


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add ``--format text|json``."""
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="how results are printed (text)"
    )


def emit(result: T, args: argparse.Namespace, text: Callable[[T], str]) -> None:
    """Print a result on stdout as the user asked for it.

    Args:
        result: mappings, lists, dataclasses, paths, numbers; see `plain`.
        args: with ``format``, from `add_format`.
        text: renders the result for people; called only where text was asked for.
    """
    if args.format == "json":
        print(json.dumps(plain(result), indent=2, ensure_ascii=False, allow_nan=False))
    elif rendered := text(result).rstrip("\n"):
        print(rendered)


def note(message: str) -> None:
    """Print a diagnostic line on stderr."""
    print(message, file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """The value as JSON can hold it.

    Dataclasses become mappings, paths and other keys texts, numpy scalars and arrays Python's,
    NaN and infinities null, since JSON has neither.

    Raises:
        TypeError: something in it has no such form.
    """
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)  # an enumeration's member as its value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case set() | frozenset():
            return sorted(plain(v) for v in value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "tolist"):  # numpy, which need not be imported for this
        return plain(value.tolist())
    raise TypeError(f"no JSON form for {type(value).__name__}")


def format_table(
    headers: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[int] = ()
) -> str:
    """Rows as aligned text below their headers; None is shown as ``-``.

    Args:
        headers: one per column.
        rows: cells; anything but text goes through `str`.
        right: indices of the columns aligned at the right.
    """
    cells = [list(headers), *(["-" if c is None else str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    at_right = set(right)
    lines = []
    for row in cells:
        parts = [
            cell.rjust(width) if i in at_right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def human_bytes(count: float | None) -> str:
    """A size in SI units: ``15.7 MB``."""
    if count is None:
        return "-"
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        # Judged as it will be printed: 999.96 kB would read "1000.0 kB".
        if abs(size) < (999.5 if unit == "B" else 999.95):
            break
        size /= 1000
    else:
        unit = "PB"
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def human_rate(bytes_per_second: float | None) -> str:
    """A data rate in MB/s (1e6 bytes): ``15.70``, or ``0.0036`` of a small one."""
    if bytes_per_second is None:
        return "-"
    rate = bytes_per_second / 1e6
    return f"{rate:.2f}" if rate >= 0.1 or rate == 0 else f"{rate:.4f}"


def human_seconds(seconds: float | None) -> str:
    """A duration: ``250 ms``, ``7.4 s``, ``3 min 05 s``, ``2 h 10 min``, ``3 d 04 h``."""
    if seconds is None:
        return "-"
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 0.9995:
        return f"{sign}{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{sign}{hours // 24} d {hours % 24:02d} h"


def human_time(t_ns: int | None) -> str:
    """A time since the epoch, in UTC to the millisecond: ``2024-05-01 12:00:00.250 UTC``."""
    if t_ns is None:
        return "-"
    seconds, rest = divmod(t_ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d} UTC"


@contextmanager
def progress(description: str, total: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr for long work; nothing where stderr is no terminal.

    Usage::

        with progress("validating", total=len(files)) as advance:
            for file in files:
                validate(file)
                advance(1)
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # rich takes 50 ms to import: only where it is seen
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.advance(task, amount)
