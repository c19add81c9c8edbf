"""The scenes: roads, drives, and objects beside and on the road."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from drivers.world.ground import PERIOD_M
from drivers.world.noise import uniform
from drivers.world.path import Corner, Path, Straight
from drivers.world.targets import Course, Shape
from drivers.world.trajectory import Phase, Trajectory

CRUISE, SLOW = 9.0, 6.0  # m/s
_SIZE_M = 20.0  # size of the corners
_TOWN_TILE_M = (-32.0, -42.0)

Placed = list[tuple[Shape, Course]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A world's parts.

    Attributes:
        trajectory: the vehicle's, with its road.
        tile_m: corner of the ground's tile with the lowest x and y.
        placed: the targets.
    """

    trajectory: Trajectory
    tile_m: tuple[float, float]
    placed: Placed


def drive(seed: int) -> Scene:
    """Make repeated rounds in a town: five left turns, a right one, a stop, and traffic."""
    path = _town()
    lap = path.length
    before = (
        Phase(16.25 / CRUISE, CRUISE, CRUISE),
        Phase(2.5, CRUISE, SLOW),  # until the first corner
    )
    corner = Corner(_SIZE_M).length
    slow = 5 * corner + 3 * 20.0 + 40.0
    stop = (
        Phase(slow / SLOW, SLOW, SLOW),
        Phase(2.5, SLOW, CRUISE),
        Phase(4.0, CRUISE, 0.0),
        Phase(4.0, 0.0, 0.0),
        Phase(4.0, 0.0, CRUISE),
        Phase(2.5, CRUISE, SLOW),
        Phase((80.0 - 73.5 + corner) / SLOW, SLOW, SLOW),
        Phase(2.5, SLOW, CRUISE),
    )
    rest = lap - sum_in_order(phase.distance for phase in before + stop)
    phases = (*before, *stop, Phase(rest / CRUISE, CRUISE, CRUISE))
    placed = _followers(path) + _street(path, seed)
    return Scene(Trajectory(path, 0.0, phases), _TOWN_TILE_M, placed)


def winding(seed: int) -> Scene:
    """Make an endless road of left and right turns, without a stop; the objects repeat."""
    left, right = Corner(_SIZE_M), Corner(_SIZE_M, left=False)
    path = Path(
        (0.0, 0.0),
        (
            Straight(45.0), left, Straight(60.0), right, Straight(54.8), right, Straight(60.0),
            left, Straight(25.0),
        ),
    )  # fmt: skip
    turns = 4 * left.length + 2 * 60.0 + 54.8
    phases = (
        Phase((45.0 - 18.75) / CRUISE, CRUISE, CRUISE),
        Phase(2.5, CRUISE, SLOW),  # until the first corner
        Phase(turns / SLOW, SLOW, SLOW),
        Phase(2.5, SLOW, CRUISE),
        Phase((25.0 - 18.75) / CRUISE, CRUISE, CRUISE),
    )
    placed = _followers(path) + _street(path, seed)
    return Scene(Trajectory(path, 0.0, phases), (0.0, -PERIOD_M / 4), placed)


def straight(seed: int) -> Scene:
    """Make an endless straight road at a constant 8 m/s; the objects repeat."""
    path = Path((0.0, 0.0), (Straight(PERIOD_M),))
    trajectory = Trajectory(path, 0.0, (Phase(PERIOD_M / 8.0, 8.0, 8.0),))
    return Scene(trajectory, (0.0, -PERIOD_M / 2), _followers(path) + _street(path, seed))


def parked(seed: int) -> Scene:
    """Make the town of `drive` with a standing vehicle; traffic passes, people walk around."""
    path = _town()
    trajectory = Trajectory(path, 0.0, (Phase(10.0, 0.0, 0.0),))
    walkers: Placed = [
        (_person(0), Course(9.5, lateral_m=-0.3, circle_m=1.8, circle_s=10.0)),
        (_person(1), Course(13.0, lateral_m=-0.8, circle_m=1.0, circle_s=7.0)),
    ]
    return Scene(trajectory, _TOWN_TILE_M, walkers + _street(path, seed))


SCENES: dict[str, Callable[[int], Scene]] = {
    "drive": drive,
    "winding": winding,
    "straight": straight,
    "parked": parked,
}


def _town() -> Path:
    """Return a closed road.

    Its corners are (140, 0), (140, 60), (80, 60), (80, 120), (0, 120), (0, 0).
    """
    left, right = Corner(_SIZE_M), Corner(_SIZE_M, left=False)
    return Path(
        (85.0, 0.0),
        (
            Straight(35.0), left, Straight(20.0), left, Straight(20.0), right,
            Straight(20.0), left, Straight(40.0), left, Straight(80.0), left, Straight(65.0),
        ),
    )  # fmt: skip


def _followers(path: Path) -> Placed:
    """Return the traffic in the vehicle's own lane."""
    return [
        (
            Shape("cyclist", (1.8, 0.6, 1.7), 0.35, 2.0, (60, 60, 190)),
            Course(11.0, follows=True, sway=1.5, sways=round(path.length / 60), lateral_m=-0.4),
        ),
        (
            Shape("car", (4.4, 1.8, 1.5), 0.55, 10.0, (150, 60, 30)),
            Course(31.0, follows=True, sway=3.0, sways=round(path.length / 150)),
        ),
        (Shape("car", (4.2, 1.8, 1.5), 0.3, 10.0, (60, 60, 60)), Course(-15.0, follows=True)),
    ]


