"""A `recorder serve` of a test module's config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recording.daemon.served import Served


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A daemon that is not started yet; an indirect parameter is its config."""
    made = Served(tmp_path, getattr(request, "param", None) or request.module.CONFIG)
    try:
        yield made
    finally:
        made.close()
