"""Emulated devices that run in a thread, and what drivers give from them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from drivers.kit.driver import Driver, EndOfSource, Item, Lost, Sample
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError
from tests.support.waiting import wait_until

D = TypeVar("D", bound=Driver)


class Emulator(Protocol):
    """A device that works whenever it is stepped."""

    def step(self, now_ns: int) -> int:
        """Work until this CLOCK_MONOTONIC; returns the time of the next event."""


@contextlib.contextmanager
def stepped(emulator: Emulator, speed: int = 1) -> Iterator[None]:
    """Step a started emulator in a thread, `speed` times as fast as time goes.

    Raises:
        BaseException: a step failed.
    """
    failures: list[BaseException] = []
    stop, begin_ns = threading.Event(), time.monotonic_ns()

    def run() -> None:
        try:
            while not stop.is_set():
                now_ns = begin_ns + (time.monotonic_ns() - begin_ns) * speed
                due_ns = emulator.step(now_ns)
                stop.wait(min(max((due_ns - now_ns) / 1e9 / speed, 0.0005), 0.02))
        except BaseException as error:  # noqa: BLE001  raised in the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


@contextlib.contextmanager
def opened(driver: D) -> Iterator[D]:
    driver.open()
    try:
        yield driver
    finally:
        driver.close()


def open_again(driver: Driver, refused: list[str] | None = None) -> Sequence[StreamSpec]:
    """Open a driver as its process does: again and again until the device is there.

    Args:
        driver: closed, or never open.
        refused: takes the reasons why it was not yet there.
    """

    def specs() -> Sequence[StreamSpec]:
        try:
            return driver.open()
        except DeviceError as error:
            if refused is not None:
                refused.append(str(error))
            return []

    return wait_until("the device is there", specs)


def read_until(driver: Driver, enough: Callable[[list[Item]], object]) -> list[Item]:
    """Items of an open driver until they are enough."""
    items: list[Item] = []

    def read() -> object:
        if (item := driver.read()) is not None:
            items.append(item)
        return enough(items)

    wait_until(lambda: f"enough of {items[-5:]}", read, pause=lambda _: None)
    return items


def read_all(driver: Driver) -> list[Item]:
    """All items of a played source."""
    items: list[Item] = []
    with contextlib.suppress(EndOfSource):
        while True:
            if (item := driver.read()) is not None:
                items.append(item)
    return items


def play(driver: Driver) -> tuple[StreamSpec, list[Item]]:
    """The one stream of a played source, and all its items; the driver is closed then."""
    (spec,) = driver.open()
    items = read_all(driver)
    driver.close()
    return spec, items


def samples(items: Iterable[Item | None], stream: str | None = None) -> list[Sample]:
    return [i for i in items if isinstance(i, Sample) and stream in (None, i.stream)]


def losses(items: Iterable[Item | None]) -> list[Lost]:
    return [item for item in items if isinstance(item, Lost)]
