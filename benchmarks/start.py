"""Waiting times of a user: from a command to the first sample, and from the last sample to its end.

``recorder run --duration 1`` records the demonstration's simulated rig and the frames of the rig
load, without archives.  Times are measured from the start of the process to the earliest stamp of
the session, to the stamp by which every stream has begun, and from the latest stamp to the end of
the process.  The command itself reports the seconds of each phase (``--format json``, ``seconds``).

- ``warm``: Python has bytecode of all modules.
- ``no bytecode``: Python finds no bytecode and may not write any: each process compiles all modules
  that it imports, including the standard library.

``serve`` measures the daemon: from its start until the drivers are armed, and from ``recorder
start`` to the reply that the session is open.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.frames import make_rig
from benchmarks.harness import ROOT, BenchmarkError, Figure, Option, Run, info
from benchmarks.recording import COMMAND, rig_sensors, serve, write_config

OPTIONS = {
    "seconds": Option("float", 1.0, "length of a run", minimum=0.2),
    "rounds": Option("int", 7, "repetitions", minimum=1),
}
QUICK = {"rounds": 2}

PHASES: Final = ("config", "drivers", "session", "processes", "completion")
"""Phases of the command: imports and config; arming; start of the session; end of the processes;
labels and checksums.  The command's phase ``recording`` is the session itself."""


def measure(run: Run) -> Iterator[Figure]:
    """Measure each config with and without Python's bytecode, in turns."""
    frames = make_rig(run)
    run.data["demo"] = "configs/demo.yaml: four simulated sensors"
    configs = {
        "demo": ROOT / "configs" / "demo.yaml",
        "rig": write_config(run.folder / "rig.yaml", rig_sensors(frames)),
    }
    states = {"warm": _warm(run), "no bytecode": _no_bytecode(run)}
    for config in configs.values():
        _record(run, config, states["warm"])  # compiles
    values: dict[str, list[float]] = {}
    for number in run.rounds():
        for (name, config), (state, environment) in _pairs(configs, states, number):
            for figure, seconds in _record(run, config, environment).items():
                values.setdefault(f"{name}, {state}: {figure}", []).append(seconds)
        with run.scratch() as root:
            served = _serve(configs["demo"], states["warm"], root)
        for figure, seconds in served.items():
            values.setdefault(f"serve, demo, warm: {figure}", []).append(seconds)
    for name, measured in values.items():
        yield Figure(name, measured, "s")


def _pairs(
    configs: Mapping[str, Path], states: Mapping[str, dict[str, str]], number: int
) -> list[tuple[tuple[str, Path], tuple[str, dict[str, str]]]]:
    """Return every config in every state, in the opposite order in every second round."""
    pairs = [(config, state) for state in states.items() for config in configs.items()]
    return pairs[::-1] if number % 2 else pairs


def _warm(run: Run) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(run.folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _no_bytecode(run: Run) -> dict[str, str]:
    nowhere = str(run.folder / "no bytecode")
    return _warm(run) | {"PYTHONPYCACHEPREFIX": nowhere, "PYTHONDONTWRITEBYTECODE": "1"}


def _record(run: Run, config: Path, environment: dict[str, str]) -> dict[str, float]:
    """Record; return the seconds to the first sample, from the last one, and of the phases."""
    with run.scratch() as root:
        words = ["run", str(config), "--root", str(root), "--no-finalize", "--format", "json"]
        words += ["--duration", str(run.options["seconds"])]
        began_ns = time.time_ns()
        done = subprocess.run(
            [*COMMAND, *words], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        ended_ns = time.time_ns()
        if done.returncode != 0:
            raise BenchmarkError(f"recorder run: exit code {done.returncode}:\n{done.stderr}")
        result = json.loads(done.stdout)
        streams = info(Path(result["session"]))["streams"].items()
    # Without the simulation's labels.
    stamps = [(s["first_ns"], s["last_ns"]) for name, s in streams if not name.startswith("_")]
    figures = {
        "to the first sample": (min(first for first, _ in stamps) - began_ns) / 1e9,
        "until every stream has one": (max(first for first, _ in stamps) - began_ns) / 1e9,
        "from the last sample": (ended_ns - max(last for _, last in stamps)) / 1e9,
    }
    return figures | {f"phase {name}": result["seconds"][name] for name in PHASES}


def _serve(config: Path, environment: dict[str, str], root: Path) -> dict[str, float]:
    """Return the seconds until a daemon's drivers are armed, and until a session is open."""
    text = config.read_text().replace("root: ../demo", f"root: {root}")
    text = text.replace("calibration: demo_calibration.yaml\n", "")
    (root / "serve.yaml").write_text(text)
    began_s = time.monotonic()
    with serve(root / "serve.yaml", root, environment) as (_, client):
        armed_s = time.monotonic()
        client.start("benchmark")
        started_s = time.monotonic()
        client.stop()
    return {"drivers armed": armed_s - began_s, "start from idle": started_s - armed_s}
