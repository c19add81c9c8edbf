"""Rays of Ouster sweeps against ouster-sdk's own points."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ouster.sdk import core

from recorder.common.errors import FormatError
from recorder.perception.lidar.lidar import OusterOptics, pixel_shifts

NAMES = ["OS-1-128_v2.3.0_1024x10", "OS-0-32-U1_v2.2.0_1024x10"]


def default_metadata() -> str:
    info = core.SensorInfo.from_default(core.LidarMode._512x10)
    return str(info.to_json_string())


def sweep(optics: OusterOptics, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    ranges = rng.integers(300, 260_000, (optics.beams, optics.columns)).astype(np.uint32)
    ranges[rng.random(ranges.shape) < 0.3] = 0
    return ranges


def test_points_are_those_of_the_sdk(metadata: str) -> None:
    info = core.SensorInfo(metadata)
    lut = core.XYZLut(info, use_extrinsics=False)
    for text in (metadata, str(info.to_json_string())):  # flat, and in sections
        optics = OusterOptics.of_metadata(text, "lidar.json")
        assert optics.frequency_hz == {"10": 10.0, "20": 20.0}[str(info.config.lidar_mode)[-2:]]
        ranges = sweep(optics)
        rays = optics.rays([ranges], [(ranges % 256).astype(np.uint8)])
        hit = ranges.reshape(-1) > 0
        points = (rays.direction * rays.distance_m[0][:, None])[hit]
        assert np.abs(points - lut(ranges).reshape(-1, 3)[hit]).max() < 1e-4
        assert np.abs(np.linalg.norm(rays.direction, axis=1) - 1).max() < 1e-6
        assert np.array_equal(np.isnan(rays.distance_m[0]), ~hit)
        assert np.array_equal(np.isnan(rays.intensity[0]), ~hit)
        back = np.rint(rays.intensity[0][hit] * 255)
        assert np.array_equal(back, (ranges % 256).reshape(-1)[hit])


def test_second_returns_are_as_near_as_their_ray_comes(metadata: str) -> None:
    info = core.SensorInfo(metadata)
    lut = core.XYZLut(info, use_extrinsics=False)
    optics = OusterOptics.of_metadata(metadata, "lidar.json")
    first, second = sweep(optics), sweep(optics, 1)
    none = np.zeros(first.shape, np.uint8)
    rays = optics.rays([first, second], [none, none])
    hit = second.reshape(-1) > 0
    points = (rays.direction * rays.distance_m[1][:, None])[hit]
    off = np.linalg.norm(points - lut(second).reshape(-1, 3)[hit], axis=1)
    alone = first.reshape(-1)[hit] == 0
    assert off[alone].max() < 1e-3  # such a ray has the direction of its second return
    assert rays.second_error_m == pytest.approx(off.max(), abs=1e-3)
    closer = (rays.direction * (rays.distance_m[1] + 0.01)[:, None])[hit]
    further = np.linalg.norm(closer - lut(second).reshape(-1, 3)[hit], axis=1)
    assert (further > off - 1e-4).all()


def test_second_returns_on_rays_of_their_own(metadata: str) -> None:
    lut = core.XYZLut(core.SensorInfo(metadata), use_extrinsics=False)
    optics = OusterOptics.of_metadata(metadata, "lidar.json")
    returns = [sweep(optics), sweep(optics, 1)]
    rfl = np.arange(returns[0].size, dtype=np.uint8).reshape(returns[0].shape)
    rays = optics.rays(returns, [rfl, rfl], own_rays=True)
    assert rays.second_error_m < 6e-4
    assert {a.dtype for a in (rays.direction, rays.distance_m, rays.intensity)} == {np.dtype("f4")}
    beams = np.concatenate([np.arange(returns[0].size), rays.beam_of_ray])
    assert len(beams) == len(rays.direction) > returns[0].size
    for number, ranges in enumerate(returns):
        there = ~np.isnan(rays.distance_m[number])
        points = rays.direction[there] * rays.distance_m[number, there][:, None]
        expected = lut(ranges).reshape(-1, 3)[beams[there]]
        assert np.abs(points - expected).max() < 1e-3
        assert sorted(beams[there]) == np.flatnonzero(ranges).tolist()
        found = np.rint(rays.intensity[number, there] * 255)
        assert np.array_equal(found, rfl.reshape(-1)[beams[there]])


def test_the_model_gives_the_beams(metadata: str) -> None:
    optics = OusterOptics.of_metadata(metadata, "lidar.json")
    model = optics.model()
    assert model is not None
    far = np.full((optics.beams, optics.columns), 4_000_000_000, np.uint32)
    none = np.zeros(far.shape, np.uint8)
    direction = optics.rays([far], [none]).direction.reshape(*far.shape, 3)
    azimuth = model.column_azimuths_rad + model.row_azimuth_offsets_rad[model.row_of_beam, None]
    elevation = model.row_elevations_rad[model.row_of_beam][:, None] + 0 * azimuth
    level = np.cos(elevation)
    parts = [level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)]
    assert np.abs(np.stack(parts, axis=-1) - direction).max() < 1e-6
    assert (np.diff(model.row_elevations_rad) < 0).all()


def test_lines_are_those_of_the_sdk(metadata: str) -> None:
    optics = OusterOptics.of_metadata(metadata, "lidar.json")
    ranges = sweep(optics)
    direction, start = optics.lines
    points = start + direction * (ranges.reshape(-1) * np.float32(1e-3))
    lut = core.XYZLut(core.SensorInfo(metadata), use_extrinsics=False)
    hit = ranges.reshape(-1) > 0
    assert np.abs(points.T - lut(ranges).reshape(-1, 3))[hit].max() < 1e-4


def test_shifts_make_the_pictures_of_the_sdk(metadata: str) -> None:
    info = core.SensorInfo(metadata)
    optics = OusterOptics.of_metadata(metadata, "lidar.json")
    shifts = pixel_shifts(metadata, optics, "lidar.json")
    ranges = sweep(optics)
    upright = np.stack([np.roll(row, shift) for row, shift in zip(ranges, shifts, strict=True)])
    assert np.array_equal(upright, core.destagger(info, ranges))


def test_shifts_of_old_firmware_come_from_the_azimuths(shared_data: Path) -> None:
    document = json.loads((shared_data / "ouster" / f"{NAMES[0]}.json").read_text())
    known = document["data_format"].pop("pixel_shift_by_row")
    text = json.dumps(document)
    optics = OusterOptics.of_metadata(text, "lidar.json")
    assert np.ptp(known) > 0
    assert pixel_shifts(text, optics, "lidar.json").tolist() == known


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"beam_altitude_angles": [1, 2], "beam_azimuth_angles": [1]}',
     '{"beam_altitude_angles": [1], "beam_azimuth_angles": [1], "lidar_mode": "fast"}'],
)  # fmt: skip
def test_bad_metadata_names_its_file(text: str) -> None:
    with pytest.raises(FormatError, match=r"lidar/lidar\.json: is not usable Ouster metadata"):
        OusterOptics.of_metadata(text, "lidar/lidar.json")


def test_the_optics_of_one_text_are_in_memory_once(metadata: str) -> None:
    """As long as somebody has them, and not longer; others have their own."""
    first = OusterOptics.of_metadata(metadata, "lidar.json")
    assert OusterOptics.of_metadata(metadata, "other.json") is first
    assert OusterOptics.of_metadata(metadata + " ", "lidar.json") is not first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
