"""The page of each sensor: its length, and the config that tries the driver without a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.config.driver_schema import DriverSchema
from recorder.config.loading import load_config
from recorder.recording.supervisor.driver_registry import available_drivers
from tests.drivers.test_every_driver import driver_class

ROOT = Path(__file__).parents[2] / "drivers"


def page(driver: str) -> Path:
    (found,) = [*ROOT.glob(f"README-{driver}.md"), *ROOT.glob(f"{driver}/README.md")]
    return found


@pytest.mark.parametrize("driver", available_drivers())
def test_a_page_is_short_and_its_config_loads(driver: str, tmp_path: Path) -> None:
    text = page(driver).read_text()
    assert len(text.splitlines()) <= 40
    assert "## Try it without the device" in text and "No test had" in text
    config = tmp_path / "rig.yaml"
    config.write_text(text.partition("<<'EOF'\n")[2].partition("EOF\n")[0])
    schema = lambda name: DriverSchema.of(name, driver_class(name))  # noqa: E731
    (sensor,) = load_config(config, schema).sensors
    assert (sensor.driver, sensor.scheme) == (driver, "sim")
