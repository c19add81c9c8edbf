"""An emulated radar on this machine's loopback, and the driver that records it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from drivers._devices import dca1000
from drivers._kit.driver import Item, Lost, Sample, SensorConfig, State
from drivers._mmwave.live import LiveFrames
from drivers.mmwave import MmwaveDriver
from drivers.sim.emulators.faults import parse_fault
from drivers.sim.emulators.mmwave import MmwaveEmulator
from recorder.contract.config.options import check_options
from recorder.contract.config.settings import SensorEntry

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

_PATIENCE_S = 30.0  # for what must come; never waited for where all is well


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
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._patience = mock.patch.object(dca1000, "SETUP_S", patience_s)
        checked = check_options(MmwaveDriver.options, {"radar": QUICK, **(options or {})})
        entry = SensorEntry("radar", "mmwave", scheme, str(address), checked)
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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failures: list[BaseException] = []

    def __enter__(self) -> Rig:
        self._patience.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.driver.close()
        self._stop.set()
        self._thread.join()
        self.emulator.stop()
        self._patience.stop()
        if error is None:
            assert not self.failures

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                due_ns = self.emulator.step(time.monotonic_ns())
                self._stop.wait(max(0.0, min(0.02, (due_ns - time.monotonic_ns()) / 1e9)))
        except BaseException as error:  # noqa: BLE001  the test fails with it
            self.failures.append(error)

    def read(self, enough: Callable[[list[Item]], object]) -> list[Item]:
        """What the driver gives until it is enough."""
        items: list[Item] = []
        deadline = time.monotonic() + _PATIENCE_S
        while not enough(items):
            assert time.monotonic() < deadline, f"only {len(items)} items"
            item = self.driver.read()
            if item is not None:
                items.append(item)
        return items

    def wait_for_data(self, seconds: float) -> None:
        """Have the opened driver give up after so long without data."""
        assert isinstance(self.driver.source, LiveFrames)
        self.driver.source._patience_ns = round(seconds * 1e9)

    def frames(self, count: int) -> list[Item]:
        """What the driver gives until there are so many frames among it."""
        return self.read(lambda items: len(samples(items)) >= count)


def samples(items: Sequence[Item | None]) -> list[Sample]:
    return [item for item in items if isinstance(item, Sample)]


def lost(items: Sequence[Item | None], cause: str) -> list[Lost]:
    return [item for item in items if isinstance(item, Lost) and item.cause == cause]


def counted(items: Sequence[Item | None], key: str) -> int:
    """The sum of what state and loss records say of that key."""
    values = [item.values for item in items if isinstance(item, State)]
    values += [item.detail for item in items if isinstance(item, Lost)]
    return sum(v.get(key, 0) for v in values)


def iq(sample: Sample) -> Frames:
    frame: Frames = np.asarray(sample.data["iq"])[0]
    return frame


def valid(sample: Sample) -> int:
    return int(np.asarray(sample.data["valid"])[0])
