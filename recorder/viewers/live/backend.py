"""Backend of the server: live, or of a played session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from recorder.viewers.live.player import Player

Note = dict[str, Any]
"""One text message of the protocol ``/live`` (docs/live-views.md), with its ``type``."""
Notify = Callable[[Note], None]
"""Function that sends a note to every browser, in the event loop."""

LATEST = frozenset({"status", "streams", "timeline", "sessions", "playback"})
"""Types of notes of which only the newest matters: older ones are dropped for a slow browser."""


def read_send_ms() -> float:
    """Return CLOCK_MONOTONIC in ms: the send time from which browsers compute the age of a note."""
    return round(time.monotonic_ns() / 1e6, 1)


class Backend(Protocol):
    """Backend of the server: `LiveBackend`, or `PlaybackBackend` for a recorded session.

    Its constructor takes a `Notify`.  All methods are called in the event loop and never block.

    Attributes:
        mode: ``live`` or ``playback``.
        ops: the ``op`` of every request that the backend accepts.
    """

    mode: str
    ops: frozenset[str]

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """Tasks that run until `close`; the end of one is a defect, and ends the process."""

    def greeting(self) -> list[Note]:
        """Return the newest note of each type, for a new browser.

        A live backend leaves out ``status``, which may be old; `attend` brings the next one.
        """

    def attend(self, viewers: int) -> None:
        """Take the number of connected viewers, after each change."""

    async def request(self, op: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a request; `values` is the browser's message, unchecked.

        Returns:
            Further keys of the reply.

        Raises:
            RecorderError: the request is malformed or refused; the message goes to the browser.
        """

    async def close(self) -> None:
        """Stop all background work."""


@dataclass(frozen=True, slots=True)
class StaticContent:
    """Files and player of a server.

    Attributes:
        calibration: the rig's calibration file; None if the rig has no file, or if a recorded
            session's own calibration is used.
        config: returns the path of the config, or None; called at each use.  None: a recorded
            session's own config.
        playback: the player of a recorded session; None if the streams are live.
        session: folder of that session, for labels, poses and events.
    """

    calibration: Path | None = None
    config: Callable[[], Path | None] | None = None
    playback: Player | None = None
    session: Path | None = None
