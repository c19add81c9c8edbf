"""Positions on Earth: conversions against published values, and what a position is."""

from __future__ import annotations

import numpy as np
import pytest

from recorder.processing.earth import earth_points, is_position, local_axes, local_to_earth


@pytest.mark.parametrize(
    ("position", "point"),
    [
        ((0.0, 0.0, 0.0), (6378137.0, 0.0, 0.0)),  # the semi-major axis of WGS 84
        ((0.0, 90.0, 100.0), (0.0, 6378237.0, 0.0)),
        ((90.0, 0.0, 0.0), (0.0, 0.0, 6356752.314245)),  # its semi-minor axis
        ((-90.0, 45.0, -10.0), (0.0, 0.0, -6356742.314245)),
    ],
)
def test_points_of_the_ellipsoid(position: tuple[float, ...], point: tuple[float, ...]) -> None:
    np.testing.assert_allclose(earth_points(position), point, atol=1e-6)


def test_points_are_perpendicular_above_the_ellipsoid() -> None:
    """A step in height goes along up; a step in latitude or longitude is level."""
    rng = np.random.default_rng(0)
    at = np.stack(
        [rng.uniform(-89, 89, 50), rng.uniform(-180, 180, 50), rng.uniform(0, 5e3, 50)], 1
    )
    axes = local_axes(at)
    np.testing.assert_allclose(
        axes @ np.swapaxes(axes, 1, 2), np.broadcast_to(np.eye(3), axes.shape), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(axes), 1)
    for step, direction in (((0, 0, 100.0), 2), ((0, 1e-5, 0), 0), ((1e-5, 0, 0), 1)):
        moved = earth_points(at + step) - earth_points(at - np.array(step))
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        np.testing.assert_allclose(moved, axes[:, :, direction], atol=1e-8)


def test_a_local_frame_stands_at_its_origin() -> None:
    origin = (48.1, 11.6, 520.0)
    matrix = local_to_earth(origin)
    np.testing.assert_allclose(matrix[:3, 3], earth_points(origin))
    np.testing.assert_allclose(matrix @ [0, 0, 30, 1], [*earth_points((48.1, 11.6, 550.0)), 1])


def test_what_is_a_position() -> None:
    fixes = [(52, 13, 30), (np.nan, 13, 0), (0, 0, 0), (0, 13, 0), (91, 0, 0), (1, -181, 0)]
    assert is_position(np.array(fixes)).tolist() == [True, False, False, True, False, False]
    assert is_position(np.array([52.0, 13.0]))
