"""What lies in the working directory is not imported, but for a driver that the config names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recorder.common.module_launcher import driver_module_command, module_command
from tests.acceptance.command import DEADLINE_S, RECORDER

TRAPS = ("recorder", "drivers", "numpy", "zmq", "json", "yaml", "my_sensors/recorder")
DRIVER = """
import helper                                    # beside the package
from my_sensors import scale                     # in it
import numpy as np
from drivers.kit.driver import Driver, EndOfSource, Sample
from drivers.kit.runner import main
from recorder.codecs.streams import ChannelSpec, StreamSpec

class Counting(Driver):
    schemes = {"count": "numbers"}

    def open(self):
        self.n = 0
        return [StreamSpec(self.sensor.name, (ChannelSpec("n", "raw", "u4"),), finite=True)]

    def read(self):
        if self.n == 20:
            raise EndOfSource
        self.n += 1
        values = np.array([self.n * scale.SCALE * helper.ONE], "<u4")
        return Sample(self.sensor.name, np.array([self.n * 10**7], np.int64), {"n": values})

    def close(self):
        pass

if __name__ == "__main__":
    main(Counting)
"""
CONFIG = """
version: 1
session: {root: out, name: a}
storage: {min_free_gb: 0}
sensors:
  own: {driver: my_sensors.counting, source: "count:", pace: max}
  imu: {driver: xsens, source: "sim:", pace: max}
finalize: [vrs]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "my_sensors"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "counting.py").write_text(DRIVER)
    (package / "scale.py").write_text("SCALE = 3")
    (tmp_path / "helper.py").write_text("ONE = 1")
    (tmp_path / "rig.yaml").write_text(CONFIG)
    for trap in TRAPS:
        (tmp_path / trap).mkdir()
        (tmp_path / trap / "__init__.py").write_text("raise SystemExit(f'imported {__file__}')")
    return tmp_path


def recorder(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [str(RECORDER), *words], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0 and "imported" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.campaign
def test_a_session_is_recorded_beside_folders_named_as_modules(folder: Path) -> None:
    result = json.loads(
        recorder(folder, "run", "rig.yaml", "--duration", "0.3", "--format", "json")
    )
    assert result["streams"]["own"]["samples"] == 20 and result["streams"]["imu"]["samples"] == 30
    assert [archive["archive"] for archive in result["archives"]] == ["vrs"]
    numbers = (folder / "out/a/own/n").read_bytes()
    assert numbers[:8] == (3).to_bytes(4, "little") + (6).to_bytes(4, "little")
    assert (folder / "out/a/_recorder/checksums.csv").exists()
    assert (folder / "out/a/_pose").exists()  # what the simulation knows


@pytest.mark.campaign
def test_emulation_too(folder: Path) -> None:
    (folder / "imu.yaml").write_text(
        'version: 1\nsensors: {imu: {driver: xsens, source: "sim:"}}\n'
    )
    with subprocess.Popen(
        [str(RECORDER), "emulate", "imu.yaml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "emulating imu" in process.stderr.readline()
        process.terminate()
        assert "serial:" in process.stdout.read()


def test_a_module_of_ours_is_never_looked_for_there() -> None:
    for driver in ("drivers.camera", "recorder.recording.writer"):
        assert driver_module_command(driver, "run") == module_command(driver, "run")
        assert module_command(driver)[:3] == [sys.executable, "-P", "-m"]


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("my_sensors.missing", 1, "No module named my_sensors.missing"),
        ("nowhere.driver", 1, "No module named nowhere.driver"),
        ("my_sensors.broken", 1, "No module named 'something_else'"),
    ],
)
def test_what_cannot_be_found_is_named(folder: Path, module: str, code: int, said: str) -> None:
    (folder / "my_sensors/broken.py").write_text("import something_else")
    command = driver_module_command(module, "schema")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code and done.stderr.strip().endswith(said)


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = ["sh", "-c", shell, "sh", str(gone), *driver_module_command("json.tool", "--help")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
