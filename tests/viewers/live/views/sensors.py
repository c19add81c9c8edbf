"""Messages of the simulated sensors, as their drivers' taps deliver them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.camera.driver import CameraDriver
from drivers.kit.driver import Driver, Sample, SensorConfig
from drivers.kit.encode import Encoder
from drivers.mmwave.driver import MmwaveDriver
from drivers.ouster.driver import OusterDriver
from drivers.udp.driver import UdpDriver
from drivers.xsens.driver import XsensDriver
from recorder.bus import wire
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.config.options import check_options

Array = npt.NDArray[Any]
Data = dict[str, Array]

DRIVERS: dict[str, tuple[type[Driver], dict[str, Any]]] = {
    "camera": (CameraDriver, {"width": 320}),
    "lidar": (OusterDriver, {"beams": 32, "mode": "512x10"}),
    "radar": (MmwaveDriver, {}),
    "front": (UdpDriver, {"rate": 100.0}),
    "imu": (XsensDriver, {"batch_ms": 50.0, "model": "MTi-7"}),
}


def encoded(spec: StreamSpec, sample: Sample, number: int = 0) -> Message:
    """The message of a sample, after a journey over the bus."""
    encoder = Encoder(spec)
    frames, sizes = encoder.encode(sample)
    encoder.close()
    message = Message(
        Kind.DATA,
        spec.name,
        number=number,
        count=sample.count,
        t_mono_ns=sample.t_ns,
        t_dev_ns=sample.t_dev_ns,
        sizes=sizes,
        frames=frames,
    )
    return wire.decode([bytes(frame) for frame in wire.encode(message)])


def message_of(
    spec: StreamSpec, data: Mapping[str, Array], t_ns: list[int] | None = None
) -> Message:
    """The message of arrays [n, *shape]."""
    count = len(next(iter(data.values())))
    times = np.arange(count, dtype=np.int64) if t_ns is None else np.array(t_ns, np.int64)
    device = times.astype(np.int64) if spec.device_clock else None
    return encoded(spec, Sample(spec.name, times, data, device))


def play(name: str, count: int, **options: Any) -> Iterator[tuple[StreamSpec, Sample, Message]]:
    """The first samples of a simulated sensor, of all its streams, with their messages."""
    kind, defaults = DRIVERS[name]
    checked = check_options(kind.options, {**defaults, **options})
    return read(kind(SensorConfig(name, "sim", "", checked)), count)


def read(driver: Driver, count: int) -> Iterator[tuple[StreamSpec, Sample, Message]]:
    """The first samples of a driver's streams, with their messages."""
    specs = {spec.name: spec for spec in driver.open()}
    number = 0
    try:
        while number < count:
            item = driver.read()
            if isinstance(item, Sample):
                spec = specs[item.stream]
                yield spec, item, encoded(spec, item, number)
                number += 1
    finally:
        driver.close()


def first(name: str, stream: str = "", **options: Any) -> tuple[StreamSpec, Data, Message]:
    """A sensor's first sample of a stream: declaration, values [n, *shape], message."""
    for spec, sample, message in play(name, 100, **options):
        if spec.name == (stream or name):
            return spec, dict(sample.data), message  # type: ignore[arg-type]
    raise AssertionError(f"{name}: no sample of {stream}")


def with_file(spec: StreamSpec, **files: str) -> StreamSpec:
    """The declaration with other files; ``lidar_json=`` stands for ``lidar.json``."""
    return replace(spec, files={name.replace("_", "."): text for name, text in files.items()})
