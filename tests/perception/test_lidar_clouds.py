"""Points of any lidar: sweeps of columns, recorded and in messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from recorder.bus.wire import Kind, Message
from recorder.codecs.points import Column, pack_points
from recorder.common.errors import FormatError
from recorder.formats.ros2.clouds import NO_TIME
from recorder.perception.encoded import EncodedSamples
from recorder.perception.frames import cloud_channel, kind_of
from recorder.perception.lidar.clouds import find_brightness, make_point_source
from recorder.perception.lidar.points import (
    SweepPoints,
    convert_points,
    find_returns,
    find_times,
    point_times,
    stack_xyz,
    without_wide_integers,
)
from recorder.session.reader import Session
from tests.archives.ncore.packer_rig import lidar
from tests.session import clouds
from tests.session.build import Builder, camera_spec, lidar_spec

T_NS = 1_717_236_000_123_456_789


def test_the_kind_and_the_source_are_chosen_by_the_channels(tmp_path: Path) -> None:
    assert kind_of(clouds.cloud_spec()) == "lidar"
    assert cloud_channel(clouds.cloud_spec()) == "points.bin"
    assert cloud_channel(lidar_spec()) is None
    assert cloud_channel(camera_spec()) is None
    assert isinstance(make_point_source(lidar()), SweepPoints)
    builder = Builder(tmp_path / "s")
    clouds.add_clouds(builder, [clouds.make_sweep()])
    with Session(builder.close()) as session:
        assert kind_of(session.streams["lidar"]) == "lidar"


@pytest.mark.parametrize("columns", [clouds.WITH_TIMES, clouds.WITHOUT_TIMES])
def test_points_are_as_recorded(tmp_path: Path, columns: tuple[Column, ...]) -> None:
    sweeps = [clouds.make_sweep(columns, seed) for seed in range(3)]
    builder = Builder(tmp_path / "s")
    made = clouds.add_clouds(builder, sweeps, clouds.cloud_spec(columns))
    with Session(builder.close()) as session:
        stream = session.streams["lidar"]
        assert stream.spec is not None
        source = make_point_source(stream.spec)
        for index, sweep in enumerate(sweeps):
            start_ns, points = source.read(stream, index)
            assert np.array_equal(stack_xyz(points), sweep["xyz"], equal_nan=True)
            assert np.array_equal(find_returns(points), clouds.has_return(sweep))
            same = {*(sweep.dtype.names or ())} & {*(source.point.names or ())}
            assert same >= {"ring"}
            for name in same:
                assert np.array_equal(points[name], sweep[name]), name
            t_ns = point_times(start_ns, points)
            if "t_offset" in (sweep.dtype.names or ()):
                assert source.timed
                assert start_ns == made.t_ns[index] - int(sweep["t_offset"].max())
                assert int(t_ns.max()) == made.t_ns[index]
                assert np.array_equal(points["t"], sweep["t_offset"])
                assert np.array_equal(t_ns - t_ns[0], sweep["t_offset"].astype(np.int64))
                assert np.array_equal(points["tag_1"], sweep["tag"][:, 1])
            else:
                assert not source.timed
                assert (t_ns == made.t_ns[index]).all()
                assert start_ns == made.t_ns[index]


def test_points_of_a_message_are_those_of_the_newest_sweep() -> None:
    spec = clouds.cloud_spec()
    sweeps = [clouds.make_sweep(seed=1), clouds.make_sweep(seed=2)[:7]]
    frames = [pack_points(sweep) for sweep in sweeps]
    sizes = (np.array([len(frame) for frame in frames], np.uint32),)
    message = Message(
        Kind.DATA, "lidar", seq=0, count=2, t_mono_ns=np.array([1, 2]), sizes=sizes,
        frames=[b"".join(frames)],
    )  # fmt: skip
    source = make_point_source(spec)
    start_ns, points = source.points(source.decode_sample(EncodedSamples(spec), message), T_NS)
    assert np.array_equal(stack_xyz(points), sweeps[1]["xyz"], equal_nan=True)
    assert start_ns == T_NS - int(sweeps[1]["t_offset"].max())


def test_a_sweep_without_a_point(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    made = clouds.add_clouds(builder, [clouds.make_sweep()[:0]])
    with Session(builder.close()) as session:
        stream = session.streams["lidar"]
        assert stream.spec is not None
        start_ns, points = make_point_source(stream.spec).read(stream, 0)
    assert (start_ns, len(points)) == (made.t_ns[0], 0)
    assert len(point_times(start_ns, points)) == 0


def test_times_that_are_unknown() -> None:
    sweep = clouds.make_sweep()[:4]
    sweep["t_offset"] = 5, NO_TIME, 7, NO_TIME  # the stamp is the time of the third
    source = make_point_source(clouds.cloud_spec())
    start_ns, points = source.points({"points.bin": sweep}, T_NS)
    assert find_times(points).tolist() == [True, False, True, False]
    assert (point_times(start_ns, points) - T_NS).tolist() == [-2, -7, 0, -7]
    assert start_ns == T_NS - 7
    sweep["t_offset"] = NO_TIME
    start_ns, points = source.points({"points.bin": sweep}, T_NS)
    assert start_ns == T_NS
    assert (point_times(start_ns, points) == T_NS).all()


def test_positions_may_be_of_64_bits() -> None:
    columns = (Column("xyz", "f8", (3,)), clouds.TIME)
    sweep = clouds.make_sweep(columns)
    source = make_point_source(clouds.cloud_spec(columns))
    _, points = source.points({"points.bin": sweep}, T_NS)
    assert points["y"].dtype == np.float64
    assert np.array_equal(points["y"], sweep["xyz"][:, 1], equal_nan=True)
    assert stack_xyz(points).dtype == np.float32
    assert np.array_equal(find_returns(points), clouds.has_return(sweep))


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ([Column("ring", "u2")], "has no column xyz of three f4 or f8; its columns: ring"),
        ([Column("xyz", "i4", (3,))], "has no column xyz of three f4 or f8"),
        ([clouds.POSITION, Column("t_offset", "f4")], "its column t_offset is no u4"),
    ],
)
def test_columns_that_are_no_points_are_an_error(columns: list[Column], fault: str) -> None:
    with pytest.raises(FormatError, match=f"lidar: points.bin: {fault}"):
        make_point_source(clouds.cloud_spec(columns))


def test_a_damaged_sweep_is_named(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    clouds.add_clouds(builder, [clouds.make_sweep(seed=seed) for seed in range(2)])
    path = builder.close() / "lidar/points.bin"
    data = bytearray(path.read_bytes())
    data[-100] ^= 0xFF
    path.write_bytes(data)
    with Session(builder.path) as session:
        stream = session.streams["lidar"]
        assert stream.spec is not None
        source = make_point_source(stream.spec)
        source.read(stream, 0)
        with pytest.raises(FormatError, match=r"lidar/points.bin: sample 1: "):
            source.read(stream, 1)


def test_fields_that_have_the_name_of_another_are_renamed() -> None:
    columns = [clouds.POSITION, Column("t", "f8"), clouds.TIME, Column("x", "i8")]
    source = make_point_source(clouds.cloud_spec(columns))
    assert source.point.names == ("x", "y", "z", "t_", "t", "x_")
    assert source.point["t"] == np.uint32
    assert source.point.itemsize == 12 + 8 + 4 + 8


def test_the_brightness_is_the_intensity_or_the_reflectivity() -> None:
    def found(*names: str) -> str | None:
        columns = [clouds.POSITION, *(Column(name, "u1") for name in names)]
        return find_brightness(make_point_source(clouds.cloud_spec(columns)))

    assert found("reflectivity", "intensity") == "intensity"
    assert found("ring", "reflectivity") == "reflectivity"
    assert found("ring") is None


def test_integers_of_64_bits_become_floats() -> None:
    dtype = np.dtype([("x", "<f4"), ("a", "<u8"), ("b", "<i8"), ("c", "<u4")])
    made = np.dtype(without_wide_integers(dtype))
    assert [made[name].str for name in ("x", "a", "b", "c")] == ["<f4", "<f8", "<f8", "<u4"]
    points: npt.NDArray[Any] = np.array([(1.5, 1 << 40, -3, 7)], dtype)
    assert convert_points(points, made).tolist() == [(1.5, float(1 << 40), -3.0, 7)]
    assert convert_points(points, dtype) is points


def test_the_declared_rate_is_the_frequency() -> None:
    spec = replace(clouds.cloud_spec(), rate_hz=20.0)
    assert make_point_source(spec).frequency_hz == 20.0
