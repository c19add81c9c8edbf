"""Worlds made for a test: a straight road, one speed, and the targets that the test wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from drivers.world import World
from drivers.world.path import Path, Straight
from drivers.world.scenes import SCENES, Scene
from drivers.world.targets import Course, Shape
from drivers.world.trajectory import Phase, Trajectory


def target(
    kind: str = "car",
    size_m: tuple[float, float, float] = (4.0, 2.0, 1.5),
    rcs_m2: float = 10.0,
    reflectivity: float = 0.5,
    **course: Any,
) -> tuple[Shape, Course]:
    """A target on the road; `course` as of `Course`, with `start` in m ahead of the rear axle."""
    return Shape(kind, size_m, reflectivity, rcs_m2, (9, 9, 9)), Course(**course)


def world_of(
    monkeypatch: pytest.MonkeyPatch, placed: Sequence[tuple[Shape, Course]], speed: float = 0.0
) -> World:
    """A world in which the vehicle drives east at `speed` m/s from (0, 0)."""

    def scene(seed: int) -> Scene:
        trajectory = Trajectory(
            Path((0.0, 0.0), (Straight(512.0),)), 0.0, (Phase(8, speed, speed),)
        )
        return Scene(trajectory, (0.0, -100.0), list(placed))

    monkeypatch.setitem(SCENES, "lone", scene)
    return World("lone", 0)
