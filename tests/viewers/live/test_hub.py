"""The hub between a source's thread and the viewers in the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable

import numpy as np

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.viewers.live.hub import Hub, Watch

SPEC = StreamSpec("camera", (ChannelSpec("x", "raw", "u1", (4,)),), rate_hz=30.0)


class Wanted:
    """A source that keeps what is wanted of it."""

    def __init__(self) -> None:
        self.calls: list[frozenset[str]] = []

    def want(self, streams: frozenset[str]) -> None:
        self.calls.append(streams)

    def close(self) -> None:
        pass


def data(number: int, stream: str = "camera", size: int = 4) -> Message:
    times = np.array([number], np.int64)
    return Message(Kind.DATA, stream, number=number, count=1, t_mono_ns=times, frames=[b"x" * size])


def from_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def put_all(hub: Hub, numbers: Iterable[int]) -> None:
    for number in numbers:
        hub.put(data(number))


def numbers(messages: list[Message]) -> list[int]:
    return [message.number for message in messages]


def taken(watch: Watch) -> int | None:
    message = watch.take()
    return None if message is None else message.number


async def test_a_viewer_takes_the_newest_message_once() -> None:
    hub, woken = Hub(), asyncio.Event()
    watch = hub.watch("camera", woken.set)
    from_thread(lambda: put_all(hub, range(100)))
    await woken.wait()
    assert taken(watch) == 99
    assert watch.take() is None
    assert watch.dropped == 0  # skipping is what the viewer asked for


async def test_many_messages_wake_a_viewer_once() -> None:
    hub, calls = Hub(), list[int]()
    hub.watch("camera", lambda: calls.append(1))
    from_thread(lambda: put_all(hub, range(100)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls == [1]
    hub.put(data(100))
    await asyncio.sleep(0)
    assert calls == [1, 1]


async def test_every_message_comes_in_order_and_the_oldest_are_dropped_beyond_the_bytes() -> None:
    hub, woken = Hub(), asyncio.Event()
    size = data(0).nbytes
    watch = hub.watch("camera", woken.set, every=True, most_bytes=10 * size)
    for number in range(25):
        hub.put(data(number))
    await woken.wait()
    assert numbers(watch.take_every()) == list(range(15, 25))
    assert watch.dropped == 15
    hub.put(data(25, size=10_000))  # larger than all that may wait: still the newest
    assert numbers(watch.take_every()) == [25]
    assert watch.take_every() == []


async def test_only_viewers_of_every_message_get_states_and_losses() -> None:
    hub = Hub()
    newest = hub.watch("camera", lambda: None)
    every = hub.watch("camera", lambda: None, every=True)
    hub.put(data(0))
    hub.put(Message(Kind.LOST, "camera", number=1, count=3))
    assert taken(newest) == 0
    assert [message.kind for message in every.take_every()] == [Kind.DATA, Kind.LOST]


async def test_a_source_learns_what_is_watched_and_only_changes_of_it() -> None:
    hub, source = Hub(), Wanted()
    early = hub.watch("imu", lambda: None)
    hub.attach(source)
    first, second = (hub.watch("camera", lambda: None) for _ in range(2))
    first.close()
    first.close()
    second.close()
    early.close()
    assert source.calls == [
        frozenset({"imu"}),
        frozenset({"imu", "camera"}),
        frozenset({"imu"}),
        frozenset(),
    ]


async def test_a_later_viewer_begins_with_the_newest_message_and_never_with_a_stale_one() -> None:
    hub, woken = Hub(), asyncio.Event()
    first = hub.watch("camera", lambda: None)
    put_all(hub, (6, 7))
    second = hub.watch("camera", woken.set)
    await woken.wait()
    assert taken(second) == 7
    first.close()
    second.close()
    assert hub.watch("camera", woken.set).take() is None  # nobody watched in between


async def test_a_closed_watch_is_not_woken_and_holds_nothing() -> None:
    hub, calls = Hub(), list[int]()
    watch = hub.watch("camera", lambda: calls.append(1))
    hub.put(data(0))
    watch.close()
    hub.put(data(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls == [] and watch.take() is None


async def test_what_is_forgotten_is_shown_to_nobody() -> None:
    hub, woken = Hub(), asyncio.Event()
    watch = hub.watch("camera", woken.set)
    from_thread(lambda: hub.put(data(1)))
    from_thread(lambda: hub.forget("camera"))
    assert watch.take() is None
    assert hub.watch("camera", woken.set).take() is None
    from_thread(lambda: hub.put(data(2)))
    assert watch.take() is not None


async def test_declarations_and_removals_are_told_once_each() -> None:
    hub, seen = Hub(), list[list[str]]()
    hub.on_change.append(lambda: seen.append(sorted(hub.specs)))
    from_thread(lambda: hub.declare(SPEC))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    hub.declare(StreamSpec("camera", SPEC.channels, rate_hz=30.0))  # the same again
    await asyncio.sleep(0)
    hub.remove("camera")
    hub.remove("camera")
    await asyncio.sleep(0)
    assert seen == [["camera"], []]


async def test_messages_after_the_loops_end_are_dropped() -> None:
    hub = Hub()
    hub.watch("camera", lambda: None)
    hub.put(data(0))
    hub.declare(SPEC)
    assert hub.specs == {"camera": SPEC}
