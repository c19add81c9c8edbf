"""Poses at rising times, of trajectories that are longer than what is kept of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np

from recorder.perception.geometry import interpolate_poses, rotation_of_rpy, transform
from recorder.perception.poses import Block, RollingTrajectory

STEP_NS = 10_000_000


def block(first: int, count: int) -> Block:
    """A drive along a wave."""
    place = np.arange(first, first + count)
    t_ns = place * STEP_NS
    angles = np.stack([0 * place, 0 * place, np.sin(place / 50)], axis=1)
    positions = np.stack([place / 10, np.cos(place / 70), 0 * place], axis=1)
    return t_ns.astype(np.int64), transform(rotation_of_rpy(angles), positions)


def blocks(count: int, size: int) -> Iterator[Block]:
    return (block(k * size, size) for k in range(count))


def test_poses_are_those_of_the_whole_trajectory() -> None:
    whole = block(0, 20_000)
    path = RollingTrajectory(blocks(20, 1000))
    rng = np.random.default_rng(4)
    at = 0
    while at < 20_000 * STEP_NS:
        wanted = at + np.sort(rng.integers(0, 500 * STEP_NS, 50))
        assert np.array_equal(path.at(wanted), interpolate_poses(*whole, wanted))
        at = int(wanted[-1])
        path.forget(at)
        again = np.array([at])
        assert np.array_equal(path.at(again), interpolate_poses(*whole, again))
    assert np.array_equal(path.at(np.array([at * 2])), whole[1][-1:])


def test_little_is_kept() -> None:
    tracemalloc.start()
    path = RollingTrajectory(blocks(50, 1000))
    for at in range(0, 50_000 * STEP_NS, 400 * STEP_NS):
        path.at(np.array([at]))
        path.forget(at)
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert highest < 3_000_000  # of 7 MB


def test_the_source_is_read_to_its_end() -> None:
    left = blocks(3, 100)
    path = RollingTrajectory(left)
    path.at(np.array([5]))
    path.drain()
    assert next(left, None) is None
