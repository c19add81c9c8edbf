"""Plays a log, or the simulated IMU, and checks each item against its declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from drivers.kit.driver import EndOfSource, Item, Sample
from drivers.xsens.driver import XsensDriver
from recorder.codecs.streams import StreamSpec
from tests.support.devices import check_sample, make_driver


def driver_of(source: Path | None, **options: Any) -> XsensDriver:
    scheme = "sim" if source is None else "file"
    return make_driver(XsensDriver, "imu", scheme, source or "", **options)


def play_all(driver: XsensDriver) -> tuple[list[StreamSpec], list[Item]]:
    """Open, read to the end, close; every sample held against its declaration."""
    specs = {spec.name: spec for spec in driver.open()}
    assert list(specs) in (["imu"], ["imu", "imu_gnss"])
    items: list[Item] = []
    batches = [np.zeros(1, np.int64)]
    last_ns = dict.fromkeys(specs, -1)
    try:
        while True:
            item = driver.read()
            assert item is not None
            items.append(item)
            if isinstance(item, Sample):
                check_sample(specs[item.stream], item)
                assert item.t_ns[0] > last_ns[item.stream]
                last_ns[item.stream] = int(item.t_ns[-1])
                if item.stream == "imu":
                    batches = [*batches[-1:], item.t_ns]
                else:  # among the samples, where it belongs
                    assert batches[0][0] <= item.t_ns[0] <= batches[-1][-1]
            else:
                assert item.t_ns >= last_ns[item.stream]
    except EndOfSource:
        pass
    finally:
        driver.close()
    return list(specs.values()), items


def play(driver: XsensDriver) -> tuple[StreamSpec, list[Item]]:
    """The declaration and the items of the inertial samples alone."""
    specs, items = play_all(driver)
    return specs[0], [item for item in items if item.stream == "imu"]
