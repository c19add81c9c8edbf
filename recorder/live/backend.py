"""What differs between a live rig and a played session: state, requests, and the timeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

Note = dict[str, Any]
"""One text message of the protocol ``/live`` (docs/live-views.md), with its ``type``."""
Tell = Callable[[Note], None]
"""Sends a note to every browser; in the event loop."""

LATEST = frozenset({"status", "streams", "timeline", "sessions", "playback"})
"""Types of notes of which only the newest matters: a slow browser gets no other."""


def sent_ms() -> float:
    """CLOCK_MONOTONIC in ms: when a note or a sample was made, for browsers that count its age."""
    return round(time.monotonic_ns() / 1e6, 1)


class Backend(Protocol):
    """Behind the server: `LiveBackend`, or the player of a session.

    It is given a `Tell` and the hub where it is made.  All methods are called in the event loop
    and never block.

    Attributes:
        mode: ``live`` or ``playback``.
        ops: the ``op`` of every request that it takes.
    """

    mode: str
    ops: frozenset[str]

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """What runs until `close`; the end of one is a defect, and ends the process."""

    def greeting(self) -> list[Note]:
        """What a new browser has to know: the newest note of each type.

        Live there is no ``status`` among them: it may be old, and `attend` brings the next.
        """

    def attend(self, viewers: int) -> None:
        """Take the number of connected viewers, after each change."""

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request; `values` is the browser's message, unchecked.

        Returns:
            Further keys of the reply.

        Raises:
            RecorderError: it is malformed, or refused; the message goes to the browser.
        """

    async def close(self) -> None:
        """End what runs in the background."""
