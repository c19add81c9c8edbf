"""What the README shows works as it stands there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import reduce
from operator import xor
from pathlib import Path

import numpy as np
import pytest

from recorder.contract.config.loading import load_config
from recorder.contract.errors import ConfigError
from recorder.daemon.driver_registry import driver_schema
from recorder.session.reader import Session
from tests.acceptance.command import RECORDER

PROJECT = Path(__file__).resolve().parents[2]
README = (PROJECT / "README.md").read_text()


def block(language: str, holds: str) -> str:
    """The README's code block of that language with that text in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [text for text in blocks if holds in text]
    return str(found)


def sentence(body: str) -> str:
    return f"${body}*{reduce(xor, body.encode(), 0):02X}\r\n"


def test_the_driver_in_the_readme_records(tmp_path: Path) -> None:
    package = tmp_path / "my_sensors"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nmea.py").write_text(block("python", "NmeaDriver"))
    config = block("yaml", "my_sensors.nmea").replace("rate: 1", "rate: 1, pace: max")
    (tmp_path / "gnss.yaml").write_text(config)
    fixes = [
        sentence(f"GNGGA,23595{s}.50,4807.{s}38,N,01131.000,W,1,08,0.9,545.4,M,46.9,M,,")
        for s in range(8)
    ]
    midnight = sentence("GNGGA,000000.50,4807.938,S,01131.000,E,4,08,0.9,545.9,M,46.9,M,,")
    broken = fixes[5].replace(",N,", ",S,")
    other = sentence("GPRMC,235959,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W")
    log = [*fixes[:3], other, *fixes[3:], broken, midnight]
    (tmp_path / "drive.nmea").write_text("".join(log))

    done = subprocess.run(
        [RECORDER, "run", "gnss.yaml", "--root", "out", "--name", "a"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 3, done.stderr  # the broken sentence is a counted loss
    with Session(tmp_path / "out" / "a") as session:
        stream = session.streams["gnss"]
        assert len(stream) == 9
        data = stream.read(0, 9)
        steps = np.diff(stream.t_ns)
        lost = [e for e in session.events() if e["type"] == "lost"]
    assert [(e["cause"], e["count"], e["first_seq"]) for e in lost] == [("corrupt", 1, 8)]
    np.testing.assert_allclose(data["pos"][0], [48 + 7.038 / 60, -(11 + 31 / 60), 545.4])
    np.testing.assert_allclose(data["pos"][8], [-(48 + 7.938 / 60), 11 + 31 / 60, 545.9])
    assert data["quality"].tolist() == [1] * 8 + [4]
    assert steps.tolist() == [1_000_000_000] * 7 + [3_000_000_000]


def test_the_config_in_the_readme_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "rig.yaml"
    path.write_text(block("yaml", "rig-1"))
    with pytest.raises(ConfigError, match=r"sensors\.camera\.source: no such file"):
        load_config(path, driver_schema)
    for name in ("drive.mp4", "sweeps.pcap", "sweeps.json", "adc_data.bin", "mti.bin"):
        (tmp_path / name).touch()
    config = load_config(path, driver_schema)
    assert [entry.name for entry in config.sensors] == ["camera", "lidar", "radar", "imu"]
    assert not config.of_daemon()


def test_every_verb_of_the_readme_exists() -> None:
    table = README[README.index("| verb |") : README.index("All that print results")]
    first = [line.split(" | ")[0] for line in table.splitlines()]
    verbs = {verb for cell in first for verb in re.findall(r"`([a-z]+)[ `]", cell)} - {"verb"}
    done = subprocess.run(
        [sys.executable, "-m", "recorder", "--help"], capture_output=True, text=True, check=True
    )
    listed = set(re.findall(r"^    ([a-z]+)(?: |$)", done.stdout, re.MULTILINE))
    assert verbs == listed


def test_a_driver_prints_its_options() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drivers.camera", "schema"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"width", "height", "fps", "quality"} <= json.loads(done.stdout)["options"].keys()


def test_the_emulation_in_the_readme_as_pasted(tmp_path: Path) -> None:
    """Pasted as it stands, also where an emulation that was killed has left its file."""
    pasted = block("sh", "recorder emulate").replace("--duration 10", "--duration 3")
    shutil.copytree(PROJECT / "configs", tmp_path / "configs")
    config = tmp_path / "configs/demo.yaml"
    config.write_text(config.read_text().replace("finalize: [", "finalize: []  # ["))
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/recorder").symlink_to(RECORDER)
    (tmp_path / "rig.yaml").write_text("version: 1\nsensors: {}\n")
    done = subprocess.run(
        ["bash", "-c", f"{pasted}\nwait"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "emulating camera, lidar, radar, imu" in done.stderr, done.stderr
    assert not (tmp_path / "rig.yaml").exists()
    (path,) = (tmp_path / "demo").iterdir()
    with Session(path) as session:
        assert {"camera", "lidar", "radar", "imu"} <= session.streams.keys(), done.stderr
        assert all(len(stream) > 5 for stream in session.streams.values())
