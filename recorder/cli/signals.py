"""What a verb does on SIGINT and SIGTERM while it works."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM


@contextmanager
def handled(handler: Callable[[int], object], *numbers: int) -> Iterator[None]:
    """Call `handler` with the number of each signal, SIGINT and SIGTERM unless given."""
    previous = {
        number: signal.signal(number, lambda number, _: handler(number))
        for number in numbers or (SIGINT, SIGTERM)
    }
    try:
        yield
    finally:
        for number, restored in previous.items():
            signal.signal(number, restored)
