"""The vehicle whose sessions are proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrity.vehicle import Vehicle


@pytest.fixture
def vehicle(tmp_path: Path) -> Vehicle:
    return Vehicle.make(tmp_path)
