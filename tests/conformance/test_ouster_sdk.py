"""ouster-sdk on what is recorded of a lidar: its metadata, and points made with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ouster.sdk import core

from tests.acceptance.command import column
from tests.drivers.ouster.rig import sdk_frames

pytestmark = pytest.mark.conformance


def info_of(session: Path) -> core.SensorInfo:
    return core.SensorInfo((session / "lidar/lidar.json").read_text())


def ranges(session: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    return np.asarray(column(session, "lidar", "rng") + column(session, "lidar", "rng_far"))


def test_points_equal_those_of_the_capture(real: Path, shared_data: Path) -> None:
    folder, name = shared_data / "ouster", "OS-1-128_v2.3.0_1024x10"
    frames = sdk_frames(folder / f"{name}_lb_n3.pcap", folder / f"{name}.json")
    lut = core.XYZLut(info_of(real), use_extrinsics=False)
    for sweep, frame in zip(ranges(real), frames, strict=True):
        theirs = core.XYZLut(frame.sensor_info, use_extrinsics=False)(frame)
        np.testing.assert_array_equal(lut(sweep), theirs)
