"""Lidars that are recorded as points, packed as NCore's lidars or point clouds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from recorder.codecs.points import Column
from recorder.common.errors import ArchiveError, SessionError
from recorder.formats.ros2.clouds import NO_TIME
from tests.archives.ncore.packer_rig import Archive, pack
from tests.session import clouds
from tests.session.build import Builder, Recorded

Floats = npt.NDArray[np.float32]


def packed(
    path: Path, sweeps: list[clouds.Sweep], columns: Any = clouds.WITH_TIMES
) -> tuple[Archive, Recorded]:
    builder = Builder(path)
    made = clouds.add_clouds(builder, sweeps, clouds.cloud_spec(columns))
    return pack(builder.close()), made


def frame_of(made: Recorded, index: int) -> str:
    return f"lidars/lidar/frames/{made.t_ns[index] // 1000}"


def test_points_with_times_are_rays(tmp_path: Path) -> None:
    sweeps = [clouds.make_sweep(seed=seed) for seed in range(3)]
    archive, made = packed(tmp_path / "s", sweeps)
    for index, sweep in enumerate(sweeps):
        frame = frame_of(made, index)
        hit = clouds.has_return(sweep)
        direction = archive.array(f"{frame}/ray_bundle/direction")
        distance = archive.array(f"{frame}/ray_bundle_returns/distance_m")
        assert np.abs(direction * distance[0][:, None] - sweep["xyz"][hit]).max() < 1e-4
        begin_ns = clouds.begin_ns(made.t_ns[index], sweep)
        t_ns = begin_ns + sweep["t_offset"][hit].astype(int)
        assert np.array_equal(archive.array(f"{frame}/ray_bundle/timestamp_us"), t_ns // 1000)
        intensity = archive.array(f"{frame}/ray_bundle_returns/intensity")
        assert np.allclose(intensity[0] * 255, sweep["intensity"][hit], atol=1e-3)
        assert np.array_equal(archive.array(f"{frame}/generic_data/ring"), sweep["ring"][hit])
        assert np.array_equal(archive.array(f"{frame}/generic_data/tag_1"), sweep["tag"][hit, 1])
        elements = archive.array(f"{frame}/ray_bundle/model_element")
        assert np.array_equal(elements[:, 0], clouds.RINGS - 1 - sweep["ring"][hit])
        known = archive.attributes(f"{frame}/generic_data")
        assert known["points_without_return"] == np.count_nonzero(~hit)
    begins = [clouds.begin_ns(t, s) for t, s in zip(made.t_ns, sweeps, strict=True)]
    expected_us = np.stack([begins, made.t_ns], axis=1) // 1000
    assert np.array_equal(archive.times_us("lidars/lidar"), expected_us)
    sensor = archive.attributes("lidars/lidar")["generic_meta_data"]["sensor"]
    assert sensor["intensity"] == "intensity / 255"
    assert sensor["model_error_deg"] < 0.01
    assert sensor["fields"] == ["x", "y", "z", "intensity", "ring", "t", "tag_0", "tag_1"]
    model = archive.attributes("intrinsics/default/lidars/lidar")["lidar_model_parameters"]
    assert (model["n_rows"], model["n_columns"]) == (clouds.RINGS, clouds.COLUMNS)
    assert not archive.noted("model")


def test_points_without_rings_have_no_model(tmp_path: Path) -> None:
    columns = (clouds.POSITION, clouds.TIME)
    archive, made = packed(tmp_path / "s", [clouds.make_sweep(columns)], columns)
    assert archive.noted("lidar", "fit no spinning model")
    assert archive.noted("lidar", "no intensity: 0")
    frame = frame_of(made, 0)
    assert not archive.array(f"{frame}/ray_bundle_returns/intensity").any()
    assert f"{frame}/ray_bundle/model_element/.zarray" not in archive.keys
    assert "intrinsics/default/lidars/lidar/.zattrs" not in archive.keys


def test_points_without_times_are_point_clouds(tmp_path: Path) -> None:
    sweeps = [clouds.make_sweep(clouds.WITHOUT_TIMES, seed) for seed in range(3)]
    archive, made = packed(tmp_path / "s", sweeps, clouds.WITHOUT_TIMES)
    where = "point_clouds/lidar"
    assert archive.array(f"{where}/pc_timestamps_us").tolist() == (made.t_ns // 1000).tolist()
    for index, sweep in enumerate(sweeps):
        hit = clouds.has_return(sweep)
        cloud = f"{where}/pcs/{index}"
        assert np.array_equal(archive.array(f"{cloud}/xyz"), sweep["xyz"][hit])
        for name in ("reflectivity", "ring"):
            assert np.array_equal(archive.array(f"{cloud}/{name}"), sweep[name][hit])
        known = archive.attributes(cloud)
        assert known["reference_frame_id"] == "lidar"
        assert known["generic_meta_data"]["points_without_return"] == np.count_nonzero(~hit)
    assert archive.noted("lidar", "no times: packed as point clouds")


@pytest.mark.parametrize(
    ("type_", "brightest", "white"),
    [("f4", 0.9, 1), ("f4", 254, 255), ("f4", 3000, 65535), ("f4", 1e6, 1e6), ("u1", 9, 255),
     ("u2", 9, 65535), ("u4", 200, 255)],
)  # fmt: skip
def test_the_largest_intensity_is_one(
    tmp_path: Path, type_: str, brightest: float, white: float
) -> None:
    columns = (clouds.POSITION, Column("intensity", type_), clouds.TIME)
    sweep = clouds.make_sweep(columns)
    sweep["intensity"] = np.linspace(0, brightest, len(sweep))
    archive, made = packed(tmp_path / "s", [sweep], columns)
    frame = frame_of(made, 0)
    found = archive.array(f"{frame}/ray_bundle_returns/intensity")[0] * white
    recorded = sweep["intensity"][clouds.has_return(sweep)]
    assert np.allclose(found, recorded, rtol=1e-6, atol=white * 1e-6)


def test_a_brighter_point_later_is_counted(tmp_path: Path) -> None:
    columns = (clouds.POSITION, Column("intensity", "f4"), clouds.TIME)
    sweeps = [clouds.make_sweep(columns, seed) for seed in range(11)]
    for sweep in sweeps:
        sweep["intensity"] = 0.5
        sweep["intensity"][3] = np.nan
    sweeps[1]["intensity"] = 2.0  # of the sweeps that are looked at before, none is so bright
    archive, _ = packed(tmp_path / "s", sweeps, columns)
    count = np.count_nonzero(clouds.has_return(sweeps[1]))
    assert archive.noted(f"lidar: {count} points have an intensity above 1: packed as 1")


def test_sweeps_without_a_return_are_frames_without_a_ray(tmp_path: Path) -> None:
    sweeps = [clouds.make_sweep(seed=seed) for seed in range(3)]
    sweeps[1]["xyz"] = np.nan
    sweeps[2] = sweeps[2][:0]
    archive, made = packed(tmp_path / "s", sweeps)
    for index in (1, 2):
        frame = frame_of(made, index)
        assert archive.array(f"{frame}/ray_bundle/direction").shape == (0, 3)
    known = archive.attributes(f"{frame_of(made, 1)}/generic_data")
    assert known["points_without_return"] == len(sweeps[1])


def test_a_sweep_that_begins_before_the_others(tmp_path: Path) -> None:
    """The sequence begins with the first sweep; a later one that began before it is cut."""
    sweeps = [clouds.make_sweep(seed=seed) for seed in range(3)]
    sweeps[1]["t_offset"] = sweeps[1]["t_offset"].astype(np.int64) * 30  # before the others
    archive, made = packed(tmp_path / "s", sweeps)
    begins = [clouds.begin_ns(t, s) for t, s in zip(made.t_ns, sweeps, strict=True)]
    assert begins[1] < begins[0]
    expected_us = np.stack([[begins[0], begins[0] + 1000, begins[2]], made.t_ns], axis=1) // 1000
    times_us = archive.times_us("lidars/lidar")
    assert np.array_equal(times_us, expected_us)
    stamps = archive.array(f"{frame_of(made, 1)}/ray_bundle/timestamp_us")
    assert (stamps.min(), stamps.max()) == tuple(times_us[1])
    assert archive.noted("lidar", "1 samples began before the one before them")


def test_points_without_a_time_are_left_out(tmp_path: Path) -> None:
    sweep = clouds.make_sweep()
    sweep["t_offset"][::2] = NO_TIME
    archive, made = packed(tmp_path / "s", [sweep])
    frame = frame_of(made, 0)
    kept = clouds.has_return(sweep) & (sweep["t_offset"] != NO_TIME)
    assert np.array_equal(archive.array(f"{frame}/generic_data/ring"), sweep["ring"][kept])
    known = archive.attributes(f"{frame}/generic_data")
    assert known["points_without_time"] == len(sweep) // 2
    assert known["points_without_return"] == np.count_nonzero(~clouds.has_return(sweep[1::2]))


def test_columns_that_are_no_points_are_an_error(tmp_path: Path) -> None:
    columns = (Column("ring", "u2"),)
    sweep = clouds.make_sweep(columns)
    with pytest.raises(ArchiveError, match=r"lidar.*no column xyz of three f4 or f8"):
        packed(tmp_path / "s", [sweep], columns)


def test_damage_names_the_sweep(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    clouds.add_clouds(builder, [clouds.make_sweep(seed=seed) for seed in range(8)])
    path = builder.close() / "lidar/points.bin"
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 16] ^= 0xFF  # in sweep 1, which no model is derived from
    path.write_bytes(data)
    with pytest.raises(SessionError, match=r"lidar/points.bin: sample 1: "):
        pack(builder.path)


def test_a_lidar_with_another_name(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    spec = replace(clouds.cloud_spec(), name="roof")
    clouds.add_clouds(builder, [clouds.make_sweep()], spec)
    archive = pack(builder.close())
    assert archive.times_us("lidars/roof").shape == (1, 2)
