"""Fixtures of the tests of faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.loop_device import LoopDevice, refusal


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    """A disk that can fail below its file system; skips where there can be none."""
    if (reason := refusal()) is not None:
        pytest.skip(reason)
    with LoopDevice(tmp_path) as made:
        yield made
