"""The emulated RoboSense and the driver: packets and descriptions over UDP, with faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from drivers.kit.driver import Item, NewStream, Sample, State
from drivers.kit.emulator_faults import Fault
from drivers.robosense.driver import RobosenseDriver
from drivers.robosense.emulator import RobosenseEmulator
from recorder.codecs.beams import BEAMS
from recorder.common.errors import DeviceError, SourceError
from tests.support.devices import (
    device_times,
    free_port,
    losses,
    make_driver,
    make_entry,
    open_again,
    read_until,
    samples,
    states,
    stepped,
)
from tests.support.waiting import wait_until


@contextmanager
def emulated(
    *faults: Fault, model: str = "Helios", host: bool = False, **options: Any
) -> Iterator[tuple[RobosenseEmulator, RobosenseDriver]]:
    entry = make_entry(RobosenseDriver, "lidar", "robosense", "sim", model=model, noise=0.0)
    emulator = RobosenseEmulator(entry, faults, seed=1)
    source = emulator.start()
    scheme, _, address = source.source.partition(":")
    given = {**source.options, **options}
    if host:
        given["lidar_port"] = int(address.rpartition(":")[2])
        scheme, address = "robosense", "//127.0.0.1"
    driver = make_driver(RobosenseDriver, "lidar", scheme, address, **given)
    try:
        with stepped(emulator):
            yield emulator, driver
    finally:
        driver.close()
        emulator.stop()


def whole_sweeps(items: list[Item]) -> list[int]:
    """Recorded and missing columns of all sweeps but the first and the last."""
    found = []
    for at, item in enumerate(items):
        if isinstance(item, Sample):
            after = items[at + 1] if at + 1 < len(items) else None
            missing = after.values.get("columns_missing", 0) if isinstance(after, State) else 0
            found.append(int(np.count_nonzero(item.data["t_col"])) + missing)
    return found[1:-1]


@pytest.mark.parametrize("host", [False, True])
def test_a_lidar_is_recorded_by_what_it_tells(host: bool) -> None:
    with emulated(host=host) as (_, driver):
        (spec,) = open_again(driver)
        beams = json.loads(spec.files[BEAMS])
        assert beams["calibration"] == "sensor" and beams["serial"] == "010203040506"
        items = read_until(
            driver,
            lambda found: len(samples(found)) > 3 and any("serial" in s for s in states(found)),
        )
        assert whole_sweeps(items)[:2] == [1800, 1800] and not losses(items)
        ports = [port for _, port in driver.receives]
        assert len(ports) == 2 and driver.sensor.options["difop_port"] in ports


@pytest.mark.campaign
def test_lost_packets_are_counted_by_numbers_or_gaps() -> None:
    for model in ("Airy", "Helios"):
        with emulated(Fault("loss", rate=0.03), model=model, imu=False) as (emulator, driver):
            open_again(driver)
            items = read_until(driver, lambda found: len(samples(found)) > 4)
            assert emulator.injected["loss"] > 0
            assert any("columns_missing" in s for s in states(items))
            wanted = 900 if model == "Airy" else 1800
            for found in whole_sweeps(items):
                assert abs(found - wanted) <= 1
            assert not losses(items)


def test_the_imu_of_an_airy_is_recorded() -> None:
    with emulated(model="Airy") as (_, driver):
        open_again(driver)
        items: list[Any] = []

        def read() -> bool:
            items.append(driver.read())
            return len(samples(items, "lidar_imu")) > 30

        wait_until("samples of the IMU", read, pause=lambda _: None)
        ports = [port for _, port in driver.receives]
        assert len(ports) == 3 and ports[2] == driver.sensor.options["imu_port"]
    (spec,) = [item.spec for item in items if isinstance(item, NewStream)]
    assert spec.name == "lidar_imu" and not spec.finite
    steps_ns = np.diff(device_times(items, "lidar_imu"))
    assert steps_ns.min() > 4_000_000 and not losses(items)


@pytest.mark.campaign
def test_a_silent_or_wrong_address_is_named() -> None:
    port = free_port()
    driver = make_driver(RobosenseDriver, "lidar", "udp", f"127.0.0.1:{port}", difop_port=port + 1)
    with pytest.raises(DeviceError, match=f"no packet of RS-16.* arrives at UDP port {port}"):
        driver.open()
    with pytest.raises(SourceError, match="is not of the form HOST"):
        make_driver(RobosenseDriver, "lidar", "robosense", "//a:b").open()
