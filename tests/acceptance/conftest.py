"""Sessions that several acceptance tests look at, each recorded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.command import PROJECT, Ran, here, recorder, write_config

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
    ran = recorder(
        "run", config, "--root", folder / "sessions", "--name", "real", "--format", "json"
    )
    return folder / "sessions/real", ran


@pytest.fixture(scope="session")
def replayed(recordings: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The session of `recordings`, every sensor of it played into another session."""
    folder = tmp_path_factory.mktemp("replayed")
    original = yaml.safe_load((recordings[0] / "config.yaml").read_text())
    sensors = {
        name: {"driver": entry["driver"], "source": f"session:{recordings[0]}", "pace": "max"}
        for name, entry in original["sensors"].items()
    }
    config = folder / "replay.yaml"
    config.write_text(
        yaml.safe_dump({"version": 1, "storage": {"min_free_gb": 0}, "sensors": sensors})
    )
    ran = here("run", config, "--root", folder, "--name", "again", "--format", "json")
    return folder / "again", ran


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A second of configs/demo.yaml, the simulated sensors in real time."""
    root = tmp_path_factory.mktemp("demo")
    config = PROJECT / "configs/demo.yaml"
    ran = recorder(
        "run", config, "--duration", 1, "--root", root, "--name", "demo", "--format", "json"
    )
    return root / "demo", ran


@pytest.fixture(scope="session")
def old_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished session; tests copy it to where it may come to harm."""
    root = tmp_path_factory.mktemp("old")
    config = write_config(root / "old.yaml", 'imu: {driver: xsens, source: "sim:", pace: max}')
    ran = here("run", config, "--root", root, "--name", "old", "--duration", 1)
    assert ran.code == 0, ran.err
    return root / "old"
