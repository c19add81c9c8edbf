"""Results on stdout, as text for people or JSON for programs; times and sizes for people.

Usage in a verb's module::

    def add_arguments(parser):
        add_format(parser)

    def run(args):
        emit(result, args, lambda r: format_table(["stream", "samples"], rows_of(r)))

Text is plain, aligned and without colour, so that it can be piped as it is.  Control characters
of names, metadata, marks and messages are shown escaped (`clean`): none reaches a terminal.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

from recorder.contract.redaction import mask_passwords

T = TypeVar("T")

FORMATS = ("text", "json")


class Advance(Protocol):
    """Moves a progress bar on."""

    def __call__(self, amount: float, now: str | None = None, /) -> None:
        """Add finished work; `now` is a new description of the work."""


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add ``--format text|json``."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="print results as text or JSON (default: text)",
    )


def emit(
    result: T, args: argparse.Namespace, text: Callable[[T], str], *, indent: int | None = 2
) -> None:
    """Print a result on stdout as the user asked for it.

    Args:
        result: mappings, lists, dataclasses, paths, numbers; see `plain`.
        args: with ``format``, from `add_format`.
        text: renders the result for people; called only where text was asked for.
        indent: of JSON; None: on one line.
    """
    if args.format == "json":
        dumped = json.dumps(plain(result), indent=indent, ensure_ascii=False, allow_nan=False)
        print(_escape_json(dumped))
    elif rendered := text(result).rstrip("\n"):
        print("\n".join(map(clean, rendered.split("\n"))))


class Screen:
    """Lines at the end of a terminal, drawn over themselves.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines = 0

    def draw(self, text: str) -> None:
        """Show this text instead of the last one, cut to the terminal's size."""
        columns, rows = shutil.get_terminal_size()  # what wraps or scrolls is not drawn over
        lines = [line[: columns - 1] for line in text.splitlines()[: rows - 1]]
        self._stream.write(self._back() + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._stream.flush()
        self._lines = len(lines)

    def clear(self) -> None:
        """Remove the text, so that other lines can be printed."""
        if self._lines:
            self._stream.write(self._back() + "\x1b[J")
            self._lines = 0

    def _back(self) -> str:
        return f"\x1b[{self._lines}A" if self._lines else ""


def note(message: str, /, *_: Any, **__: Any) -> None:
    """Print a diagnostic line on stderr; it has a level, as in a log, that is not shown."""
    print(clean(message), file=sys.stderr, flush=True)


def complain(prefix: str, error: Exception, text: str | None = None) -> None:
    """Print an error on stderr, one line for each of a `ConfigFaultsError`.

    Args:
        prefix: begins each line.
        error: what is wrong.
        text: its message, where that is not the error's own.
    """
    for each in getattr(error, "errors", (error,)):
        note(f"{prefix}: {mask_passwords(str(each) if text is None else text)}")


def clean(text: str) -> str:
    """The text with what a terminal would act upon escaped as Python writes it.

    That is control characters (C0, DEL and C1, newlines too), line and paragraph separators, marks
    and overrides of the writing direction, and halves of surrogate pairs.

    >>> print(clean("a\\x1b[2Jb"))
    a\\x1b[2Jb
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _acts(c) else c for c in text)


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTIVE or character in _DIRECTIONS


def _escape_json(dumped: str) -> str:
    """The same JSON, in which nothing acts on a terminal either."""
    if dumped.isascii() and "\x7f" not in dumped:  # json has escaped the rest of C0
        return dumped
    return "".join(f"\\u{ord(c):04x}" if c != "\n" and _acts(c) else c for c in dumped)


_ACTIVE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


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
    shown = (["-" if c is None else clean(str(c)) for c in row] for row in rows)
    cells = [list(headers), *shown]
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
def progress(description: str, total: float) -> Iterator[Advance]:
    """A progress bar on stderr for long work; nothing where stderr is no terminal.

    The bar takes another description where `advance` is given one.

    Usage::

        with progress("validating", total=len(files)) as advance:
            for file in files:
                validate(file)
                advance(1)
    """
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console  # rich takes 50 ms to import
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)

        def advance(amount: float, now: str | None = None) -> None:
            bar.update(task, advance=amount, description=now)

        yield advance
