"""Points of sweeps against the sensor's SDK: real metadata, and real captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ouster.sdk import core, open_source

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError
from recorder.perception.lidar.lidar import OusterOptics
from recorder.perception.lidar.points import POINT, SweepPoints
from tests.perception.test_lidar import NAMES, default_metadata

T_NS = 1_717_236_000_123_456_789
EXACT_M = 1e-4


def declared(text: str, shape: tuple[int, int], *names: str) -> StreamSpec:
    types = {"rfl": "u1", "rfl2": "u1", "rng_far": "u4", "rng2_far": "u4"}
    channels = [ChannelSpec(name, "raw", types.get(name, "u2"), shape) for name in names]
    channels.append(ChannelSpec("t_col", "raw", "u8", (shape[1],)))
    return StreamSpec("lidar", tuple(channels), files={"lidar.json": text})


def sweep(shape: tuple[int, int], seed: int = 1) -> dict[str, npt.NDArray[Any]]:
    """Two returns, many pixels without one, ranges beyond 65535 mm."""
    rng = np.random.default_rng(seed)
    made: dict[str, npt.NDArray[Any]] = {}
    for near, far, reflectivity in (("rng", "rng_far", "rfl"), ("rng2", "rng2_far", "rfl2")):
        range_mm = rng.integers(0, 250_000, shape) * rng.integers(0, 2, shape)
        made[near] = np.minimum(range_mm, 65535).astype(np.uint16)
        made[far] = (range_mm - made[near]).astype(np.uint32)
        made[reflectivity] = rng.integers(0, 256, shape).astype(np.uint8)
    made["t_col"] = 5_000_000_000 + np.arange(shape[1], dtype=np.uint64) * 97_656
    return made


def columns_ns(sample: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    return sample["t_col"].astype(np.int64) - int(sample["t_col"][0])


@pytest.mark.parametrize("destaggered", [False, True])
@pytest.mark.parametrize("organized", [False, True])
def test_points_are_those_of_the_sdk_with_their_times(
    metadata: str, destaggered: bool, organized: bool
) -> None:
    optics, info = OusterOptics.of_metadata(metadata, "lidar.json"), core.SensorInfo(metadata)
    shape = optics.beams, optics.columns
    sample = sweep(shape)
    names = [name for name in sample if name != "t_col"]
    spec = declared(metadata, shape, *names)
    sweeps = SweepPoints(spec, destaggered=destaggered, organized=organized)
    assert sorted(sweeps.channels) == sorted(sample)
    assert (sweeps.shape, sweeps.returns) == (shape, 2)
    start_ns, points = sweeps.points(sample, T_NS)
    assert points.dtype == POINT
    assert start_ns == T_NS - columns_ns(sample)[-1]

    def placed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        pixels: npt.NDArray[Any] = core.destagger(info, values) if destaggered else values
        return pixels.reshape(-1, *values.shape[2:])

    lut = core.XYZLut(info, use_extrinsics=False)
    rows, columns = np.indices(shape)
    at = 0
    for number, (near, far, reflectivity) in enumerate(
        (("rng", "rng_far", "rfl"), ("rng2", "rng2_far", "rfl2"))
    ):
        range_mm = sample[near].astype(np.uint32) + sample[far]
        kept = np.ones(range_mm.size, bool) if organized else placed(range_mm) > 0
        own = points[at : at + np.count_nonzero(kept)]
        at += len(own)
        wanted = placed(lut(range_mm).reshape(*shape, 3))[kept]
        xyz = np.stack([own[axis] for axis in "xyz"], axis=1)
        empty = placed(range_mm)[kept] == 0
        assert np.array_equal(np.isnan(xyz).all(axis=1), empty)
        assert np.abs(xyz - wanted)[~empty].max() < EXACT_M
        assert np.array_equal(own["intensity"], placed(sample[reflectivity])[kept])
        assert np.array_equal(own["ring"], placed(rows)[kept])
        assert (own["return"] == number).all()
        assert np.array_equal(own["t"], columns_ns(sample)[placed(columns)[kept]])
    assert at == len(points)


def test_a_point_beyond_16_bits_is_at_the_sum_of_both_ranges() -> None:
    text = default_metadata()
    optics = OusterOptics.of_metadata(text, "lidar.json")
    shape = optics.beams, optics.columns
    sample: dict[str, npt.NDArray[Any]] = {
        "rng": np.zeros(shape, np.uint16),
        "rng_far": np.zeros(shape, np.uint32),
    }
    sample["rng"][3, 7], sample["rng_far"][3, 7] = 65535, 181_365  # 246.9 m
    _, points = SweepPoints(declared(text, shape, "rng", "rng_far")).points(sample, T_NS)
    (point,) = points
    lut = core.XYZLut(core.SensorInfo(text), use_extrinsics=False)
    range_mm = (sample["rng"] + sample["rng_far"]).astype(np.uint32)
    wanted = lut(range_mm).reshape(*shape, 3)[3, 7]
    assert np.abs([point[axis] for axis in "xyz"] - wanted).max() < EXACT_M
    assert (point["ring"], point["intensity"], point["return"]) == (3, 0, 0)


def test_without_times_of_columns_they_are_spread_over_the_period() -> None:
    text = default_metadata()  # 512x10
    optics = OusterOptics.of_metadata(text, "lidar.json")
    shape = optics.beams, optics.columns
    spec = declared(text, shape, "rng")
    start_ns, points = SweepPoints(spec).points({"rng": np.ones(shape, np.uint16)}, T_NS)
    period_ns = 100_000_000
    last = optics.columns - 1
    assert start_ns == T_NS - -(-last * period_ns // optics.columns)
    times = points["t"].reshape(shape)
    assert (times == times[0]).all()
    assert times[0, 0] == 0 and start_ns + int(times[0, -1]) == T_NS
    steps = np.diff(times[0].astype(np.int64))
    assert steps.min() >= period_ns // optics.columns
    assert steps.max() <= period_ns // optics.columns + 1


def test_a_sweep_without_a_return_has_no_point() -> None:
    text = default_metadata()
    optics = OusterOptics.of_metadata(text, "lidar.json")
    shape = optics.beams, optics.columns
    sweeps = SweepPoints(declared(text, shape, "rng", "rng2"), destaggered=True)
    sample = {name: np.zeros(shape, np.uint16) for name in ("rng", "rng2")}
    _, points = sweeps.points(sample, T_NS)
    assert points.shape == (0,) and points.dtype == POINT


def test_metadata_of_other_sweeps_are_an_error_that_names_both() -> None:
    spec = declared(default_metadata(), (16, 64), "rng")
    with pytest.raises(FormatError, match=r"lidar: lidar\.json: is of sweeps .*rng has \[16, 64\]"):
        SweepPoints(spec)


@pytest.mark.parametrize("name", NAMES)
def test_points_of_a_real_capture_are_those_of_the_sdk(shared_data: Path, name: str) -> None:
    (path,) = (shared_data / "ouster").glob(f"{name}*.pcap")
    metadata = path.parent / f"{name}.json"
    source = open_source(str(path), meta=[str(metadata)])
    try:
        frame = next(iter(source))[0]
    finally:
        source.close()
    assert frame is not None
    info, range_mm = frame.sensor_info, np.asarray(frame.field(core.ChanField.RANGE))
    t_col = np.asarray(frame.timestamp, np.uint64)
    sample = {
        "rng": np.minimum(range_mm, 65535).astype(np.uint16),
        "rng_far": (range_mm - np.minimum(range_mm, 65535)).astype(np.uint32),
        "t_col": t_col,
    }
    spec = declared(metadata.read_text(), range_mm.shape, "rng", "rng_far")
    start_ns, points = SweepPoints(spec, destaggered=True).points(sample, T_NS)
    upright = core.destagger(info, range_mm)
    lut = core.XYZLut(info, use_extrinsics=False)
    wanted = core.destagger(info, lut(range_mm).reshape(*range_mm.shape, 3))[upright > 0]
    xyz = np.stack([points[axis] for axis in "xyz"], axis=1)
    assert len(xyz) == np.count_nonzero(range_mm) > 1000
    assert np.abs(xyz - wanted).max() < EXACT_M
    measured = np.broadcast_to(t_col, range_mm.shape)
    device = core.destagger(info, measured)[upright > 0].astype(np.int64)
    times = start_ns + points["t"].astype(np.int64)
    assert np.array_equal(times - T_NS, device - int(t_col[np.flatnonzero(t_col)[-1]]))
