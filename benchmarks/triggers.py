"""Cost of triggers: ten conditions with the rig load, in the process that evaluates them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.frames import make_rig
from benchmarks.harness import BenchmarkError, Figure, Option, Run
from benchmarks.measure import watch_processes
from benchmarks.recording import run_daemon, wait_until

OPTIONS = {
    "seconds": Option("float", 20.0, "of each run", minimum=1),
    "rounds": Option("int", 3, "runs", minimum=1),
}
QUICK = {"seconds": 3.0, "rounds": 1}
CONDITIONS: Final = (
    "imu.acc[0] < -4.0",
    "imu.acc[0] * imu.acc[0] + imu.acc[1] * imu.acc[1] > 64",
    "abs(imu.avel[2]) > 0.5",
    "imu.acc[2] < 7 or imu.acc[2] > 13",
    "max(abs(imu.avel[0]), abs(imu.avel[1])) > 0.8",
    "imu.rate < 90",
    "camera.rate < 25 and imu.rate > 90",
    "lidar.rate < 9 and not radar.rate < 18",
    "camera.lost > 0 or lidar.lost > 0",
    "abs(imu.rot[0]) > 0.6 and camera.rate > 20",
)
_SETTLE_S = 2.0


def record(frames: Path, root: Path, seconds: float) -> dict[str, float]:
    """Record with the triggers; return the figures of `seconds` in the middle of the session."""
    triggers = {
        f"t{k}": {"when": text, "before": 0, "after": 0, "cooldown": 60}
        for k, text in enumerate(CONDITIONS)
    }
    with run_daemon(frames, root, {"triggers": triggers}) as (pid, client):
        client.start()

        def state() -> Any:
            return client.status().status["triggers"]

        wait_until(lambda: state()["pid"], "no process of the triggers")
        time.sleep(_SETTLE_S)
        cpu, memory = watch_processes(pid, "triggers", seconds)
        if state()["restarts"] or state()["fault"]:
            raise BenchmarkError(f"the triggers failed: {state()['fault']}")
        client.request("stop")
    return {"triggers": cpu["triggers"], "memory": memory.max_mb}


def measure(run: Run) -> Iterator[Figure]:
    """Measure the rig load with ten triggers."""
    frames = make_rig(run)
    runs = run.repeat(lambda folder: record(frames, folder, run.options["seconds"]))
    yield Figure("triggers", [each["triggers"] for each in runs], "CPU s / s")
    yield Figure("memory", [each["memory"] for each in runs], "MB")
