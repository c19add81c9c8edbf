"""What the tests of the simulated data plane share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.drivers.kit.simulation import Plane


@pytest.fixture
def make_plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Plane]]:
    """Makes data planes by seed and bytes of the buffer; ended with the test."""
    planes: list[Plane] = []

    def make(seed: int, buffer_bytes: int = 20_000) -> Plane:
        plane = Plane(tmp_path / str(len(planes)), seed, monkeypatch, buffer_bytes)
        planes.append(plane)
        return plane

    yield make
    for plane in planes:
        plane.end()
