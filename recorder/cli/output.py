"""Dialogue of a verb with its user: results as text or JSON, notes, progress, interrupts.

Usage in a verb's module::

    def add_arguments(parser):
        add_format(parser)

    def run(args):
        emit(result, args, lambda r: format_table(["stream", "samples"], rows_of(r)))

Text is plain, aligned and without colour, for use in pipes.  Control characters of names, metadata,
marks and messages are escaped (`clean`): none reaches a terminal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any, Protocol, TextIO, TypeVar

from recorder.common.secret_masking import mask_passwords
from recorder.common.text_format import clean, is_active

T = TypeVar("T")

FORMATS = ("text", "json")
_SHARE = 0.002  # a smaller step of a bar is not drawn


class Advance(Protocol):
    """Callback that advances a progress bar."""

    def __call__(self, amount: float, now: str | None = None, /) -> None:
        """Add finished work; `now` is a new description of the work."""


class ShowShare(Protocol):
    """Callback that moves a progress bar to a share of the work, 0 to 1."""

    def __call__(self, share: float, now: str | None = None, /) -> None:
        """Show the share; `now` is a new description of the work."""


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
    """Print a result on stdout in the format that the user chose.

    Args:
        result: mappings, lists, dataclasses, paths, numbers; see `plain`.
        args: arguments with ``format``, from `add_format`.
        text: formats the result as text; called only for the format ``text``.
        indent: indentation of JSON; None: on one line.
    """
    if args.format == "json":
        dumped = json.dumps(plain(result), indent=indent, ensure_ascii=False, allow_nan=False)
        print(_escape_json(dumped))
    elif rendered := text(result).rstrip("\n"):
        print("\n".join(map(clean, rendered.split("\n"))))


class Screen:
    """Lines at the end of a terminal that are redrawn in place.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines = 0

    def draw(self, text: str) -> None:
        """Replace the last text by this text, cut to the terminal's size."""
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
    """Print a diagnostic line on stderr; accept and ignore the arguments of a log."""
    print(clean(message), file=sys.stderr, flush=True)


def open_in_browser(url: str, *, unless: bool) -> None:
    """Show an address in the user's browser, if the command runs on a desktop."""
    desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if desktop and sys.stdout.isatty() and not unless:
        import webbrowser

        webbrowser.open(url)


def complain(prefix: str, error: Exception, text: str | None = None) -> None:
    """Print an error on stderr, one line for each error of a `ConfigFaultsError`.

    Args:
        prefix: start of each line.
        error: the error.
        text: a message that replaces the error's own.
    """
    for each in getattr(error, "errors", (error,)):
        note(f"{prefix}: {mask_passwords(str(each) if text is None else text)}")


def prefix_error(prefix: str, error: Exception) -> str:
    """Return the text of an error, which begins with what it is about."""
    text = str(error)
    return text if text.startswith(prefix) else f"{prefix}: {text}"


def _escape_json(dumped: str) -> str:
    """Escape the characters of JSON that would act on a terminal."""
    if dumped.isascii() and "\x7f" not in dumped:  # json has escaped the rest of C0
        return dumped
    return "".join(f"\\u{ord(c):04x}" if c != "\n" and is_active(c) else c for c in dumped)


def plain(value: Any) -> Any:
    """Convert a value to values that JSON can hold.

    Dataclasses become mappings, paths and other keys texts, numpy scalars and arrays Python's,
    NaN and infinities null, since JSON has neither.

    Raises:
        TypeError: a part of the value has no JSON form.
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
    """Format rows as aligned text below their headers; None is shown as ``-``.

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


@contextmanager
def progress(description: str, total: float) -> Iterator[Advance]:
    """Show a progress bar on stderr for long work; do nothing if stderr is not a terminal.

    A description that is passed to `advance` replaces the bar's description.

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


@contextmanager
def share_progress(description: str) -> Iterator[ShowShare]:
    """Show a progress bar, as `progress` does, for work that reports its finished share."""
    with progress(description, total=1.0) as advance:
        shown = 0.0

        def show(share: float, now: str | None = None) -> None:
            nonlocal shown
            if now is not None or share - shown >= _SHARE:
                advance(max(0.0, share - shown), now)
                shown = max(shown, share)

        yield show


@contextmanager
def handle_signals(handler: Callable[[int], object], *numbers: int) -> Iterator[None]:
    """Call `handler` with the number of each signal; default: SIGINT and SIGTERM."""
    previous = {
        number: signal.signal(number, lambda number, _: handler(number))
        for number in numbers or (SIGINT, SIGTERM)
    }
    try:
        yield
    finally:
        for number, restored in previous.items():
            signal.signal(number, restored)


def end_on_sigterm() -> AbstractContextManager[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that nothing half-made is left."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    return handle_signals(interrupt, SIGTERM)


@contextmanager
def defer_interrupt(text: str) -> Iterator[threading.Event]:
    """Set the event on the first SIGINT or SIGTERM; raise KeyboardInterrupt on the second.

    Args:
        text: reason why the command does not end yet, for the note after the first signal.
    """
    interrupted = threading.Event()

    def note_or_raise(_: int) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        note(f"interrupted: {text}; interrupt again to end at once")

    with handle_signals(note_or_raise):
        yield interrupted
