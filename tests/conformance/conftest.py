"""Sessions for the formats' own software to read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.command import PROJECT, recorder, write_config
from tests.support.shared import share

# A small radar, which can run as long as the recordings.
RADAR = """{device: AWR1843, frequency: 77.0, idle_time: 6.0, adc_start_time: 5.7,
    ramp_end_time: 34.0, freq_slope: 67.012, adc_samples: 128, sample_rate: 10000,
    frame_length: 8, frame_period: 200.0}""".replace("\n", "")

SIMULATED = f"""
camera: {{driver: camera, source: "sim:", width: 320, height: 240, fps: 30, pace: max}}
lidar: {{driver: ouster, source: "sim:", pace: max}}
radar: {{driver: mmwave, source: "sim:", pace: max, radar: {RADAR}}}
imu: {{driver: xsens, source: "sim:", pace: max}}
"""
LIDAR = "pcap:{data}/ouster/{lidar}_lb_n3.pcap"
REAL = f"""
camera: {{driver: camera, source: "file:{{data}}/camera/solidWhiteRight.mp4", pace: max}}
lidar: {{driver: ouster, source: "{LIDAR}", metadata: "{{data}}/ouster/{{lidar}}.json", pace: max}}
radar: {{driver: mmwave, source: "sim:", pace: max, radar: {RADAR}}}
imu: {{driver: xsens, source: "file:{{data}}/imu/xsens_mti_g700_47s.bin", pace: max}}
"""


def record(folder: Path, sensors: str, seconds: float) -> Path:
    """One session of these sensors."""
    config = write_config(folder / "config.yaml", sensors)
    root = folder / "sessions"  # a folder with a config.yaml in it is a trace to roverd
    ran = recorder("run", config, "--root", root, "--name", "s", "--duration", seconds)
    assert (ran.code, ran.complaints) == (0, [])
    return root / "s"


WORLD = f"""version: 1
storage: {{min_free_gb: 0}}
calibration: {PROJECT / "configs/demo_calibration.yaml"}
sensors:
  camera: {{driver: camera, source: "sim:", width: 1280, height: 720, pace: max}}
  lidar: {{driver: ouster, source: "sim:", pace: max, mode: 512x10, beams: 64}}
  radar: {{driver: mmwave, source: "sim:", pace: max, iq_order: qqii}}
  imu: {{driver: xsens, source: "sim:", pace: max}}
"""


def record_world(folder: Path) -> None:
    """Two seconds of the simulated drive, with calibration and truth."""
    config = folder / "config.yaml"
    config.write_text(WORLD)
    ran = recorder("run", config, "--root", folder / "s", "--name", "world", "--duration", 2)
    assert ran.code == 0, ran.err


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the session of `record_world`."""
    made = share(tmp_path_factory, "world", record_world)
    return shutil.copytree(made / "s/world", tmp_path_factory.mktemp("world") / "s/world")


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four simulated sensors, two seconds."""
    made = share(tmp_path_factory, "simulated", lambda folder: record(folder, SIMULATED, 2))
    return shutil.copytree(made, tmp_path_factory.mktemp("simulated") / "made") / "sessions/s"


@pytest.fixture(scope="session")
def real(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real recordings of three sensors, and a simulated radar: their first twelve seconds."""
    sensors = REAL.replace("{data}", str(shared_data))
    sensors = sensors.replace("{lidar}", "OS-1-128_v2.3.0_1024x10")
    made = share(tmp_path_factory, "real", lambda folder: record(folder, sensors, 12))
    return shutil.copytree(made, tmp_path_factory.mktemp("real") / "made") / "sessions/s"


@pytest.fixture(scope="session")
def clip(simulated: Path) -> Path:
    """A part of the simulated session, cut out."""
    words = ("--from", 0.31, "--until", 1.72, "--out", simulated.parent.parent / "clips")
    ran = recorder("clip", simulated, *words, "--name", "clip")
    assert (ran.code, ran.complaints) == (0, [])
    return simulated.parent.parent / "clips/clip"


@pytest.fixture(scope="session", params=["simulated", "real", "clip"])
def session(request: pytest.FixtureRequest) -> Path:
    """Each of the three."""
    path: Path = request.getfixturevalue(request.param)
    return path
