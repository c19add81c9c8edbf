"""Bounded send queue of one viewer.

Answers and notes are sent in order, before messages of channels.  Each subscription waits until its
messages were sent before it encodes others, so samples are skipped for a slow viewer.  At most
`most_bytes` wait, besides the messages that are being encoded meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from recorder.viewers.live.browser import DisconnectError

MOST_BYTES: Final = 8 << 20
"""Size of queued messages above which nothing more is encoded, in bytes."""
MOST_ANSWERS: Final = 4 << 20
"""Largest size of queued answers and notes in bytes; beyond it the viewer is disconnected."""


class Outbox:
    """Send queue of one viewer; used in the event loop.

    ::

        frame = await outbox.take()          # the sender
        await outbox.until_idle(7)           # a subscription, before it encodes
        outbox.put(7, frames)
    """

    def __init__(self, most_bytes: int = MOST_BYTES, most_answers: int = MOST_ANSWERS) -> None:
        self._most_bytes = most_bytes
        self._most_answers = most_answers
        self._answers: deque[str | bytes] = deque()
        self._frames: deque[tuple[int, bytes]] = deque()
        self._answer_bytes = self._frame_bytes = 0
        self._waiting: Counter[int] = Counter()  # frames by subscription, the one in flight too
        self._flying: int | None = None
        self._changed = asyncio.Condition()

    @property
    def nbytes(self) -> int:
        """Queued bytes."""
        return self._answer_bytes + self._frame_bytes

    async def answer(self, frame: str | bytes) -> None:
        """Add an answer or a note.

        Raises:
            DisconnectError: too many answers wait.
        """
        if self._answer_bytes + len(frame) > self._most_answers and self._answers:
            raise DisconnectError(f"{len(self._answers)} answers wait")
        self._answers.append(frame)
        self._answer_bytes += len(frame)
        await self._notify()

    async def put(self, subscription: int, frames: Sequence[bytes]) -> None:
        """Add messages of a subscription."""
        for frame in frames:
            self._frames.append((subscription, frame))
            self._frame_bytes += len(frame)
        self._waiting[subscription] += len(frames)
        await self._notify()

    async def drop(self, subscription: int) -> None:
        """Drop the messages of a subscription that ended."""
        kept = deque(entry for entry in self._frames if entry[0] != subscription)
        self._frame_bytes = sum(len(frame) for _, frame in kept)
        self._frames = kept
        del self._waiting[subscription]
        await self._notify()

    async def until_idle(self, subscription: int) -> None:
        """Wait until all messages of the subscription were sent, and there is room for others."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: not self._waiting[subscription] and self._frame_bytes < self._most_bytes
            )

    async def take(self) -> str | bytes:
        """Wait for the next frame and return it; the frame before it counts as sent."""
        if self._flying is not None:
            self._waiting[self._flying] = max(0, self._waiting[self._flying] - 1)
            self._flying = None
            await self._notify()
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._answers or self._frames))
            if self._answers:
                answer = self._answers.popleft()
                self._answer_bytes -= len(answer)
                return answer
            self._flying, frame = self._frames.popleft()
            self._frame_bytes -= len(frame)
            return frame

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
