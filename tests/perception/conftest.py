"""Descriptions of lidars, for tests of their rays, points and sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perception.test_lidar import NAMES, default_metadata


@pytest.fixture(params=["default", *NAMES])
def metadata(request: pytest.FixtureRequest) -> str:
    if request.param == "default":
        return default_metadata()
    folder: Path = request.getfixturevalue("shared_data")
    return (folder / "ouster" / f"{request.param}.json").read_text()
