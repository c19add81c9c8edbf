"""Positions on Earth: conversions against published values, and what a position is."""

from __future__ import annotations

import numpy as np
import pytest

from recorder.perception.earth import (
    earth_points,
    is_position,
    local_axes,
    local_to_earth,
    local_track,
)


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


def test_a_track_begins_at_the_first_position() -> None:
    """A degree of latitude is 111.2 km at 48 degrees, one of longitude 74.6 km."""
    given = [(np.nan, 0, 0), (48.0, 11.0, 500.0), (0, 0, 0), (48.001, 11.001, 503.0)]
    track, origin = local_track(given, None)
    assert origin is not None and origin.tolist() == [48.0, 11.0, 500.0]
    assert np.isnan(track[[0, 2]]).all()
    np.testing.assert_allclose(track[1], 0, atol=1e-6)
    np.testing.assert_allclose(track[3], [74.63, 111.20, 3.0], atol=0.01)
    again, same = local_track([given[3]], origin)
    assert same is origin
    np.testing.assert_allclose(again[0], track[3], atol=1e-6)


def test_a_track_without_heights_is_level() -> None:
    track, origin = local_track([(48.0, 11.0), (48.001, 11.0)], None)
    assert origin is not None and origin.tolist() == [48.0, 11.0, 0.0]
    np.testing.assert_allclose(track[1], [0, 111.19, 0], atol=0.01)
    gap, _ = local_track([(48.0, 11.0, np.nan)], np.array([48.0, 11.0, 70.0]))
    np.testing.assert_allclose(gap[0], 0, atol=1e-6)


def test_a_track_without_any_position() -> None:
    track, origin = local_track(np.full((2, 3), np.nan), None)
    assert origin is None and np.isnan(track).all()
