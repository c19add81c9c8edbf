"""Plays a log, or the simulated IMU, and checks each item against its declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from drivers.kit.driver import EndOfSource, Item, Sample
from drivers.xsens.driver import XsensDriver
from recorder.codecs.streams import StreamSpec
from tests.support.devices import make_driver


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


def check_sample(spec: StreamSpec, item: Sample) -> None:
    assert list(item.data) == [channel.name for channel in spec.channels]
    for channel in spec.channels:
        values = item.data[channel.name]
        assert isinstance(values, np.ndarray)
        assert values.dtype == channel.np_dtype
        assert values.shape == (item.count, *channel.shape)
        assert values.flags.c_contiguous
    assert item.t_dev_ns is not None
    assert item.t_ns.dtype == item.t_dev_ns.dtype == np.int64
    assert item.t_ns.shape == item.t_dev_ns.shape
    assert (np.diff(item.t_ns) > 0).all() and (item.t_dev_ns >= 0).all()
