"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from drivers._devices.headless import provide_library

provide_library("libGL.so.1")  # before a test module imports ouster-sdk: see there

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"

# Derandomized: a failure seen once is seen by everybody, and no run depends on luck.
settings.register_profile(
    "project",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("project")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings beside the project; skips where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs ../shared/data (real recordings), which is not beside this clone")
    return SHARED_DATA
