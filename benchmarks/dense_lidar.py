"""Dense lidar: 128x2048 at 20 Hz with two returns, recorded with the rig's other sensors.

A sweep has the columns of two sweeps of the rig load in turns, and the next sweep as second return.
The recorder must record all sweeps without loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from benchmarks.frames import SENSORS, make_rig
from benchmarks.harness import Figure, Option, Run
from benchmarks.recording import record_measured, rig_sensors
from drivers.ouster.driver import OusterDriver

OPTIONS = {
    "seconds": Option("float", 30.0, "recorded seconds of a run", minimum=1),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "packing": replace(OusterDriver.options["packing"], default="later"),
    "hz": Option("float", 20.0, "sweeps a second", minimum=1),
}
QUICK = {"seconds": 4.0, "rounds": 1}


def measure(run: Run) -> Iterator[Figure]:
    """Record, and count the missing samples."""
    frames = make_rig(run)
    run.data["lidar"] += ", their columns in turns, to 128x2048 with two returns"
    options = {"dense": True, "fps": run.options["hz"], "packing": run.options["packing"]}
    rates = {name: float(rig.rate_hz) for name, rig in SENSORS.items()}
    rates["lidar"] = run.options["hz"]
    sensors = rig_sensors(frames, lidar=options)
    done = run.repeat(lambda folder: record_measured(folder, sensors, run.options["seconds"]))
    yield Figure("samples missing", [float(r.missing(rates)) for r in done], "samples")
    yield Figure("all", [r.cpu_per_s for r in done], "CPU s / s")
    for name in done[0].cpu:
        yield Figure(name, [r.cpu[name] / r.seconds for r in done], "CPU s / s")
    yield Figure("session", [r.bytes / r.seconds / 1e6 for r in done], "MB/s")
    yield Figure("writer, memory", [r.memory.max_mb for r in done], "MB")
