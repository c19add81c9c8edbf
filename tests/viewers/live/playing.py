"""A player that a test moves by hand, and what it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import numpy as np

from recorder.bus.wire import Message, decode, encode
from recorder.codecs.streams import StreamSpec
from recorder.viewers.live.player import Player, Position
from tests.manual_clock import ManualClock


class Screen:
    """Takes what a player puts; remembers the order."""

    def __init__(self) -> None:
        self.specs: dict[str, StreamSpec] = {}
        self.got: list[Message] = []
        self.forgotten: list[str] = []

    def declare(self, spec: StreamSpec, sensor: str | None = None) -> None:
        self.specs[spec.name] = spec

    def put(self, message: Message) -> None:
        self.got.append(decode([bytes(frame) for frame in encode(message)]))

    def forget(self, stream: str) -> None:
        self.forgotten.append(stream)

    def shown(self) -> dict[str, int]:
        """By stream, the stamp of the newest sample that was put."""
        return {message.stream: times(message)[-1] for message in self.got}


class Stage:
    """A player that a test moves by hand."""

    def __init__(self, path: Path, *streams: str) -> None:
        self.clock = ManualClock(10**12)
        self.screen = cast(Any, Screen())  # in place of a hub
        self.player = Player(path, self.clock)
        _OPENED.append(self.player)
        self.player.show_on(self.screen)
        self.look(*streams)

    def look(self, *streams: str) -> None:
        self.player.want(frozenset(streams))
        self.player.work()

    def do(self, command: Callable[..., Future[Position]], *values: Any) -> Position:
        future = command(*values)
        self.player.work()
        return future.result(timeout=0)

    def advance(self, seconds: float) -> Position:
        """Let the clock run, and the player whenever it asks for it."""
        end_ns = self.clock.monotonic_ns() + round(seconds * 1e9)
        while True:
            wait = self.player.work()
            left = end_ns - self.clock.monotonic_ns()
            if left <= 0:
                return self.player.position
            self.clock.advance(min(left / 1e9, math.inf if wait is None else wait))


_OPENED: list[Player] = []


def closing() -> Iterator[None]:
    """A fixture's body: every stage of a test is closed at its end."""
    yield
    while _OPENED:
        _OPENED.pop().close()


def times(message: Message) -> list[int]:
    assert isinstance(message.t_mono_ns, np.ndarray)
    stamps: list[int] = message.t_mono_ns.tolist()
    return stamps
