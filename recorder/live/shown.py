"""What is shown besides the streams: calibration, config, and the player of a recorded session."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Position(Protocol):
    """What a player does at one moment; see `recorder.live.player.Position`."""

    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def t_ns(self) -> int: ...
    @property
    def playing(self) -> bool: ...
    @property
    def speed(self) -> float: ...
    @property
    def jumps(self) -> int: ...
    @property
    def ended(self) -> bool: ...


class Playback(Protocol):
    """A player of a recorded session; see `recorder.live.player.Player`."""

    @property
    def position(self) -> Position:
        """Where the player is now."""

    def play(self) -> Future[Any]:
        """Let the time pass."""

    def pause(self) -> Future[Any]:
        """Stay at the position."""

    def set_speed(self, speed: float) -> Future[Any]:
        """Play at another speed."""

    def seek(self, t_ns: int) -> Future[Any]:
        """Go to a time, epoch ns."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Files and player behind a server.

    Attributes:
        calibration: the rig's calibration file; None if the rig has no file, or if a recorded
            session's own calibration is used.
        config: gives the path of the config, or None; asked for at each use.  None: a recorded
            session's own.
        playback: the player of a recorded session; None if the streams are live.
        session: folder of that session, for labels, poses and events.
    """

    calibration: Path | None = None
    config: Callable[[], Path | None] | None = None
    playback: Playback | None = None
    session: Path | None = None
