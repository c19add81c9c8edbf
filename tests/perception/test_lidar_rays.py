"""Points of sweeps that are recorded as rays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recorder.codecs.points import Column, pack_points, points_dtype
from recorder.codecs.rays import RETURNS
from recorder.codecs.streams import ChannelSpec, StreamSpec, points_channel
from recorder.common.errors import FormatError
from recorder.perception.encoded import EncodedSamples
from recorder.perception.lidar.clouds import make_point_source
from recorder.perception.lidar.points import find_times, point_times
from recorder.perception.lidar.rays import RayPoints
from tests.viewers.live.views.sensors import message_of

COLUMNS = (
    Column("direction", "f4", (3,)), Column("distance", "f4", (2,)),
    Column("intensity", "f4", (2,)), Column("element", "u2", (2,)), Column("rgb", "u1", (3,)),
    Column("t_offset", "u4"),
)  # fmt: skip
DURATION = ChannelSpec("duration", "raw", "u4")
T_NS = 1_700_000_000_000_000_000


def _spec(*columns: Column) -> StreamSpec:
    channels = points_channel(columns or COLUMNS, ""), DURATION
    settings = {RETURNS: ["distance", "intensity"]}
    return StreamSpec("lidar", channels, rate_hz=10.0, settings=settings)


def _rays() -> Any:
    rays = np.zeros(3, points_dtype(COLUMNS))
    rays["direction"] = np.eye(3)
    rays["distance"] = [[1, 2], [3, np.nan], [np.nan, np.nan]]
    rays["intensity"] = [[0.5, 0.25], [1, np.nan], [np.nan, np.nan]]
    rays["element"] = [[7, 0], [6, 1], [5, 2]]
    rays["rgb"] = [[1, 2, 3]] * 3
    rays["t_offset"] = [0, 100, 5000]
    return rays


def _check(start_ns: int, points: Any) -> None:
    assert start_ns == T_NS - 6000
    assert points.dtype.names == (
        "x", "y", "z", "return", "ring", "t", "intensity", "element_0", "element_1", "rgb_0",
        "rgb_1", "rgb_2",
    )  # fmt: skip
    assert len(points) == 6 and points["return"].tolist() == [0, 0, 0, 1, 1, 1]
    xyz = np.stack([points[axis] for axis in "xyz"], 1)
    assert xyz[[0, 1, 3]].tolist() == [[1, 0, 0], [0, 3, 0], [2, 0, 0]]
    assert np.isnan(xyz[[2, 4, 5]]).any(axis=1).all()
    assert points["ring"].tolist() == [7, 6, 5] * 2
    assert points["intensity"][[0, 3]].tolist() == [0.5, 0.25]
    assert points["rgb_2"].tolist() == [3] * 6
    assert find_times(points).all()
    assert (point_times(start_ns, points)[:3] - start_ns).tolist() == [0, 100, 5000]


def test_a_ray_has_a_point_for_each_return() -> None:
    source = make_point_source(_spec())
    assert isinstance(source, RayPoints) and source.returns == 2
    sample = {"points.bin": _rays(), "duration": np.array(6000, np.uint32)}
    _check(*source.points(sample, T_NS))


def test_live_messages_give_the_same_points() -> None:
    spec = _spec()
    source = make_point_source(spec)
    data: dict[str, Any] = {
        "points.bin": [pack_points(_rays())],
        "duration": np.array([6000], np.uint32),
    }
    message = message_of(spec, data)
    _check(*source.points(source.decode_sample(EncodedSamples(spec), message), T_NS))


def test_a_sweep_without_rays_has_no_point() -> None:
    source = make_point_source(_spec())
    sample = {"points.bin": _rays()[:0], "duration": np.array(0, np.uint32)}
    assert len(source.points(sample, T_NS)[1]) == 0


@pytest.mark.parametrize(
    "columns",
    [
        COLUMNS[:1],
        (Column("direction", "f8", (3,)), *COLUMNS[1:]),
        (COLUMNS[0], Column("distance", "f4", (2, 2)), COLUMNS[-1]),
        COLUMNS[:-1],
    ],
)
def test_other_columns_are_refused(columns: tuple[Column, ...]) -> None:
    with pytest.raises(FormatError, match="its columns are none of rays"):
        make_point_source(_spec(*columns))
    whole = _spec()
    with pytest.raises(FormatError, match="none of rays"):
        make_point_source(replace(whole, channels=whole.channels[:1]))
