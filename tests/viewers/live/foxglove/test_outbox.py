"""The bytes that wait for one viewer are bounded, and in order."""

from __future__ import annotations

import asyncio

import pytest

from recorder.viewers.foxglove.outbox import Outbox
from recorder.viewers.live.browser import DisconnectError


async def turn() -> None:
    """Let other tasks go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_answers_come_before_messages_and_each_in_order() -> None:
    outbox = Outbox()
    await outbox.put(1, [b"a", b"b"])
    await outbox.answer("one")
    await outbox.put(2, [b"c"])
    await outbox.answer("two")
    assert outbox.nbytes == 9
    taken = [await outbox.take() for _ in range(5)]
    assert taken == ["one", "two", b"a", b"b", b"c"]
    assert outbox.nbytes == 0


async def test_a_subscription_waits_until_its_last_message_was_sent() -> None:
    outbox = Outbox()
    await outbox.until_idle(1)
    await outbox.put(1, [b"a"])
    waiting = asyncio.create_task(outbox.until_idle(1))
    await outbox.until_idle(2)  # others do not wait for it
    assert await outbox.take() == b"a"
    await turn()
    assert not waiting.done()  # it is being sent
    taking = asyncio.create_task(outbox.take())
    await waiting
    taking.cancel()


async def test_nobody_may_encode_while_too_many_bytes_wait() -> None:
    outbox = Outbox(most_bytes=10)
    await outbox.put(1, [b"x" * 10])
    waiting = asyncio.create_task(outbox.until_idle(2))
    await turn()
    assert not waiting.done()
    await outbox.take()
    taking = asyncio.create_task(outbox.take())
    await waiting
    taking.cancel()


async def test_an_ended_subscription_leaves_nothing() -> None:
    outbox = Outbox()
    await outbox.put(1, [b"a", b"b"])
    await outbox.put(2, [b"c"])
    await outbox.drop(1)
    assert outbox.nbytes == 1
    assert await outbox.take() == b"c"
    await outbox.until_idle(1)


async def test_answers_that_nobody_takes_end_the_connection() -> None:
    outbox = Outbox(most_answers=10)
    await outbox.answer("x" * 100)  # a single one may be large: the list of all channels
    with pytest.raises(DisconnectError, match="1 answers wait"):
        await outbox.answer("y")
