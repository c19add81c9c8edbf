"""The end of a session that was told to end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Finishing:
    """A session that was told to end: who asked, whose drivers live, when patience ends."""

    peer: bytes | None  # nobody: its disk is full, or another session continues it
    request: int
    live: set[str]
    deadline_ns: int
    at_seam: bool = False  # only who is behind the seam has something for it
