"""An emulated radar on this machine's loopback, and the driver that records it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, SensorConfig
from drivers.kit.emulator_faults import parse_fault
from drivers.mmwave import connection
from drivers.mmwave.driver import MmwaveDriver
from drivers.mmwave.emulator import MmwaveEmulator
from drivers.mmwave.live import LiveFrames
from recorder.config.options import check_options
from tests.support.devices import losses, make_entry, read_until, samples, states, stepped

Frames = npt.NDArray[np.int16]

QUICK: dict[str, Any] = {
    "device": "AWR1642",
    "frequency": 77.0,
    "idle_time": 10.0,
    "adc_start_time": 5.0,
    "ramp_end_time": 40.0,
    "freq_slope": 60.0,
    "adc_samples": 64,
    "sample_rate": 5000,
    "frame_length": 16,
    "frame_period": 10.0,
}
"""22.5 packets a frame, 2250 a second."""
QUICK_SHAPE = (16, 2, 4, 128)


def recording(folder: Path, count: int, seed: int = 0) -> tuple[Path, Frames]:
    """A raw capture of random frames without zeros, so that what is missing shows."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(1, 32768, (count, *QUICK_SHAPE)).astype("<i2")
    path = folder / "adc_data.bin"
    path.write_bytes(frames.tobytes())
    return path, frames


class Rig:
    """An emulated radar, stepped by a thread, and a driver for it that is not open yet.

    >>> with Rig("file", path, faults=["loss=0.01"]) as rig:
    ...     rig.driver.open()
    ...     items = rig.read(lambda items: len(items) > 100)

    Args:
        scheme, address: what feeds the emulator.
        faults: as `parse_fault` takes them behind the sensor's name.
        options: of the emulated sensor.
        changes: to the options that the emulator names for the driver, by their two keys.
        patience_s: the longest wait for answers and data; a usual one is too short on a busy
            machine.
    """

    def __init__(
        self,
        scheme: str,
        address: Path | str = "",
        faults: tuple[str, ...] = (),
        options: Mapping[str, Any] | None = None,
        changes: Mapping[tuple[str, str], Any] | None = None,
        patience_s: float = 30.0,
    ) -> None:
        self._patience_s = patience_s
        given = {"radar": QUICK, **(options or {})}
        entry = make_entry(MmwaveDriver, "radar", "mmwave", scheme, address, **given)
        chosen = [parse_fault(f"radar.{fault}")[1] for fault in faults]
        self.emulator = MmwaveEmulator(entry, chosen, seed=1)
        self.source = self.emulator.start()
        wanted = {k: dict(v) if isinstance(v, dict) else v for k, v in self.source.options.items()}
        wanted["capture"]["timeout"] = wanted["boot_s"] = patience_s
        for (group, key), value in (changes or {}).items():
            wanted[group][key] = value
        scheme, address = self.source.source.split(":", 1)
        self.options = check_options(MmwaveDriver.options, wanted)
        self.driver = MmwaveDriver(SensorConfig("radar", scheme, address, self.options))
        self.ports: dict[str, Any] = self.options["capture"]
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Rig:
        self._running.enter_context(mock.patch.object(connection, "SETUP_S", self._patience_s))
        self._running.callback(self.emulator.stop)
        self._stepping = self._running.enter_context(contextlib.ExitStack())
        self._stepping.enter_context(stepped(self.emulator))
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.close()
        self._running.close()

    def hold(self) -> None:
        """Step the device no more; the test does what it would do."""
        self._stepping.close()

    def read(self, enough: Callable[[list[Item]], object]) -> list[Item]:
        """What the driver gives until it is enough."""
        return read_until(self.driver, enough)

    def wait_for_data(self, seconds: float) -> None:
        """Have the opened driver give up after so long without data."""
        assert isinstance(self.driver.source, LiveFrames)
        self.driver.source._patience_ns = round(seconds * 1e9)

    def frames(self, count: int) -> list[Item]:
        """What the driver gives until there are so many frames among it."""
        return self.read(lambda items: len(samples(items)) >= count)


def lost(items: Sequence[Item | None], cause: str) -> list[Lost]:
    return [lost for lost in losses(items) if lost.cause == cause]


def counted(items: Sequence[Item | None], key: str) -> int:
    """The sum of what state and loss records say of that key."""
    values = [*states(items), *(lost.detail for lost in losses(items))]
    return sum(v.get(key, 0) for v in values)


def iq(sample: Sample) -> Frames:
    frame: Frames = np.asarray(sample.data["iq"])[0]
    return frame


def valid(sample: Sample) -> int:
    return int(np.asarray(sample.data["valid"])[0])
