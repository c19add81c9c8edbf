"""Handling of SIGINT and SIGTERM while a verb works."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM

from recorder.cli.output import note


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
