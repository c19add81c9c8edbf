"""Sessions that several acceptance tests look at, each recorded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.command import PROJECT, Ran, here, replay

Recorded = tuple[Path, Ran]


def recordings_config(shared_data: Path, **sensor: Any) -> dict[str, Any]:
    """configs/recordings.yaml with absolute paths, and `sensor` added to each sensor."""
    text = (PROJECT / "configs/recordings.yaml").read_text()
    config: dict[str, Any] = yaml.safe_load(text.replace("../../shared/data", str(shared_data)))
    for entry in config["sensors"].values():
        entry.update(sensor)
    config["storage"] = {"min_free_gb": 0}
    return config


@pytest.fixture(scope="session")
def recordings(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """All of ../shared/data as one session, played as fast as it goes."""
    folder = tmp_path_factory.mktemp("recordings")
    config = folder / "recordings.yaml"
    config.write_text(yaml.safe_dump(recordings_config(shared_data, pace="max")))
    where = ("--root", folder / "sessions", "--name", "real", "--format", "json")
    ran = here("run", config, *where)
    return folder / "sessions/real", ran


@pytest.fixture(scope="session")
def replayed(recordings: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The session of `recordings`, a sensor of each kind of it played into another session."""
    folder = tmp_path_factory.mktemp("replayed")
    original = yaml.safe_load((recordings[0] / "config.yaml").read_text())
    kinds = ("camera", "lidar_dual", "imu_g710_1")
    drivers = {name: original["sensors"][name]["driver"] for name in kinds}
    ran = replay(recordings[0], drivers, folder)
    return folder / "again", ran


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A second of configs/demo.yaml, the simulated sensors in real time."""
    root = tmp_path_factory.mktemp("demo")
    config = PROJECT / "configs/demo.yaml"
    where = ("--duration", 1, "--root", root, "--name", "demo", "--format", "json")
    ran = here("run", config, *where, labels=True)
    return root / "demo", ran
