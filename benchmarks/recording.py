"""Measurement of one ``recorder run`` from outside while it records."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.frames import SENSORS
from benchmarks.harness import ROOT, BenchmarkError, info
from benchmarks.measure import Memory, ProcessTree, file_bytes
from recorder.bus.control.client import Client
from recorder.common.errors import RecorderError

COMMAND: Final = (sys.executable, "-c", "import sys, recorder.cli as c; sys.exit(c.main())")
_START_S = 120.0
_POLL_S = 0.005
_EAGER_S = 1.0  # so long before the end readings become frequent


@dataclass(slots=True)
class Recording:
    """A session, and the cost of recording it.

    Attributes:
        path: folder of the session.
        seconds: recorded duration.
        start_s: time from the command's start to the session's.
        stop_s: time from the session's end to the command's.
        cpu: CPU seconds by process, from the session's start until it was closed.
        checksums_cpu: CPU seconds after that.
        memory: memory of the watched process, the writer unless another is.
        bytes: size of the session's files.
        streams: entry of each stream in ``recorder info``.
        exit_code: exit code of ``recorder run``.
    """

    path: Path
    seconds: float
    start_s: float
    stop_s: float
    cpu: dict[str, float]
    checksums_cpu: float
    memory: Memory
    bytes: int
    streams: dict[str, Any]
    exit_code: int

    @property
    def cpu_per_s(self) -> float:
        """CPU seconds of all processes per recorded second."""
        return sum(self.cpu.values()) / self.seconds

    def missing(self, rates: Mapping[str, float]) -> int:
        """Return the number of missing samples, for rates (samples a second) by stream."""
        due = {name: round(self.seconds * rate) for name, rate in rates.items()}
        return sum(max(0, n - self.streams[name]["samples"]) for name, n in due.items())


def rig_sensors(frames: Path, **options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the config's section ``sensors`` of the rig load.

    Args:
        frames: the folder of `benchmarks.frames.make_frames`.
        options: further options by sensor.
    """
    return {
        name: {"driver": f"benchmarks.rig_drivers.{name}", "source": f"file:{frames}"}
        | dict(options.get(name, {}))
        for name in SENSORS
    }


def write_config(path: Path, sensors: Mapping[str, Any], **sections: Any) -> Path:
    """Write a config as JSON, which is valid YAML; return its path."""
    config = {"version": 1, "sensors": sensors, "storage": {"min_free_gb": 1}, **sections}
    path.write_text(json.dumps(config, indent=1) + "\n")
    return path


def record_measured(
    root: Path,
    sensors: Mapping[str, Any],
    seconds: float,
    words: Iterable[str] = (),
    watched: str = "writer",
    **more: Any,
) -> Recording:
    """Record a session, and measure it.

    Args:
        root: folder of the session, the config, and the command's output.
        sensors: the config's section.
        seconds: length of the session.
        words: further words of the command.
        watched: label of the process whose memory is read.
        more: further sections of the config.

    Raises:
        BenchmarkError: there is no session.
    """
    config = write_config(root / "config.yaml", sensors, **more)
    command = [*COMMAND, "run", str(config), "--root", str(root), "--duration", str(seconds)]
    with (root / "stderr.txt").open("wb") as log, (root / "stdout.txt").open("wb") as out:
        launched_s = time.monotonic()
        process = subprocess.Popen([*command, *words], cwd=ROOT, stdout=out, stderr=log)
    try:
        session = _wait_for_session(process, root)
        tree = ProcessTree(process.pid)
        before, start_s = tree.cpu_seconds(), time.monotonic()
        memory, after = Memory(), before
        while not _is_closed(session) and process.poll() is None:
            elapsed_s = time.monotonic() - start_s
            if elapsed_s >= len(memory.seconds):
                memory.add(elapsed_s, tree.rss_bytes(watched) or 0)
            time.sleep(0.02 if elapsed_s > seconds - _EAGER_S else 0.1)
            if elapsed_s > seconds - _EAGER_S:
                after = tree.cpu_seconds()
        last = after = tree.cpu_seconds()
        closed_s = time.monotonic()
        while process.poll() is None:
            last = tree.cpu_seconds()
            time.sleep(0.02)
        ended_s = time.monotonic()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    return Recording(
        session,
        seconds,
        start_s - launched_s,
        ended_s - closed_s,
        {k: after[k] - before.get(k, 0.0) for k in after if k not in ("checksums", "other")},
        last.get("checksums", 0.0),
        memory,
        file_bytes(session),
        info(session)["streams"],
        process.returncode,
    )


def _wait_for_session(process: subprocess.Popen[bytes], root: Path) -> Path:
    def find_session() -> Path | None:
        log = (root / "stderr.txt").read_text()
        if found := re.search(r"recording (.+); live views", log):
            return Path(found[1])
        if process.poll() is not None:
            lines = log.strip().splitlines() or ["no message"]
            raise BenchmarkError(f"recorder run did not begin: {lines[-1]}")
        return None

    return cast(Path, wait_until(find_session, "recorder run did not begin"))


def _is_closed(session: Path) -> bool:
    state = json.loads((session / "_recorder" / "session.json").read_bytes())["state"]
    return bool(state != "recording")


@contextmanager
def run_daemon(frames: Path, root: Path, more: Mapping[str, Any]) -> Iterator[tuple[int, Client]]:
    """Run a daemon of the rig load with `more` sections in its config; yield pid and client."""
    sections = {"session": {"root": f"{root}/sessions"}, **more}
    sensors = {name: entry | {"loop": True} for name, entry in rig_sensors(frames).items()}
    with serve(write_config(root / "rig.yaml", sensors, **sections), root, os.environ) as daemon:
        yield daemon


@contextmanager
def serve(config: Path, root: Path, environment: Mapping[str, str]) -> Iterator[tuple[int, Client]]:
    """Run ``recorder serve`` with its state below `root`; yield pid and client when it is ready.

    Raises:
        BenchmarkError: it does not become ready.
    """
    address, log = root / "control.sock", root / "log"
    words = [*COMMAND, "serve", str(config), "--socket", str(address)]
    state = {**environment, "STATE_DIRECTORY": str(root / "state")}
    with log.open("wb") as errors:
        process = subprocess.Popen(words, cwd=ROOT, stderr=errors, env=state)

    def connect() -> Client | None:
        if process.poll() is not None:
            raise BenchmarkError(f"recorder serve:\n{log.read_text()}")
        with suppress(RecorderError):
            return Client(str(address))
        return None

    try:
        with wait_until(connect, "recorder serve did not begin") as client:
            wait_until(lambda: client.status().status["ready"], "the drivers are not ready")
            yield process.pid, client
    finally:
        process.terminate()
        process.wait()


def wait_until(ready: Callable[[], Any], why: str) -> Any:
    """Wait until `ready` returns a true value, and return it.

    Raises:
        BenchmarkError: it is still false after a long time; the message is `why`.
    """
    deadline_s = time.monotonic() + _START_S
    while not (value := ready()):
        if time.monotonic() > deadline_s:
            raise BenchmarkError(why)
        time.sleep(_POLL_S)
    return value
