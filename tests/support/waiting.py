"""Waits for an event in another thread, process or task, instead of for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 180.0
"""Seconds after which a test has failed; no test waits for it where all is well."""


def wait_until(
    what: object, ready: Callable[[], T | None], pause: Callable[[float], object] = time.sleep
) -> T:
    """Return the first true value of `ready`.

    Args:
        what: the event, for the failure; a function is called for its text then.
        ready: asked until it is true.
        pause: sleeps between two questions; a socket's `wait` returns early with news.

    Raises:
        AssertionError: `PATIENCE_S` went by.
    """
    deadline = time.monotonic() + PATIENCE_S
    pause_s = 0.001
    while not (value := ready()):
        assert time.monotonic() < deadline, f"never: {what() if callable(what) else what}"
        pause(pause_s)
        pause_s = min(2 * pause_s, 0.05)
    return value


async def turn_until(ready: Callable[[], T | None]) -> T:
    """Return the first true value of `ready`; the other tasks of the loop run meanwhile.

    Raises:
        TimeoutError: `PATIENCE_S` went by.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not (value := ready()):
            await asyncio.sleep(0.002)
    return value
