"""A daemon whose writer and drivers are made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recording.daemon.fakes import CONFIG, Vehicle, vehicle


@pytest.fixture
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Vehicle]:
    """An open daemon; an indirect parameter is its config."""
    with vehicle(tmp_path, getattr(request, "param", CONFIG)) as made:
        made.daemon()
        yield made


@pytest.fixture
def recording(rig: Vehicle) -> Vehicle:
    """A daemon that has recorded for two seconds."""
    assert rig.ask("start")["ok"]
    rig.run(2)
    return rig
