"""Sweeps in few bytes, and the rays that belong to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ouster.sdk import core

from recorder.perception.lidar.lidar import OusterOptics, pixel_shifts
from recorder.perception.lidar.sweeps import SweepGrid, pack_brightness, pack_ranges
from tests.perception.test_lidar import NAMES, sweep


def grid_of(text: str, **limits: int) -> tuple[OusterOptics, SweepGrid]:
    optics = OusterOptics.of_metadata(text, "lidar.json")
    return optics, SweepGrid(optics, pixel_shifts(text, optics, "lidar.json"), **limits)


@pytest.mark.parametrize("points", [0, 32_768, 5000])
def test_points_of_the_shown_rays_are_those_of_the_sdk(metadata: str, points: int) -> None:
    optics, grid = grid_of(metadata, points=points)
    info, ranges = core.SensorInfo(metadata), sweep(optics)
    values, unit_m = pack_ranges(grid.cut(ranges))
    assert values.dtype == np.uint16 and values.shape == grid.shape
    metres = values.reshape(-1, 1) * np.float32(unit_m)
    made = grid.origin + grid.direction * metres
    points_m = core.XYZLut(info, use_extrinsics=False)(ranges).reshape(*ranges.shape, 3)
    upright = core.destagger(info, points_m)[:: grid.row_step, :: grid.column_step]
    hit = values.reshape(-1) > 0
    assert np.array_equal(hit, grid.cut(ranges).reshape(-1) > 0)
    assert np.abs(made - upright.reshape(-1, 3))[hit].max() < unit_m / 2 + 1e-4


@pytest.mark.parametrize("points", [0, 5000])
def test_the_picture_is_the_upright_one_of_the_sdk(metadata: str, points: int) -> None:
    optics, grid = grid_of(metadata, points=points)
    assert points or grid.shape == (optics.beams, optics.columns)
    ranges = sweep(optics)
    upright = core.destagger(core.SensorInfo(metadata), ranges)
    assert np.array_equal(grid.cut(ranges), upright[:: grid.row_step, :: grid.column_step])


def test_a_limit_keeps_the_distances_alike_in_both_directions(shared_data: Path) -> None:
    """128 rows of 0.33 degrees and 1024 columns of 0.35; 32 rows of 2.9 degrees."""
    os1, os0 = ((shared_data / "ouster" / f"{name}.json").read_text() for name in NAMES)
    assert grid_of(os1, points=32_768)[1].shape == (64, 512)
    assert grid_of(os0, points=16_384)[1].shape == (32, 512)
    assert grid_of(os0, points=1)[1].shape == (1, 1)
    assert grid_of(os1, rows=32, columns=1000)[1].shape == (32, 512)
    shape = grid_of(os1, columns=256, points=4096)[1].shape
    assert shape[0] * shape[1] <= 4096 and shape[1] <= 256


@given(st.lists(st.integers(0, 1_000_000), min_size=1, max_size=20))
def test_packed_ranges_are_off_by_half_a_unit_at_most(ranges: list[int]) -> None:
    given_mm = np.array(ranges, np.uint32)
    values, unit_m = pack_ranges(given_mm)
    unit_mm = round(unit_m * 1000)
    assert values.dtype == np.uint16
    assert unit_mm == 1 if max(ranges) <= 65_535 else unit_mm <= 2 * max(ranges) / 65_535
    assert np.array_equal(values > 0, given_mm > 0)
    error = np.abs(values.astype(np.int64) * unit_mm - given_mm)
    near = given_mm < unit_mm / 2  # which is 0, if it is no return
    assert (error[~near] <= unit_mm // 2).all() and (error[near] < unit_mm).all()


def test_brightness_of_eight_bits_is_as_recorded() -> None:
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    packed, white = pack_brightness(values[::2])
    assert np.array_equal(packed, values[::2]) and white == 255
    assert packed.flags.c_contiguous


def test_brightness_of_more_bits_is_scaled_to_nearly_all_values() -> None:
    values = np.arange(1000, dtype=np.uint16)
    values[-3:] = 60_000  # the sun
    packed, white = pack_brightness(values.reshape(10, 100))
    assert packed.shape == (10, 100) and white == 989
    flat = packed.reshape(-1).astype(int)
    assert np.abs(flat[:990] - np.arange(990) * 255 / white).max() <= 0.51
    assert (flat[990:] == 255).all()
    assert pack_brightness(np.zeros((2, 2), np.uint16))[0].tolist() == [[0, 0], [0, 0]]
