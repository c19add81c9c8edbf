"""Glances at streams that nobody looks at: frozen or not, and only while somebody is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recorder.live import glances as glances_module
from recorder.live.glances import FROZEN, Glances
from recorder.live.hub import Hub
from tests.live.staging import CAMERA, NUMBERS, message_of, picture
from tests.support.waiting import PATIENCE_S, turn_until


class Rig:
    """A source that gives each wanted stream a message at every turn of the loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.wanted: frozenset[str] = frozenset()
        self.given: list[int] = []
        self.moves = True
        self.publishes = True
        self.number = 0

    def want(self, streams: frozenset[str]) -> None:
        self.wanted = streams

    def close(self) -> None:
        pass

    def turn(self) -> None:
        """One sample of each stream, stamped 10 ms after the one before."""
        self.number += 1
        if not self.publishes:
            return
        if "camera" in self.wanted:
            message = picture(self.number if self.moves else 0)
            message.t_mono_ns = message.t_mono_ns * 0 + self.number * 10_000_000
            self.hub.put(message)
            self.given.append(self.number)
        if "numbers" in self.wanted:
            message = message_of("numbers", self.number, bytes(12))
            message.t_mono_ns = message.t_mono_ns * 0 + self.number * 10_000_000
            self.hub.put(message)


def play(
    monkeypatch: pytest.MonkeyPatch, scene: Callable[[Rig, Glances], Coroutine[Any, Any, None]]
) -> None:
    monkeypatch.setattr(glances_module, "EVERY_S", 0.01)
    monkeypatch.setattr(glances_module, "_LEAST_WAIT_S", 0.5)
    monkeypatch.setattr(glances_module, "_PAUSE_S", 0.01)

    async def run() -> None:
        hub = Hub()
        rig = Rig(hub)
        hub.attach(rig)
        hub.declare(CAMERA)
        hub.declare(NUMBERS)
        with ThreadPoolExecutor(1) as executor:
            glances = Glances(hub, executor)

            async def publish() -> None:
                while True:
                    rig.turn()
                    await asyncio.sleep(0.002)

            publishing = asyncio.create_task(publish())
            try:
                await asyncio.wait_for(scene(rig, glances), PATIENCE_S)
            finally:
                publishing.cancel()
                glances.task.cancel()
                await asyncio.gather(glances.task, return_exceptions=True)

    asyncio.run(run())


def test_nothing_is_looked_at_without_a_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(rig: Rig, glances: Glances) -> None:
        await turn_until(lambda: rig.number > 20)
        assert rig.given == []
        glances.attend(1)
        await turn_until(lambda: rig.given)
        glances.attend(0)
        await turn_until(lambda: not rig.wanted)
        given, number = len(rig.given), rig.number
        await turn_until(lambda: rig.number > number + 20)
        assert len(rig.given) <= given + 3  # a glance that had begun

    play(monkeypatch, scene)


def test_the_same_picture_under_fresh_stamps_is_frozen_until_it_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(rig: Rig, glances: Glances) -> None:
        glances.attend(1)
        await turn_until(lambda: len(rig.given) > 3 * FROZEN)
        assert not glances.frozen("camera")
        rig.moves = False
        await turn_until(lambda: glances.frozen("camera"))
        assert not glances.frozen("numbers")  # numbers may well repeat
        rig.moves = True
        await turn_until(lambda: not glances.frozen("camera"))

    play(monkeypatch, scene)


def test_a_stopped_stream_with_an_old_newest_message_is_not_frozen() -> None:
    seen = glances_module._Seen()
    for _ in range(2 * FROZEN):
        glances_module._compare(seen, 7, 1_000)
    assert seen.same == 0
    for turn in range(1, FROZEN):
        glances_module._compare(seen, 7, 1_000 + turn)
    assert seen.same == FROZEN - 1
