"""Emulated devices that run in a thread, and what drivers give from them."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import threading
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import (
    Driver,
    EndOfSource,
    Item,
    Lost,
    NewStream,
    Sample,
    SensorConfig,
    State,
)
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import DeviceError, RecorderError
from recorder.config.options import check_options
from recorder.config.settings import SensorEntry
from tests.support.waiting import wait_until


class Source(Protocol):
    """What is opened, read and closed."""

    def open(self) -> object: ...

    def close(self) -> None: ...


D = TypeVar("D", bound=Driver)
S = TypeVar("S", bound=Source)


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


def make_driver(
    kind: type[D],
    name: str,
    scheme: str,
    address: object = "",
    pace: str = "realtime",
    **given: Any,
) -> D:
    """A driver of a sensor with these options."""
    options = check_options(kind.options, given)
    return kind(SensorConfig(name, scheme, str(address), options, pace=pace))


def make_entry(
    kind: type[Driver], sensor: str, driver: str, scheme: str, address: object = "", *,
    loop: bool = False, **given: Any,
) -> SensorEntry:  # fmt: skip
    """A sensor of a config, for an emulator."""
    options = check_options(kind.options, given)
    return SensorEntry(sensor, driver, scheme, str(address), options, loop=loop)


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """A pseudo-terminal: the device's end, and the path of the port that a host opens."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    try:
        yield master, os.ttyname(slave)
    finally:
        for end in (master, slave):
            with contextlib.suppress(OSError):  # the test has closed it
                os.close(end)


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def opened(source: S) -> Iterator[S]:
    """A driver, or a camera of one, from its opening until it is closed."""
    source.open()
    try:
        yield source
    finally:
        source.close()


@contextlib.contextmanager
def streaming(driver: D) -> Iterator[tuple[D, StreamSpec]]:
    """The same of a driver, with the one stream that it declares."""
    (spec,) = driver.open()
    try:
        yield driver, spec
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


def read_item(driver: Driver) -> Item | None:
    """The next item of a driver that finds no further streams; None: not yet."""
    item = driver.read()
    assert not isinstance(item, NewStream)
    return item


def read_until(driver: Driver, enough: Callable[[list[Item]], object]) -> list[Item]:
    """Items of an open driver until they are enough."""
    items: list[Item] = []

    def read() -> object:
        if (item := read_item(driver)) is not None:
            items.append(item)
        return enough(items)

    wait_until(lambda: f"enough of {items[-5:]}", read, pause=lambda _: None)
    return items


def read_all(driver: Driver) -> list[Item]:
    """All items of a played source."""
    items: list[Item] = []
    with contextlib.suppress(EndOfSource):
        while True:
            if (item := read_item(driver)) is not None:
                items.append(item)
    return items


def play_out(driver: Driver) -> tuple[list[Item], RecorderError | None]:
    """All items of a source, and the error that it ends with instead of its end."""
    items: list[Item] = []
    try:
        driver.open()
        while True:
            if (item := read_item(driver)) is not None:
                items.append(item)
    except EndOfSource:
        return items, None
    except RecorderError as error:
        return items, error
    finally:
        driver.close()


def read_waiting(driver: Driver) -> list[Item]:
    """Items of an open driver until it has none."""
    return list(iter(lambda: read_item(driver), None))


def play(driver: Driver) -> tuple[StreamSpec, list[Item]]:
    """The one stream of a played source, and all its items; the driver is closed then."""
    (spec,) = driver.open()
    items = read_all(driver)
    driver.close()
    return spec, items


def check_sample(spec: StreamSpec, item: Sample) -> None:
    """A sample of a device with a clock is as its stream declares."""
    assert list(item.data) == [channel.name for channel in spec.channels]
    for channel in spec.channels:
        values = item.data[channel.name]
        assert isinstance(values, np.ndarray) and values.flags.c_contiguous
        assert values.dtype == channel.np_dtype
        assert values.shape == (item.count, *channel.shape), channel.name
    assert item.t_dev_ns is not None
    assert item.t_ns.dtype == item.t_dev_ns.dtype == np.int64
    assert item.t_ns.shape == item.t_dev_ns.shape
    assert (np.diff(item.t_ns) > 0).all() and (item.t_dev_ns >= 0).all()


def samples(items: Iterable[Item | None], stream: str | None = None) -> list[Sample]:
    return [i for i in items if isinstance(i, Sample) and stream in (None, i.stream)]


def losses(items: Iterable[Item | None]) -> list[Lost]:
    return [item for item in items if isinstance(item, Lost)]


def states(items: Iterable[Item | None], *, lasting: bool | None = None) -> list[dict[str, Any]]:
    """The values of states: of all, or of those that last, or pass."""
    found = [item for item in items if isinstance(item, State)]
    return [dict(item.values) for item in found if lasting in (None, item.lasting)]


def causes(items: Iterable[Item | None]) -> list[tuple[str, int | None]]:
    """Cause and count of every loss."""
    return [(lost.cause, lost.count) for lost in losses(items)]


def column(
    items: Iterable[Item | None], channel: str, stream: str | None = None
) -> npt.NDArray[Any]:
    """All values of a channel."""
    parts = [np.asarray(sample.data[channel]) for sample in samples(items, stream)]
    return np.concatenate(parts) if parts else np.empty(0)


def times(items: Iterable[Item | None], stream: str | None = None) -> npt.NDArray[np.int64]:
    """Stamps of all samples."""
    return np.concatenate([np.empty(0, np.int64), *(s.t_ns for s in samples(items, stream))])


def device_times(items: Iterable[Item | None], stream: str | None = None) -> npt.NDArray[np.int64]:
    """The device's times of all samples; each must have them."""
    parts = [np.empty(0, np.int64)]
    for sample in samples(items, stream):
        assert sample.t_dev_ns is not None
        parts.append(sample.t_dev_ns)
    return np.concatenate(parts)
