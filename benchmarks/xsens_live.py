"""Cost of recording from an MTi, and the error of its recorded times.

An emulated device in a separate process sends at each rate; the driver reads it as a serial port.
The benchmark measures per rate: CPU of the driver's process per recorded second (reading, parsing,
times, batches; not publishing, which `benchmarks.rig` measures), and samples received and lost.
The known times at which the device's world was sampled give the errors of the recorded times and
of the arrival times of the messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Figure, Option, Run, run_emulator, spawn
from drivers.kit.driver import Lost, Sample, SensorConfig
from drivers.world.imu import BOOT_NS
from drivers.xsens.connection import Mti, Received
from drivers.xsens.driver import XsensDriver
from drivers.xsens.emulator import XsensEmulator
from recorder.config.options import check_options
from recorder.config.settings import SensorEntry

SETTLED_S = 3.0
OPTIONS = {
    "seconds": Option("float", 20.0, "of each rate", minimum=SETTLED_S + 2),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "rates": Option("str", "100,400,1000", "samples a second"),
}
QUICK = {"seconds": 6.0, "rounds": 1, "rates": "100"}


def record(
    address: str, options: dict[str, Any], seconds: float, epoch_ns: int
) -> dict[str, float]:
    """Read the device for `seconds`; return counts, CPU and errors of the times."""
    driver = XsensDriver(
        SensorConfig("imu", "serial", address, check_options(XsensDriver.options, options))
    )
    arrivals: list[int] = []
    receive = Mti.receive

    def receive_timed(self: Mti, timeout_s: float) -> list[Received]:
        received = receive(self, timeout_s)
        now_ns = time.monotonic_ns()
        arrivals.extend(now_ns for _ in received)
        return received

    driver.open()
    Mti.receive = receive_timed  # type: ignore[method-assign]
    errors, lost, count = [], 0, 0
    end = time.monotonic() + seconds
    cpu = time.process_time()
    try:
        while time.monotonic() < end:
            item = driver.read()
            if isinstance(item, Sample) and item.t_dev_ns is not None:
                count += item.count
                errors.append(item.t_ns - (item.t_dev_ns - BOOT_NS + epoch_ns))
            elif isinstance(item, Lost):
                lost += item.count or 0
        cpu = time.process_time() - cpu
    finally:
        Mti.receive = receive  # type: ignore[method-assign]
        driver.close()
    error_us = np.concatenate(errors)[round(count * SETTLED_S / seconds) :] / 1e3
    world_us = (np.arange(len(error_us)) * 1e6 / (count / seconds)).astype(np.int64)
    late_us = np.array(arrivals[-len(error_us) :]) / 1e3
    late_us = late_us - late_us[0] - world_us
    late_us -= np.polyval(np.polyfit(world_us, late_us, 1), world_us)
    low, high = np.percentile(error_us, [1, 99])
    return {
        "lost": lost,
        "cpu": cpu / seconds,
        "error_us": float(np.abs(np.percentile(error_us, [1, 50, 99])).max()),
        "spread_us": float(high - low),
        "arrival_us": float(np.percentile(late_us, 99) - np.percentile(late_us, 1)),
    }


def measure_once(rate: float, seconds: float, _folder: Path) -> dict[str, float]:
    """Measure one rate, with a new device."""
    entry = SensorEntry(
        "imu", "xsens", "sim", "", check_options(XsensDriver.options, {"rate": rate})
    )
    with spawn(run_emulator, XsensEmulator, entry) as device:
        source, options, epoch_ns = device.recv()
        return record(source.partition(":")[2], options, seconds, epoch_ns)


def measure(run: Run) -> Iterator[Figure]:
    """Measure each rate, in turns."""
    run.data["samples"] = "of an emulated MTi"
    rates = [float(word) for word in run.options["rates"].split(",")]
    seconds = run.options["seconds"]
    done = run.take_turns({rate: partial(measure_once, rate, seconds) for rate in rates})
    for rate, runs in done.items():
        case = f"{rate:g} Hz"
        yield Figure(f"{case}, CPU", [r["cpu"] for r in runs], "CPU s / s")
        late = [r["error_us"] for r in runs]
        yield Figure(f"{case}, error of the stamps, 98% below", late, "us")
        yield Figure(f"{case}, spread of the stamps", [r["spread_us"] for r in runs], "us")
        yield Figure(f"{case}, spread of arrivals", [r["arrival_us"] for r in runs], "us")
        yield Figure(f"{case}, lost", [r["lost"] for r in runs], "samples")
