"""Quaternions, rotations and interpolation against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.perception.geometry import (
    apply,
    interpolate_poses,
    invert,
    is_rotation,
    quaternion_of_rotation,
    rotation_of_quaternion,
    rotation_of_rpy,
    slerp,
    transform,
)

component = st.floats(-1, 1)
quaternions = st.tuples(component, component, component, component).filter(
    lambda q: np.linalg.norm(q) > 0.1
)
angle = st.floats(-3.1, 3.1)


def turn(axis: int, by: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A rotation about x, y or z, by its definition."""
    a, b = [(1, 2), (2, 0), (0, 1)][axis]
    matrix = np.eye(3)
    matrix[a, a] = matrix[b, b] = np.cos(by)
    matrix[a, b], matrix[b, a] = -np.sin(by), np.sin(by)
    return matrix


@given(quaternions)
def test_quaternions_and_back(quaternion: tuple[float, float, float, float]) -> None:
    rotation = rotation_of_quaternion(quaternion)
    assert is_rotation(rotation[None], 1e-9)[0]
    back = quaternion_of_rotation(rotation)
    assert np.allclose(rotation_of_quaternion(back), rotation, atol=1e-9)
    assert np.linalg.norm(back) == pytest.approx(1)
    assert back[3] >= 0


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_turns_have_quaternions(axis: int) -> None:
    rotation = turn(axis, np.pi)
    assert np.allclose(rotation_of_quaternion(quaternion_of_rotation(rotation)), rotation)


def test_a_known_quaternion() -> None:
    quarter = rotation_of_quaternion([0, 0, np.sqrt(0.5), np.sqrt(0.5)])
    assert np.allclose(quarter @ [1, 0, 0], [0, 1, 0])


@pytest.mark.parametrize("bad", [(0, 0, 0, 0), (np.nan, 0, 0, 1)])
def test_no_rotation(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="not a rotation"):
        rotation_of_quaternion(bad)


@given(angle, angle, angle)
def test_roll_pitch_yaw(roll: float, pitch: float, yaw: float) -> None:
    expected = turn(2, yaw) @ turn(1, pitch) @ turn(0, roll)
    assert np.allclose(rotation_of_rpy([roll, pitch, yaw]), expected, atol=1e-12)


@given(quaternions, st.tuples(component, component, component))
def test_inverse_takes_points_back(
    quaternion: tuple[float, ...], translation: tuple[float, ...]
) -> None:
    matrix = transform(rotation_of_quaternion(quaternion), translation)
    points = np.array([[1.0, 2, 3], [-4, 5, 0.5]])
    assert np.allclose(apply(invert(matrix), apply(matrix, points)), points)


@given(angle, angle, st.floats(0, 1))
def test_slerp_turns_evenly(first: float, second: float, share: float) -> None:
    q = [quaternion_of_rotation(turn(2, a)) for a in (first, second)]
    way = np.remainder(second - first + np.pi, 2 * np.pi) - np.pi
    if abs(abs(way) - np.pi) < 1e-3:
        return  # either way is as short
    expected = turn(2, first + share * way)
    between = slerp(q[0][None], q[1][None], np.array([share]))
    # Near rotations are mixed along the straight line.
    assert np.allclose(rotation_of_quaternion(between[0]), expected, atol=1e-5)


def test_interpolation_between_and_beyond() -> None:
    t_ns = np.array([100, 200, 400], np.int64)
    rotations = np.stack([turn(2, a) for a in (0.0, 0.4, 0.4)])
    poses = transform(rotations, np.array([[0, 0, 0], [1, 0, 0], [3.0, 2, 0]]))
    found = interpolate_poses(t_ns, poses, np.array([0, 100, 150, 300, 400, 900]))
    assert found[:, 0, 3].tolist() == [0, 0, 0.5, 2, 3, 3]
    assert np.allclose(found[2, :3, :3], turn(2, 0.2))
    assert np.allclose(found[0], poses[0])
    assert np.allclose(found[-1], poses[-1])
    assert np.allclose(interpolate_poses(t_ns[:1], poses[:1], t_ns), poses[:1])


def test_what_is_no_rotation() -> None:
    matrices = np.stack([np.eye(3), -np.eye(3), 2 * np.eye(3), np.full((3, 3), np.nan)])
    assert is_rotation(matrices).tolist() == [True, False, False, False]
