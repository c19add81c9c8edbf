"""An emulated Ouster that runs in a thread, and a driver that records from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from drivers.kit.driver import Item, Lost, Sample, State
from drivers.kit.emulator_faults import Fault
from drivers.ouster import frames, live
from drivers.ouster.driver import OusterDriver
from drivers.ouster.emulator import OusterEmulator
from drivers.ouster.model import START_NS
from tests.support.devices import make_driver, make_entry, open_again, stepped
from tests.support.waiting import PATIENCE_S, wait_until


def emulator_for(
    scheme: str, address: object, faults: Sequence[Fault] = (), **options: Any
) -> OusterEmulator:
    entry = make_entry(OusterDriver, "lidar", "ouster", scheme, address, **options)
    return OusterEmulator(entry, faults, seed=5)


@contextmanager
def running(emulator: OusterEmulator, speed: int = 1) -> Iterator[str]:
    """Steps it in a thread, `speed` times as fast as time goes; gives the source's address.

    A busy machine may pause for half a second, which does not end a sweep meanwhile.
    """
    source = emulator.start().source
    try:
        with (
            stepped(emulator, speed),
            mock.patch.object(live, "SILENCE_NS", PATIENCE_S * 1e9),
            mock.patch.object(frames, "SILENCE_NS", PATIENCE_S * 1e9),
        ):
            yield source.partition(":")[2]
    finally:
        emulator.stop()


def live_driver(address: str, scheme: str = "ouster", **options: Any) -> OusterDriver:
    return make_driver(OusterDriver, "lidar", scheme, address, **options)


@contextmanager
def recording(emulator: OusterEmulator, **options: Any) -> Iterator[OusterDriver]:
    """A driver that is open and records from the emulator, which runs meanwhile."""
    with running(emulator) as address:
        driver = live_driver(address, **options)
        open_again(driver)
        yield driver
        driver.close()


def inject(emulator: OusterEmulator, kind: str, **values: Any) -> None:
    """Inject a fault now, or as soon as the sensor has a receiver; it runs at speed 1."""
    wait_until("a receiver", lambda: emulator._first_ns is not None)
    assert emulator._first_ns is not None
    at_s = (time.monotonic_ns() - emulator._first_ns) / 1e9
    emulator.faults = (*emulator.faults, Fault(kind, at_s, **values))


def sweeps(count: int) -> Callable[[list[Item]], bool]:
    def enough(items: list[Item]) -> bool:
        return sum(isinstance(i, Sample) and i.stream == "lidar" for i in items) >= count

    return enough


def until(emulator: OusterEmulator, seconds: float) -> Callable[[list[Item]], bool]:
    """A sweep that ended so long after the time of the emulator's faults began."""

    def enough(items: list[Item]) -> bool:
        last = next((i for i in reversed(items) if isinstance(i, Sample)), None)
        if last is None or last.t_dev_ns is None or last.stream != "lidar":
            return False
        if emulator._first_ns is None or emulator._start_ns is None:
            return False
        begin_ns = START_NS + emulator._first_ns - emulator._start_ns
        return bool(last.t_dev_ns[-1] > begin_ns + seconds * 1e9)

    return enough


def reported(key: str) -> Callable[[list[Item]], bool]:
    return lambda items: any(isinstance(i, State) and key in i.values for i in items)


def packets_missing(items: list[Item]) -> int:
    """Lidar packets that the driver counts as lost, in sweeps and between them."""
    in_sweeps = [i.values.get("packets_missing", 0) for i in items if isinstance(i, State)]
    between = [i.detail.get("packets_missing", 0) for i in items if isinstance(i, Lost)]
    return int(sum(in_sweeps) + sum(between))


def imu_missing(items: list[Item]) -> int:
    return sum(i.count or 0 for i in items if isinstance(i, Lost) and i.stream == "lidar_imu")


def write_metadata(folder: Path, info: Any) -> str:
    path = folder / "sensor.json"
    path.write_text(info.to_json_string())
    return str(path)
