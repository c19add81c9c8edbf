"""The emulated Livox and the driver: commands, points, IMU, states, faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from drivers.kit.driver import Item, Lost, Sample
from drivers.kit.emulator_faults import Fault
from drivers.livox import commands as c
from drivers.livox.control import LivoxClient
from drivers.livox.driver import LivoxDriver
from drivers.livox.emulator import LivoxEmulator
from recorder.common.errors import DeviceError, SourceError
from tests.drivers.livox.rig import count_points
from tests.support.devices import (
    make_driver,
    make_entry,
    open_again,
    read_until,
    samples,
    states,
    stepped,
)

FAST: dict[str, Any] = {"rate": 50.0, "noise": 0.0}


@contextmanager
def emulated(
    *faults: Fault, model: str = "Mid-360", **options: Any
) -> Iterator[tuple[LivoxEmulator, LivoxDriver]]:
    entry = make_entry(LivoxDriver, "lidar", "livox", "sim", model=model, **FAST)
    emulator = LivoxEmulator(entry, faults, seed=1)
    source = emulator.start()
    scheme, _, address = source.source.partition(":")
    given = {**source.options, "rate": 50.0, **options}
    driver = make_driver(LivoxDriver, "lidar", scheme, address, **given)
    try:
        with stepped(emulator):
            yield emulator, driver
    finally:
        driver.close()
        emulator.stop()


def test_a_lidar_is_set_and_recorded() -> None:
    with emulated() as (_, driver):
        specs = open_again(driver)
        assert [spec.name for spec in specs] == ["lidar", "lidar_imu"]
        items = read_until(driver, lambda found: len(samples(found, "lidar")) > 4)
        items += read_until(driver, lambda found: len(samples(found, "lidar_imu")) > 2)
        opened = next(s for s in states(items) if "device" in s)
        assert opened["device"]["serial"] == "3GGDJ6K00200101"
        assert opened["device"]["time_sync"] == "PTP" and opened["device"]["core_c"] == 42
        assert {"work mode", "host of points"} <= set(opened["settings"]["changed"])
        assert count_points(samples(items, "lidar")[2]) == 42 * 96
        assert [s for s in states(items, lasting=True) if s.get("work_state") == "normal"]
        (port, *_) = [port for _, port in driver.receives]
        assert port == opened["port"] and len(driver.receives) == 3
        driver.close()
        # It has its settings now.
        open_again(driver)
        items = read_until(driver, lambda found: len(samples(found, "lidar")) > 0)
        opened = next(s for s in states(items) if "device" in s)
        assert opened["settings"]["changed"] == []


def test_what_the_lidar_refuses_is_named() -> None:
    refused = pytest.raises(DeviceError, match="the lidar refuses data type: 3")
    with emulated(data_type="spherical") as (_, driver), refused:
        driver.open()
    with emulated(model="HAP") as (_, driver):
        other = make_driver(LivoxDriver, "lidar", "livox", driver.sensor.address)
        with pytest.raises(SourceError, match="the lidar is a HAP, not a Mid-360"):
            other.open()
    with pytest.raises(SourceError, match="is not of the form HOST or HOST:PORT"):
        make_driver(LivoxDriver, "lidar", "livox", "//:x").open()


def test_a_setting_that_the_lidar_does_not_take_on_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LivoxEmulator, "_set", lambda *_: bytes(3))
    refused = pytest.raises(DeviceError, match=r"take on its settings: .*work mode")
    with emulated() as (_, driver), refused:
        driver.open()


def test_commands_are_answered() -> None:
    with emulated() as (_, driver):
        address = driver.sensor.address.removeprefix("//")
        with LivoxClient(address) as client:
            assert client.search() == ("Mid-360", "3GGDJ6K00200101")
            client.set({c.IMU_SEND: b"\1"})
            assert client.get((c.IMU_SEND, c.WORK_MODE)) == {c.IMU_SEND: b"\1", c.WORK_MODE: b"\2"}
            with pytest.raises(DeviceError, match="key 0x8000"):
                client.set({c.SERIAL: bytes(16)})


def test_lost_and_repeated_packets_are_counted() -> None:
    faults = Fault("loss", rate=0.02), Fault("duplicate", rate=0.02), Fault("reorder", rate=0.02)
    with emulated(*faults, imu=False) as (emulator, driver):
        open_again(driver)
        items: list[Item] = read_until(driver, lambda found: len(samples(found)) > 30)
        sweeps = samples(items)
        kept = sum(count_points(s) // 96 for s in sweeps[:-1])
        values = [s for s in states(items) if "packets_missing" in s or "packets_repeated" in s]
        missing = sum(s.get("packets_missing", 0) for s in values)
        lost = sum(i.count or 0 for i in items if isinstance(i, Lost))
        assert emulator.injected["loss"] > 0 and missing > 0 and not lost
        # Sweeps have 42 packets: what is recorded and what is counted are all of them.
        ends = {id(sweeps[0]), id(sweeps[-1])}
        for at, item in enumerate(items[:-1]):
            if isinstance(item, Sample) and id(item) not in ends:
                after = getattr(items[at + 1], "values", {})
                assert count_points(item) // 96 + after.get("packets_missing", 0) == 42
        assert kept > 30 * 30
