"""Sessions that the tests of the API read, made once for a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import recorder
from tests.api.rig import drive


@pytest.fixture(scope="session")
def drive_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated drive; it must not be written to."""
    return drive(tmp_path_factory.mktemp("api") / "drive")


@pytest.fixture
def session(drive_path: Path) -> Iterator[recorder.Session]:
    with recorder.open(drive_path) as opened:
        yield opened
