"""Spinning models of lidars that are known by their points, against the truth and real sensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from recorder.perception.lidar.lidar import OusterOptics
from recorder.perception.lidar.points import SweepPoints, stack_xyz
from recorder.perception.lidar.spinning import DerivedModel, derive_model
from tests.perception.test_lidar_points import declared
from tests.session import clouds

POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("ring", "<u2"), ("t", "<u4")])


def points_of(sweep: clouds.Sweep) -> npt.NDArray[Any]:
    points = np.zeros(len(sweep), POINT)
    for at, axis in enumerate("xyz"):
        points[axis] = sweep["xyz"][:, at]
    points["ring"], points["t"] = sweep["ring"], sweep["t_offset"]
    return points


def angles_of(model: DerivedModel, elements: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Unit vectors of elements, as NCore defines them."""
    rows, columns = elements.astype(int).T
    spinning = model.spinning
    azimuth = spinning.column_azimuths_rad[columns] + spinning.row_azimuth_offsets_rad[rows]
    elevation = spinning.row_elevations_rad[rows]
    level = np.cos(elevation)
    vectors = [np.cos(azimuth) * level, np.sin(azimuth) * level, np.sin(elevation)]
    return np.asarray(np.stack(vectors, axis=1))


def off_rad(model: DerivedModel, points: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Angles between the points and their elements."""
    xyz = stack_xyz(points).astype(np.float64)
    xyz /= np.linalg.norm(xyz, axis=1)[:, None]
    dots = np.sum(xyz * angles_of(model, model.elements(points)), axis=1)
    return np.asarray(np.arccos(np.clip(dots, -1, 1)))


def test_the_model_is_that_of_the_lidar() -> None:
    sweeps = [points_of(clouds.make_sweep(seed=seed)) for seed in range(3)]
    model = derive_model(sweeps)
    assert model is not None
    spinning = model.spinning
    assert spinning.direction == "cw"
    assert model.frequency_hz == pytest.approx(10, rel=1e-3)
    assert len(spinning.column_azimuths_rad) == clouds.COLUMNS
    assert np.allclose(spinning.row_elevations_rad, clouds.ELEVATIONS_RAD[::-1], atol=1e-4)
    assert np.allclose(spinning.row_azimuth_offsets_rad, clouds.OFFSETS_RAD[::-1], atol=1e-4)
    assert spinning.column_azimuths_rad[0] == pytest.approx(
        np.pi - np.pi / clouds.COLUMNS, abs=1e-3
    )
    for seed, points in enumerate(sweeps):
        sweep = clouds.make_sweep(seed=seed)
        hit = clouds.has_return(sweep)
        elements = model.elements(points[hit])
        assert np.array_equal(elements[:, 0], clouds.RINGS - 1 - sweep["ring"][hit])
        column = sweep["t_offset"][hit] // (clouds.SWEEP_NS // clouds.COLUMNS)
        assert np.array_equal(elements[:, 1], column)
        assert off_rad(model, points[hit]).max() < 1e-3


def test_a_lidar_may_turn_the_other_way() -> None:
    points = points_of(clouds.make_sweep())
    points["y"] *= -1
    model = derive_model([points])
    assert model is not None
    assert model.spinning.direction == "ccw"
    assert (np.diff(model.spinning.column_azimuths_rad) > 0).sum() >= clouds.COLUMNS - 2
    hit = points[clouds.has_return(clouds.make_sweep())]
    assert off_rad(model, hit).max() < 1e-3


def test_the_beams_of_an_ouster_are_found(metadata: str) -> None:
    optics = OusterOptics.of_metadata(metadata, "lidar.json")
    true = optics.model()
    if true is None:
        pytest.skip("its beams fit no spinning model")
    shape = optics.beams, optics.columns
    rng = np.random.default_rng(1)
    t_col = 5_000_000_000 + np.arange(shape[1], dtype=np.uint64) * np.uint64(1e8 / shape[1])
    sweeps = []
    for _ in range(2):
        range_mm = rng.integers(20_000, 60_000, shape) * rng.integers(0, 2, shape)
        source = SweepPoints(declared(metadata, shape, "rng"))
        sample = {"rng": range_mm.astype(np.uint32), "t_col": t_col}
        sweeps.append(source.points(sample, 1_717_236_000_123_456_789)[1])
    model = derive_model(sweeps)
    assert model is not None
    spinning = model.spinning
    assert (spinning.direction, len(spinning.column_azimuths_rad)) == ("cw", optics.columns)
    assert model.frequency_hz == pytest.approx(10, rel=1e-3)
    # Beams begin some centimetres from the origin: at 20 m and more, within 0.2 degrees.
    elevations = np.degrees(spinning.row_elevations_rad - true.row_elevations_rad)
    assert np.abs(elevations).max() < 0.2
    offsets = np.degrees(spinning.row_azimuth_offsets_rad - true.row_azimuth_offsets_rad)
    assert np.ptp(offsets) < 0.2  # those of all rows together are of no account
    assert np.degrees(off_rad(model, sweeps[0])).max() < 0.35


def test_a_ring_without_points_gets_the_nearest_row() -> None:
    points = points_of(clouds.make_sweep())
    hit = clouds.has_return(clouds.make_sweep())
    model = derive_model([points[points["ring"] != 5]])
    assert model is not None
    assert 5 not in model.rings
    strange = points[hit & (points["ring"] == 5)]
    assert set(model.elements(strange)[:, 0].tolist()) <= {9, 10}
    every = points[hit]
    elements = model.elements({name: every[name] for name in ("x", "y", "z", "ring")})
    assert np.array_equal(elements, model.elements(every))
    assert set(elements[every["ring"] == 5, 0].tolist()) <= {9, 10}


@pytest.mark.parametrize(
    "case", ["still", "one time", "scattered", "few", "none", "one ring twice", "many rings"]
)
def test_what_does_not_spin_has_no_model(case: str) -> None:
    points = points_of(clouds.make_sweep())
    rng = np.random.default_rng(4)
    match case:
        case "still":  # all points of a ring in one direction
            for axis in "xyz":
                points[axis] = points[axis][0]
        case "one time":
            points["t"] = 0
        case "scattered":
            points["t"] = rng.permutation(points["t"])
        case "few":
            points = points[:100]
        case "none":
            points = points[:0]
        case "many rings":
            points["ring"] = np.arange(len(points))
        case "one ring twice":
            points["z"] = 0  # all rings have one elevation
    assert derive_model([points]) is None


def test_a_real_vlp16_whose_times_are_of_packets_has_no_model(shared_data: Path) -> None:
    """The other decoder's times begin anew with each packet."""
    (path,) = (shared_data / "lidar/velodyne_vlp16").glob("*.pcd")
    head, _, body = path.read_bytes().partition(b"DATA binary\n")
    fields = dict(line.split(b" ", 1) for line in head.splitlines() if b" " in line)
    kinds = zip(fields[b"TYPE"].split(), fields[b"SIZE"].split(), strict=True)
    names = fields[b"FIELDS"].decode().split()
    dtype = np.dtype(
        [(n, f"<{k.decode().lower()}{s.decode()}") for n, (k, s) in zip(names, kinds, strict=True)]
    )
    read = np.frombuffer(body, dtype, int(fields[b"POINTS"]))
    points = np.zeros(len(read), POINT)
    for name in "xyz":
        points[name] = read[name]
    points["ring"], points["t"] = read["channel"], read["time_stamp"]
    assert derive_model([points]) is None
    # Times by the azimuth, as the sensor turns: its beams are 2 degrees apart.
    points["t"] = (read["azimuth"].astype(np.float64) % (2 * np.pi)) / (2 * np.pi) * 1e8
    model = derive_model([points])
    assert model is not None
    assert (model.spinning.direction, round(model.frequency_hz, 2)) == ("cw", 10.0)
    elevations = np.degrees(model.spinning.row_elevations_rad)
    expected = 2 * (points["ring"].max() - np.arange(len(elevations))) - 15
    assert np.abs(elevations - expected).max() < 0.1
