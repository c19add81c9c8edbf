"""configs/vehicle.yaml, which is what a vehicle begins with: all that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drivers.camera.driver import CameraDriver
from drivers.can.driver import CanDriver
from drivers.kit.driver import Driver
from drivers.kit.runner import make_driver
from drivers.mmwave.driver import MmwaveDriver
from drivers.ouster.driver import OusterDriver
from drivers.udp.driver import UdpDriver
from drivers.xsens.driver import XsensDriver
from recorder.config.driver_schema import DriverSchema
from recorder.config.loading import Config, load_config

CONFIG = Path(__file__).parents[2] / "configs" / "vehicle.yaml"
RULES = CONFIG.parents[1] / "systemd" / "60-recorder.rules"
DRIVERS: dict[str, type[Driver]] = {
    "camera": CameraDriver,
    "can": CanDriver,
    "ouster": OusterDriver,
    "mmwave": MmwaveDriver,
    "udp": UdpDriver,
    "xsens": XsensDriver,
}
_OPTION = re.compile(r"^( *)# ( *[a-z_]+:( .*)?)$", re.MULTILINE)


def loaded(path: Path) -> Config:
    return load_config(path, lambda name: DriverSchema.of(name, DRIVERS[name]))


def test_it_loads_as_it_stands() -> None:
    config = loaded(CONFIG)
    sources = {sensor.name: sensor.source for sensor in config.sensors}
    assert sources == {
        "camera": "v4l2:/dev/recorder/camera-SERIAL",
        "lidar": "ouster://192.168.1.20",
        "radar": "dca1000://192.168.33.180",
        "imu": "serial:/dev/recorder/imu",
    }
    assert all(sensor.live for sensor in config.sensors)
    for sensor in config.sensors:
        driver = make_driver(DRIVERS[sensor.driver], sensor.for_driver())
        assert not driver.played


def test_all_that_is_commented_out_exists(tmp_path: Path) -> None:
    text, count = _OPTION.subn(r"\1\2", CONFIG.read_text())
    assert count > 30
    path = tmp_path / "vehicle.yaml"
    path.write_text(text)
    (tmp_path / "calibration.yaml").touch()
    (tmp_path / "vehicle.dbc").touch()
    (tmp_path / "keys").mkdir()
    config = loaded(path)
    assert config.sensor("rear").scheme == "http"
    assert config.sensor("front").address == "192.168.1.100:2368"
    assert config.sensor("bus").address == "can0"
    assert config.metrics.port == 9464
    assert config.live is not None and config.live.bind == "127.0.0.1"
    assert config.sensor("camera").options["controls"]["gain"] == 20
    for sensor in config.sensors:
        written = config.document.values["sensors"][sensor.name]
        make_driver(DRIVERS[sensor.driver], sensor.for_driver())
        for name, option in DRIVERS[sensor.driver].options.items():
            # What is shown as a default is one.
            shown = re.search(rf"^ *# {name}: ([\w.\"]+)  ", CONFIG.read_text(), re.MULTILINE)
            if shown and name in written and option.default is not None:
                assert written[name] == option.default, f"{sensor.name}.{name}"


@pytest.mark.parametrize("name", ["imu", "radar-cli", "camera-"])
def test_udev_makes_the_names_that_it_uses(name: str) -> None:
    assert f"/dev/recorder/{name}" in CONFIG.read_text()
    assert f'SYMLINK+="recorder/{name}' in RULES.read_text()
