"""Messages name the place, once, and show what the user typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recorder.cli import main
from recorder.cli.finalize import _quote_option
from recorder.common.module_launcher import module_command

HEAD = "version: 1\nsensors:\n  imu: {driver: xsens, "


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("rate: 1e8", "sensors.imu.rate: 1e8 is above the maximum of 2000"),
        ("rate: 100000000", "sensors.imu.rate: 100000000 is above the maximum of 2000"),
        ("rate: 0x7FFFFFF", "sensors.imu.rate: 0x7FFFFFF is above the maximum of 2000"),
        ("min_rate: -1", "sensors.imu.min_rate: -1 is below the minimum of 0"),
        ("scene: 1.50", "sensors.imu.scene: needs a text, not float (1.50)"),
    ],
)
def test_a_number_is_shown_as_it_was_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f'{HEAD}source: "sim:", {typed}}}\n')
    assert main(["run", str(config)]) == 2
    assert capsys.readouterr().err == f"recorder run: {config}:3: {said}\n"


def test_an_option_is_shown_as_it_was_typed() -> None:
    options = ["edgefirst.jpeg_quality=0x65", "ncore.store=x"]
    text = "edgefirst.jpeg_quality: 101 is above the maximum of 100"
    shown = "--option edgefirst.jpeg_quality=0x65: 101 is above the maximum of 100"
    assert _quote_option(text, options) == shown
    assert _quote_option("ncore.storage: unknown key", options) == "ncore.storage: unknown key"


def test_an_emulation_that_cannot_be_names_file_line_and_key(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    (tmp_path / "empty.bin").touch()
    config.write_text(f'{HEAD}source: "file:empty.bin"}}\n')
    assert main(["emulate", str(config)]) == 2
    said = capfd.readouterr().err
    assert said.startswith(f"recorder emulate: {config}:3: sensors.imu.source: ")
    assert said.count("\n") == 1 and said.count("empty.bin") == 1
    config.write_text(f'{HEAD}source: "sim:"}}\n')
    assert main(["emulate", str(config), "--fault", "gps.loss=0.1"]) == 2
    assert capfd.readouterr().err == (
        "recorder emulate: --fault: 'gps.loss=0.1': the config has no sensor 'gps'\n"
    )


def test_an_emulated_device_has_no_error_of_its_clock(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f'{HEAD}source: "sim:", clock: {{offset_ms: 5}}}}\n')
    assert main(["emulate", str(config)]) == 2
    said = capfd.readouterr().err
    assert said.startswith(f"recorder emulate: {config}:3: sensors.imu.clock: an emulated device ")


@pytest.mark.parametrize(
    "source",
    ["vrs:empty.vrs", pytest.param("session:nothing", marks=pytest.mark.campaign(weight=1))],
)
def test_an_address_stands_once_in_a_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], source: str
) -> None:
    (tmp_path / "empty.vrs").touch()
    (tmp_path / "nothing").mkdir()
    config = tmp_path / "c.yaml"
    config.write_text(f'{HEAD}source: "{source}"}}\n')
    assert main(["run", str(config), "--root", str(tmp_path / "out")]) == 2
    said = capfd.readouterr().err
    assert said.count(source.partition(":")[2]) == 1, said


def full(*command: str, folder: Path) -> str:
    """What a command says where no file may grow: such an error names no file."""
    limited = f"ulimit -f 0; exec {sys.executable} -P -m " + " ".join(command)
    done = subprocess.run(
        ["bash", "-c", limited], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_a_write_that_fails_names_the_session(tmp_path: Path) -> None:
    (tmp_path / "s/_recorder").mkdir(parents=True)
    assert module_command("x")[1:] == ["-P", "-m", "x"]
    said = full("recorder.session.checksums", str(tmp_path / "s"), folder=tmp_path)
    assert said == f"{tmp_path}/s: File too large\n"