def _street(path: Path, seed: int) -> Placed:
    """Return the objects along a road that are the same in every scene."""
    return [
        *_oncoming(path),
        *_walking(path, seed),
        *_parked_cars(path, seed),
        *_poles(path),
        *_buildings(path, seed),
    ]


_PAINTS = (
    (40, 40, 200), (200, 200, 205), (30, 30, 35), (160, 90, 20), (60, 140, 60), (200, 190, 120),
    (20, 150, 220),
)  # fmt: skip


def _oncoming(path: Path) -> Placed:
    count = round(path.length / 50)
    placed: Placed = []
    for k in range(count):
        truck = k % 4 == 2
        shape = (
            Shape("truck", (7.5, 2.4, 3.0), 0.5, 40.0, (205, 205, 200))
            if truck
            else Shape("car", (4.5, 1.8, 1.5), 0.3 + 0.05 * (k % 7), 10.0, _PAINTS[k % 7])
        )
        start = 22.0 + k * path.length / count
        placed.append((shape, Course(start, speed=-8.0, lateral_m=3.55, backward=True)))
    return placed


def _person(k: int) -> Shape:
    return Shape("pedestrian", (0.5, 0.6, 1.6 + 0.05 * (k % 5)), 0.4, 0.6, _PAINTS[(3 * k + 1) % 7])


def _walking(path: Path, seed: int) -> Placed:
    count = round(path.length / 40)
    random = uniform(seed, "walking", 0, 2 * count).reshape(count, 2).tolist()
    placed: Placed = []
    for k, (along, pace) in enumerate(random):
        back = k % 2 == 1
        start = (k + 0.8 * along) * path.length / count
        speed, lateral = (-1 if back else 1) * (1.1 + 0.6 * pace), 6.9 if back else -6.6
        placed.append((_person(k), Course(start, speed, lateral, back)))
    return placed


def _parked_cars(path: Path, seed: int) -> Placed:
    """Return cars in some of the bays beside straights, in groups of three bays of 6 m."""
    count = int(path.length / 18)
    random = uniform(seed, "parked", 0, 2 * count).reshape(count, 2).tolist()
    placed: Placed = []
    for k, (paint, place) in enumerate(random):
        u = 18.0 * k + 9.0 + 6.0 * int(2 * place)
        if not _on_straight(path, u, 3.5):
            continue
        shape = Shape("car", (4.3, 1.75, 1.45), 0.25 + 0.5 * paint, 10.0, _PAINTS[int(7 * paint)])
        placed.append((shape, Course(u, lateral_m=-3.6 - 0.1 * place)))
    return placed


def _poles(path: Path) -> Placed:
    """Return lamps on the left and right, and low posts between the lane and the bays."""
    placed: Placed = []
    for k in range(int(path.length / 18)):
        low = k % 2 == 0
        size = (0.12, 0.12, 1.1) if low else (0.18, 0.18, 5.0)
        colour = (60, 140, 235) if low else (110, 112, 110)
        shape = Shape("pole", size, 0.7 if low else 0.4, 0.5 if low else 1.5, colour)
        placed.append((shape, Course(18.0 * k + 3.0, lateral_m=-2.35 if low else -5.6)))
        if k % 2:
            lamp = Shape("pole", (0.18, 0.18, 5.0), 0.4, 1.5, (110, 112, 110))
            placed.append((lamp, Course(18.0 * k + 12.0, lateral_m=6.2)))
    return placed


_WALLS = ((120, 150, 175), (150, 165, 180), (95, 110, 150), (165, 170, 165), (110, 135, 160))


def _buildings(path: Path, seed: int) -> Placed:
    placed: Placed = []
    count = int(path.length / 20) * 2
    random = uniform(seed, "building", 0, 2 * count).reshape(count, 2).tolist()
    for k, (height, depth) in enumerate(random):
        u, left = 20.0 * (k // 2) + 10.0, k % 2 == 1
        if not _on_straight(path, u, 7.0):
            continue
        wide = 7.0 + 3.0 * depth
        lateral = 9.5 + 2.6 + wide / 2 if left else -(8.5 + 2.6 + wide / 2)
        size = (14.0, wide, 6.0 + 6.0 * height)
        shape = Shape("building", size, 0.35 + 0.2 * depth, 60.0, _WALLS[k % 5])
        placed.append((shape, Course(u, lateral_m=lateral)))
    return placed


def _on_straight(path: Path, u: float, margin: float) -> bool:
    """Return whether the road is straight from `margin` before to `margin` after `u`."""
    return any(
        straight and low + margin <= u <= high - margin
        for straight, low, high in zip(path.straight, path.bounds, path.bounds[1:], strict=False)
    )


def sum_in_order(values: Iterable[float]) -> float:
    """Sum in order, with the same result in every release (Python 3.12 changed `sum` of floats)."""
    total = 0.0
    for value in values:
        total += value
    return total
