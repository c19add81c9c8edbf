"""The request to end a session."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Finishing:
    """The request to end a session: its sender, the live sensors, the deadline."""

    peer: bytes | None  # None: its disk is full, or another session continues it
    request: int
    live: set[str]
    deadline_ns: int
    at_seam: bool = False  # only drivers that are behind still have samples for it
