"""What the README and the guides show works as it is printed there."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import reduce
from operator import xor
from pathlib import Path

import cv2
import numpy as np
import pytest

from recorder.common.errors import ConfigError
from recorder.config.loading import load_config
from recorder.recording.supervisor.driver_registry import driver_schema
from recorder.session.reader import Session
from tests.acceptance.command import DEADLINE_S, PROJECT, RECORDER, here


def block(document: str, language: str, holds: str) -> str:
    """The document's code block of that language with that text in it."""
    text = (PROJECT / document).read_text()
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (found,) = [text for text in blocks if holds in text]
    return str(found)


def sentence(body: str) -> str:
    return f"${body}*{reduce(xor, body.encode(), 0):02X}\r\n"


def test_the_documented_driver_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "my_sensors"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nmea.py").write_text(block("docs/drivers.md", "python", "NmeaDriver"))
    config = block("docs/drivers.md", "yaml", "my_sensors.nmea")
    (tmp_path / "gnss.yaml").write_text(config.replace("rate: 1", "rate: 1, pace: max"))
    fixes = [
        sentence(f"GNGGA,23595{s}.50,4807.{s}38,N,01131.000,W,1,08,0.9,545.4,M,46.9,M,,")
        for s in range(8)
    ]
    midnight = sentence("GNGGA,000000.50,4807.938,S,01131.000,E,4,08,0.9,545.9,M,46.9,M,,")
    broken = fixes[5].replace(",N,", ",S,")
    other = sentence("GPRMC,235959,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W")
    log = [*fixes[:3], other, *fixes[3:], broken, midnight]
    (tmp_path / "drive.nmea").write_text("".join(log))

    monkeypatch.chdir(tmp_path)
    ran = here("run", "gnss.yaml", "--root", "out", "--name", "a")
    assert ran.code == 3, ran.err  # the broken sentence is a counted loss
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


def test_the_documented_config_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "rig.yaml"
    path.write_text(block("docs/configuration.md", "yaml", "rig-1"))
    with pytest.raises(ConfigError, match=r"sensors\.camera\.source: no such file"):
        load_config(path, driver_schema)
    for name in ("drive.mp4", "sweeps.pcap", "sweeps.json", "adc_data.bin", "mti.bin"):
        (tmp_path / name).touch()
    config = load_config(path, driver_schema)
    assert [entry.name for entry in config.sensors] == ["camera", "lidar", "radar", "imu"]
    assert not config.find_daemon_settings()


def test_every_documented_verb_exists() -> None:
    text = (PROJECT / "docs/commands.md").read_text()
    table = text[text.index("| verb |") : text.index("All verbs that print results")]
    first = [line.split(" | ")[0] for line in table.splitlines()]
    verbs = {verb for cell in first for verb in re.findall(r"`([a-z]+)[ `]", cell)} - {"verb"}
    listed = set(re.findall(r"^    ([a-z]+)(?: |$)", here("--help").out, re.MULTILINE))
    assert verbs == listed


def test_the_readme_records_a_file_as_pasted(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/recorder").symlink_to(RECORDER)
    video = cv2.VideoWriter(
        str(tmp_path / "drive.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 30, (64, 48)
    )
    for shade in range(0, 200, 20):
        video.write(np.full((48, 64, 3), shade, np.uint8))
    video.release()
    pasted = block("README.md", "sh", "drive.mp4")
    done = subprocess.run(
        ["bash", "-c", pasted], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "sessions").glob("[!.]*")
    with Session(path) as session:
        assert {name: len(stream) for name, stream in session.streams.items()} == {"camera": 10}


def test_the_first_config_of_the_guide_is_that_of_the_readme() -> None:
    config = block("docs/getting-started.md", "yaml", "drive.mp4")
    assert config in block("README.md", "sh", "drive.mp4")


@pytest.mark.campaign(weight=10)
def test_the_documented_emulation_as_pasted(tmp_path: Path) -> None:
    """Pasted as printed, also if an emulation that was killed has left its file."""
    pasted = block("docs/emulation.md", "sh", "--duration 10").replace(
        "--duration 10", "--duration 1"
    )
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
        timeout=DEADLINE_S,
        check=False,
    )
    assert "emulating camera, lidar, radar, imu" in done.stderr, done.stderr
    assert not (tmp_path / "rig.yaml").exists()
    (path,) = (tmp_path / "demo").iterdir()
    with Session(path) as session:
        assert {"camera", "lidar", "radar", "imu"} <= session.streams.keys(), done.stderr
        # A busy machine opens a device late.
        assert all(len(stream) for stream in session.streams.values())
