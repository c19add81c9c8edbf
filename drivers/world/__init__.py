"""The common world of all simulated sensors: a vehicle's drive, targets, and the ground.

World frame: x east, y north, z up.  Rig frame: x forward, y left, z up, origin on the ground below
the middle of the rear axle.  World time 0 is the start of the source; the world time of a recorded
sample is ``t_mono`` minus the session's ``start_mono_ns``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.world.ground import Ground
from drivers.world.path import Path
from drivers.world.scenes import SCENES
from drivers.world.targets import Fleet, Target, TargetStates
from drivers.world.trajectory import Motion, Ride, Trajectory
from recorder.config.options import Option, OptionTable

__all__ = ["SCENES", "WORLD_OPTIONS", "Ground", "Motion", "Path", "Target", "TargetStates",
           "Trajectory", "World"]  # fmt: skip

GRAVITY_M_S2 = 9.80665

SCENE_OPTION = Option("str", "drive", "sim: scene of the simulated world", choices=tuple(SCENES))
"""The option ``scene`` of every simulated sensor."""

ROAD_OPTION = Option(
    "str",
    "flat",
    "sim: the road; rough: slopes and bumps pitch and roll the vehicle",
    choices=("flat", "rough"),
)
"""The option ``road`` of every simulated sensor."""

WORLD_OPTIONS: Final[OptionTable] = {"scene": SCENE_OPTION, "road": ROAD_OPTION}
"""The options of every simulated sensor that say which world it sees, besides ``seed``."""

SEED_OPTION = Option("int", 0, "sim: same seed, same data", minimum=0, maximum=2**63 - 1)
"""The option ``seed`` of simulated cameras and IMUs."""


def world_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what describes the world of a sensor's options: scene, seed, a road that is not flat.

    Args:
        options: the sensor's, where an absent option has its default.
    """
    scene, road = (options.get(name) or o.default for name, o in WORLD_OPTIONS.items())
    known = {"scene": scene, "seed": options.get("seed") or 0}
    return known if road == ROAD_OPTION.default else known | {"road": road}


class World:
    """A scene, identical for the same seed, with exact states at any time.

    >>> world = World("drive", seed=0)
    >>> position_m, rotation = world.trajectory.pose(np.array([1.5]))     # rig to world
    >>> centre_m, yaw_rad = world.targets[0].pose(np.array([1.5]))
    >>> world.states(np.array([1.5])).centre_m                            # of all targets

    Args:
        scene: ``drive`` (everything), ``winding`` (left and right turns without a stop),
            ``straight`` (constant speed) or ``parked`` (the vehicle stands still).
        seed: of the ground, of a rough road, and of the objects beside the road; the scene defines
            the drive and the traffic.
        road: ``flat``, or ``rough``: slopes and bumps pitch, roll and lift the vehicle.

    Attributes:
        trajectory: the vehicle's motion.
        targets: all targets, in the order of `states`.
        ground: the plane z = 0.
    """

    def __init__(self, scene: str = "drive", seed: int = 0, road: str = "flat") -> None:
        made = SCENES[scene](seed)
        self.scene, self.seed = scene, seed
        self.trajectory = made.trajectory
        self.trajectory.ride = Ride(seed) if road == "rough" else None
        shapes = [shape for shape, _ in made.placed]
        courses = [course for _, course in made.placed]
        self._fleet = Fleet(self.trajectory, shapes, courses)
        counts: dict[str, int] = {}
        targets = []
        for number, (shape, course) in enumerate(made.placed):
            place = counts[shape.kind] = counts.get(shape.kind, 0) + 1
            standing = not (course.speed or course.follows or course.circle_m)
            track = f"{shape.kind}_{place:02d}"
            parts = asdict(shape)
            targets.append(
                Target(**parts, track=track, number=number, standing=standing, fleet=self._fleet)
            )
        self.targets: tuple[Target, ...] = tuple(targets)
        self.sizes_m = np.array([target.size_m for target in targets])

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> World:
        """Return the world of a sensor's options `WORLD_OPTIONS` and ``seed``."""
        return cls(**world_settings(options))

    @cached_property
    def ground(self) -> Ground:
        """The plane z = 0; made at the first access."""
        return _ground(self.scene, self.seed)

    def states(
        self, t_s: npt.ArrayLike, which: Sequence[int] | slice | None = None
    ) -> TargetStates:
        """Return states of targets (all, or `which`) at the times [n], arrays [m, n, ...]."""
        return self._fleet.states(np.asarray(t_s, np.float64), which)


@lru_cache(maxsize=8)
def _ground(scene: str, seed: int) -> Ground:
    made = SCENES[scene](seed)
    return Ground(made.trajectory.path, made.tile_m, seed)
