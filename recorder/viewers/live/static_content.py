"""Context that the server shows besides the streams: calibration, config and player."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Position(Protocol):
    """State of a player at one moment; see `recorder.viewers.live.player.Position`."""

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
    """A player of a recorded session; see `recorder.viewers.live.player.Player`."""

    @property
    def position(self) -> Position:
        """Current state of the player."""

    def play(self) -> Future[Any]:
        """Play on."""

    def pause(self) -> Future[Any]:
        """Pause at the current position."""

    def set_speed(self, speed: float) -> Future[Any]:
        """Set the speed."""

    def seek(self, t_ns: int) -> Future[Any]:
        """Go to a time, epoch ns."""


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
    playback: Playback | None = None
    session: Path | None = None
