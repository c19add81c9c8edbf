"""Playback control of a recorded session by a viewer."""

from __future__ import annotations

import asyncio
from typing import Final

from recorder.common.errors import RecorderError
from recorder.viewers.foxglove import protocol
from recorder.viewers.foxglove.outbox import Outbox
from recorder.viewers.foxglove.protocol import Level, PlaybackStatus
from recorder.viewers.live.player import Player, Position

SPEEDS: Final = (0.1, 16.0)
"""Slowest and fastest speed that a viewer may set; other values are clamped to this range."""
_TICK_S: Final = 0.05
_TIMES: Final = -1  # of the outbox: no subscription has this number


class PlaybackControl:
    """Playback control for one viewer: carries out its requests, and reports time and changes.

    Args:
        player: the player, which all viewers share.
        outbox: the viewer's send queue.
    """

    def __init__(self, player: Player, outbox: Outbox) -> None:
        self._player = player
        self._outbox = outbox
        self._reported: tuple[PlaybackStatus, float, int] | None = None
        self._t_ns: int | None = None
        self._handling = asyncio.Lock()

    async def run(self) -> None:
        """Report the time, and changes that other viewers made."""
        while True:
            async with self._handling:
                position = self._player.position
                if self._reported != _read_state(position):
                    await self._report(position)
            if position.t_ns != self._t_ns:
                self._t_ns = position.t_ns
                await self._outbox.until_idle(_TIMES)
                await self._outbox.put(_TIMES, [protocol.time(position.t_ns)])
            await asyncio.sleep(_TICK_S)

    async def handle(self, request: protocol.PlaybackRequest) -> None:
        """Carry out a request and answer it with the resulting state."""
        async with self._handling:  # the answer, not news, reports what changed
            await self._carry_out(request)

    async def _carry_out(self, request: protocol.PlaybackRequest) -> None:
        player = self._player
        try:
            if request.seek_ns is not None:
                await asyncio.wrap_future(player.seek(request.seek_ns))
            speed = min(max(request.speed, SPEEDS[0]), SPEEDS[1])
            if speed != player.position.speed:
                await asyncio.wrap_future(player.set_speed(speed))
            if request.play != player.position.playing:
                await asyncio.wrap_future(player.play() if request.play else player.pause())
        except RecorderError as error:
            await self._outbox.answer(protocol.status(Level.ERROR, str(error)))
        await self._report(player.position, request.request)

    async def _report(self, position: Position, request: str = "") -> None:
        status, speed, jumps = state = _read_state(position)
        before = jumps if self._reported is None else self._reported[2]
        self._reported = state
        frame = protocol.playback_state(
            status, position.t_ns, speed, seeked=jumps != before, request=request
        )
        await self._outbox.answer(frame)


def _read_state(position: Position) -> tuple[PlaybackStatus, float, int]:
    status = PlaybackStatus.PLAYING if position.playing else PlaybackStatus.PAUSED
    if position.ended:
        status = PlaybackStatus.ENDED
    return status, min(position.speed, 1e6), position.jumps
