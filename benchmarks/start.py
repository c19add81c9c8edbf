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
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.frames import make_frames
from benchmarks.harness import ROOT, BenchmarkError, Figure, Option, Run
from benchmarks.recording import COMMAND, rig_sensors, write_config

OPTIONS = {
    "seconds": Option("float", 1.0, "length of a run", minimum=0.2),
    "rounds": Option("int", 7, "repetitions", minimum=1),
}
QUICK = {"rounds": 2}

PHASES: Final = ("config", "drivers", "session", "processes", "completion")
"""Phases of the command: imports and config; arming; start of the session; end of the processes;
labels and checksums.  The command's phase ``recording`` is the session itself."""
_PATIENCE_S = 120.0
_POLL_S = 0.005


def measure(run: Run) -> Iterator[Figure]:
    """Measure each config with and without Python's bytecode, in turns."""
    frames = run.folder / "frames"
    frames.mkdir()
    run.data |= {"demo": "configs/demo.yaml: four simulated sensors"}
    run.data |= {f"rig, {name}": text for name, text in make_frames(frames, run.recordings).items()}
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
        for figure, seconds in _serve(run, configs["demo"], states["warm"]).items():
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
        stamps = list(_stamps(Path(result["session"])).values())
    figures = {
        "to the first sample": (min(first for first, _ in stamps) - began_ns) / 1e9,
        "until every stream has one": (max(first for first, _ in stamps) - began_ns) / 1e9,
        "from the last sample": (ended_ns - max(last for _, last in stamps)) / 1e9,
    }
    return figures | {f"phase {name}": result["seconds"][name] for name in PHASES}


def _stamps(session: Path) -> dict[str, tuple[int, int]]:
    """Return epoch ns of the first and the last sample, by stream."""
    words = [*COMMAND, "info", str(session), "--format", "json"]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    streams: dict[str, dict[str, Any]] = json.loads(done.stdout)["streams"]
    return {
        name: (stream["first_ns"], stream["last_ns"])
        for name, stream in streams.items()
        if not name.startswith("_")  # the simulation's labels
    }


def _serve(run: Run, config: Path, environment: dict[str, str]) -> dict[str, float]:
    """Return the seconds until a daemon's drivers are armed, and until a session is open."""
    from recorder.bus.control.client import Client, DaemonError

    with run.scratch() as root:
        text = config.read_text().replace("root: ../demo", f"root: {root}")
        text = text.replace("calibration: demo_calibration.yaml\n", "")
        (root / "serve.yaml").write_text(text)
        address = root / "control.sock"
        began_s = time.monotonic()
        with (root / "log.txt").open("wb") as log:
            words = [*COMMAND, "serve", str(root / "serve.yaml"), "--socket", str(address)]
            process = subprocess.Popen(words, cwd=ROOT, env=environment, stderr=log)
        try:
            while True:
                if time.monotonic() - began_s > _PATIENCE_S or process.poll() is not None:
                    raise BenchmarkError(f"recorder serve:\n{(root / 'log.txt').read_text()}")
                time.sleep(_POLL_S)
                try:
                    with Client(address) as client:
                        if client.status().status["ready"]:
                            break
                except DaemonError:
                    continue
            armed_s = time.monotonic()
            with Client(address) as client:
                client.start("benchmark")
                started_s = time.monotonic()
                client.stop()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return {"drivers armed": armed_s - began_s, "start from idle": started_s - armed_s}
