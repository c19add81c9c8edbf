"""Cost of recording from an MTi, and the error of its recorded times.

An emulated device in a separate process sends at each rate; the driver reads it as a serial port.
The benchmark measures per rate: CPU of the driver's process per recorded second (reading, parsing,
times, batches; not publishing, which `benchmarks.rig` measures), and samples received and lost.
The known times at which the device's world was sampled give the errors of the recorded times and
of the arrival times of the messages.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np

from benchmarks.harness import Figure, Option, Run
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


def emulate(rate: float, stop: Event, reported: Connection) -> None:
    """Emulate a device until `stop` is set; send its source, options and the world's start time."""
    options = check_options(XsensDriver.options, {"rate": rate})
    emulator = XsensEmulator(SensorEntry("imu", "xsens", "sim", "", options))
    source = emulator.start()
    epoch_ns = time.monotonic_ns()
    emulator.step(epoch_ns)
    reported.send((source.source.partition(":")[2], dict(source.options), epoch_ns))
    while not stop.is_set():
        due_ns = emulator.step(time.monotonic_ns())
        if (wait_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
            time.sleep(wait_s)
    emulator.stop()


def record(address: str, options: dict[str, Any], seconds: float, epoch_ns: int) -> dict[str, Any]:
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
    return {
        "rate_hz": options["rate"],
        "samples": count,
        "lost": lost,
        "cpu_per_s": round(cpu / seconds, 4),
        "error_us": _spread(error_us),
        "arrival_spread_us": round(float(np.percentile(late_us, 99) - np.percentile(late_us, 1))),
        "error_spread_us": round(float(np.percentile(error_us, 99) - np.percentile(error_us, 1))),
    }


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, int]:
    return {f"p{p}": round(float(np.percentile(values, p))) for p in (1, 50, 99)}


def measure_once(rate: float, seconds: float) -> dict[str, Any]:
    """Measure one rate, with a new device."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    here, there = context.Pipe()
    process = context.Process(target=emulate, args=(rate, stop, there))
    process.start()
    try:
        address, options, epoch_ns = here.recv()
        return record(address, options, seconds, epoch_ns)
    finally:
        stop.set()
        process.join()


def measure(run: Run) -> Iterator[Figure]:
    """Measure each rate, in turns."""
    run.data["samples"] = "of an emulated MTi"
    rates = [float(word) for word in run.options["rates"].split(",")]
    done: dict[float, list[dict[str, Any]]] = {rate: [] for rate in rates}
    for _ in run.rounds():
        for rate in rates:
            done[rate].append(measure_once(rate, run.options["seconds"]))
    for rate, runs in done.items():
        case = f"{rate:g} Hz"
        yield Figure(f"{case}, CPU", [r["cpu_per_s"] for r in runs], "CPU s / s")
        late = [max(map(abs, r["error_us"].values())) for r in runs]
        yield Figure(f"{case}, error of the stamps, 98% below", late, "us")
        yield Figure(f"{case}, spread of the stamps", [r["error_spread_us"] for r in runs], "us")
        yield Figure(f"{case}, spread of arrivals", [r["arrival_spread_us"] for r in runs], "us")
        yield Figure(f"{case}, lost", [r["lost"] for r in runs], "samples")
