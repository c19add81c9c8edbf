"""The Containerfile: its parts exist, and it builds and records where a builder is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
TEXT = (PROJECT / "Containerfile").read_text()
CONFIG = """\
version: 1
session: {root: /var/lib/recorder/sessions}
storage: {min_free_gb: 0.1}
sensors:
  imu: {driver: xsens, source: "sim:"}
"""


def test_it_installs_what_a_vehicle_gets() -> None:
    locks = re.findall(r"--requirement (\S+)", TEXT)
    assert locks == ["requirements/vehicle.lock", "requirements/live.lock"]
    assert all((PROJECT / lock).is_file() for lock in locks)
    assert "--require-hashes" in TEXT and "USER recorder" in TEXT
    for ignored in (".git", ".venv*", "sessions"):
        assert ignored in (PROJECT / ".containerignore").read_text().split()


def test_it_builds_and_records(tmp_path: Path) -> None:
    builder = shutil.which("podman") or shutil.which("docker")
    if builder is None or subprocess.run([builder, "info"], capture_output=True).returncode:
        pytest.skip("no podman and no Docker engine: the image is not built")
    subprocess.run([builder, "build", "--tag", "recorder-test", "."], cwd=PROJECT, check=True)
    (tmp_path / "rig.yaml").write_text(CONFIG)
    mount = ["-v", f"{tmp_path}/rig.yaml:/rig.yaml:ro"]
    command = ["run", "/rig.yaml", "--duration", "1", "--format", "json"]
    done = subprocess.run(
        [builder, "run", "--rm", *mount, "recorder-test", *command],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["streams"]["imu"]["samples"] > 0
