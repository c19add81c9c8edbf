"""`recorder emulate`: devices on this machine that the real drivers record from.

What is recorded from the emulated rig is what `sim:` gives of the same world, sample by sample but
for the times; what is injected on the way is what the session counts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorder.session.reader import Session
from tests.acceptance.command import PROJECT, recorder

CONFIG = """\
version: 1
session: {root: ROOT, name: NAME}
sensors:
  camera: {driver: camera, source: "sim:", width: 320, height: 240, fps: 10, PACE}
  lidar: {driver: ouster, source: "sim:", beams: 32, mode: 512x10, PACE}
  radar: {driver: mmwave, source: "sim:", iq_order: qqii, PACE}
  imu: {driver: xsens, source: "sim:", rate: 100, PACE}
storage: {min_free_gb: 0.01}
"""
PAYLOAD = {
    "camera": ["video.avi"],
    "lidar": ["rng", "rfl", "nir"],
    "lidar_imu": ["acc", "avel"],
    "radar": ["iq", "valid"],
    "imu": ["acc", "avel", "rot"],
}


@contextmanager
def emulated(folder: Path, config: Path, *faults: str) -> Iterator[Path]:
    """The config that records from the emulated devices; what was injected is in report.json."""
    command = [sys.executable, "-m", "recorder", "emulate", str(config), "--seed", "1"]
    command += ["--report", str(folder / "report.json")]
    for fault in faults:
        command += ["--fault", fault]
    process = subprocess.Popen(
        [*command, "--format", "json"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        while "emulating" not in (line := process.stderr.readline()):
            assert line, "the emulation ended"
        text = os.read(process.stdout.fileno(), 1 << 20)
        path = folder / "emulated.yaml"
        path.write_bytes(text)  # JSON is YAML
        yield path
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def write_config(folder: Path, name: str, pace: str) -> Path:
    path = folder / f"{name}.yaml"
    text = CONFIG.replace("ROOT", str(folder / "sessions")).replace("NAME", name)
    path.write_text(text.replace("PACE", f"pace: {pace}"))
    return path


def rows(session: Session, stream: str) -> list[bytes]:
    """A stream's samples, payload only, as bytes."""
    reader = session.stream(stream)
    return [
        b"".join(
            np.asarray(value).tobytes() for value in reader.sample(k, PAYLOAD[stream]).values()
        )
        for k in range(len(reader))
    ]


def lost(session: Path) -> dict[str, dict[str, int]]:
    counted: dict[str, dict[str, int]] = {}
    for line in (session / "_recorder" / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "lost" and event["count"] is not None:
            causes = counted.setdefault(event["stream"], {})
            causes[event["cause"]] = causes.get(event["cause"], 0) + event["count"]
    return counted


@pytest.mark.campaign
def test_what_devices_give_is_what_the_simulation_gives(tmp_path: Path) -> None:
    sim = write_config(tmp_path, "sim", "max")
    done = recorder("run", sim, "--duration", "14", "--format", "json")
    assert done.code == 0, done.err
    with emulated(tmp_path, sim) as config:
        done = recorder(
            "run", str(config), "--name", "devices", "--duration", "5", "--format", "json"
        )
    assert done.code == 0, done.err
    with (
        Session(tmp_path / "sessions" / "sim") as simulated,
        Session(tmp_path / "sessions" / "devices") as devices,
    ):
        assert set(devices.streams) == set(simulated.streams) == set(PAYLOAD)
        for stream in PAYLOAD:
            given, expected = rows(devices, stream), rows(simulated, stream)
            rate = {"camera": 10, "lidar": 10, "radar": 20}.get(stream, 100)
            assert len(given) > 3 * rate, stream
            # A device ran for a while before the session began: it is somewhere within.
            start = expected.index(given[0])
            assert given == expected[start : start + len(given)], stream
    assert lost(tmp_path / "sessions" / "devices") == {}
    assert json.loads((tmp_path / "report.json").read_text()) == {
        name: {} for name in ("camera", "lidar", "radar", "imu")
    }


@pytest.mark.campaign
def test_what_is_injected_is_counted(tmp_path: Path) -> None:
    sim = write_config(tmp_path, "sim", "realtime")
    faults = ["camera.loss=3x@10", "imu.loss=5x@10", "imu.corrupt=2x@11", "radar.loss=7x@10"]
    with emulated(tmp_path, sim, *faults) as config:
        done = recorder(
            "run", str(config), "--name", "faults", "--duration", "13", "--format", "json"
        )
    assert done.code == 3, done.err
    injected: dict[str, Any] = json.loads((tmp_path / "report.json").read_text())
    session = tmp_path / "sessions" / "faults"
    counted = lost(session)
    assert injected["camera"] == {"loss": 3} and sum(counted["camera"].values()) == 3
    assert injected["imu"] == {"loss": 5, "corrupt": 2}
    assert counted["imu"] == {"device": 5, "corrupt": 2}
    assert injected["radar"] == {"loss": 7}
    valid = recorder("validate", str(session), "--deep", "--format", "json")
    assert valid.code == 0, valid.out
    with Session(session) as devices:
        radar = devices.stream("radar")
        flags = np.asarray([radar.sample(k, ["valid"])["valid"] for k in range(len(radar))])
        assert 1 <= int((flags == 0).sum()) <= 3, "seven packets in a row lie in a frame or two"
