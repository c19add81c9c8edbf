"""From a config to a session's plan: one way for the foreground and for the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.common.errors import ConfigError
from recorder.recording.sessions.session_plan import Planner, plan_session, render_config_name
from recorder.recording.sessions.state_machine import DesiredState
from tests.config.configs import load
from tests.recording.daemon.fakes import CONFIG

NOW_NS = 1_714_564_800_000_000_000
CONFIGS = [
    CONFIG,
    CONFIG.replace("name: drive", 'name: "{metadata.vehicle}_{utc:%H%M}"'),
    CONFIG + "record_format: {streams: [cam]}\n",
    CONFIG + "record_format: {enabled: false}\ncalibration: cal.yaml\n",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cal.yaml").write_text("version: 1\n")
    return tmp_path


@pytest.mark.parametrize("text", CONFIGS)
def test_the_foreground_and_the_daemon_plan_alike(folder: Path, text: str) -> None:
    config = load(folder, text)
    name = render_config_name(config, NOW_NS, config.session.metadata)
    plan = plan_session(config, name, exact_name=False)
    assert Planner(config, lambda: NOW_NS).plan(DesiredState()) == (name, plan)
    assert plan.config_text == config.document.masked_text
    assert plan.record_format == {0: [], 1: [], 2: ["cam"], 3: None}[CONFIGS.index(text)]
    assert plan.calibration_text == ("version: 1\n" if "calibration" in text else None)


def test_what_a_user_asks_for_comes_on_top(folder: Path) -> None:
    config = load(folder, CONFIG)
    desired = DesiredState(name="tour", exact=True, metadata={"driver": "ada"})
    name, plan = Planner(config, lambda: NOW_NS).plan(desired)
    expected = plan_session(config, "tour", exact_name=True)
    assert name == "tour"
    expected.metadata = {"vehicle": "rig-1", "driver": "ada"}
    assert plan == expected


def test_a_calibration_that_cannot_be_read_names_its_key(folder: Path) -> None:
    config = load(folder, CONFIGS[3])
    (folder / "cal.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="calibration: cannot be read") as caught:
        plan_session(config, "tour", exact_name=False)
    assert caught.value.line is not None
