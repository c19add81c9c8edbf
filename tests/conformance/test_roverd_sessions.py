"""roverd's typed readers and its command line on whole sessions.

Runs where ``roverd`` (RadarML/red-rover, folder ``format/``) can be imported:
``make conformance ROVERD=/path/to/red-rover/format/src``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from ouster.sdk import core

from drivers.ouster.frames import convert_metadata
from tests.acceptance.command import column, meta

roverd = pytest.importorskip(
    "roverd", reason="needs roverd (red-rover's format package), which is not installed"
)
ouster = pytest.importorskip("roverd.transforms.ouster")
pytestmark = pytest.mark.conformance

SENSORS = ["camera", "imu", "lidar", "radar"]


def shape_of(session: Path, stream: str, channel: str) -> tuple[int, ...]:
    return tuple(meta(session, stream)[channel]["shape"])


def command(*args: object) -> subprocess.CompletedProcess[str]:
    """roverd's command."""
    return subprocess.run(
        [sys.executable, "-c", "from roverd._cli import cli_main; cli_main()", *map(str, args)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )


def indices(sensor: Any) -> list[int]:
    return sorted({0, 1, len(sensor) // 2, len(sensor) - 1})


def test_radar(session: Path) -> None:
    radar = roverd.sensors.XWRRadar(str(session / "radar"))
    iq, shape = column(session, "radar", "iq"), shape_of(session, "radar", "iq")
    assert len(radar) == len(iq) > 2
    for k in indices(radar):
        frame = radar[k]
        assert frame.iq.shape == (1, 1, *shape)
        np.testing.assert_array_equal(frame.iq[0, 0], iq[k])
        assert frame.valid.tolist() == [[1]]
        assert frame.timestamps[0, 0] == column(session, "radar", "ts")[k]
    assert 0 < radar.metadata.range_resolution[0] < 1
    assert 0 < radar.metadata.doppler_resolution[0] < 10


def test_lidar(session: Path) -> None:
    shape = shape_of(session, "lidar", "rng")
    ours = {name: column(session, "lidar", name) for name in ("rng", "rfl", "nir")}
    depth = roverd.sensors.OSLidarDepth(str(session / "lidar"))
    whole = roverd.sensors.OSLidar(str(session / "lidar"))
    assert len(depth) == len(whole) == len(ours["rng"]) >= 3
    for k in indices(whole):
        assert depth[k].rng.shape == (1, 1, *shape)
        np.testing.assert_array_equal(depth[k].rng[0, 0], ours["rng"][k])
        for name, values in ours.items():
            np.testing.assert_array_equal(getattr(whole[k], name)[0, 0], values[k])
    for k, sweep in enumerate(whole.stream()):
        np.testing.assert_array_equal(sweep.rng[0, 0], ours["rng"][k])
    assert Path(whole.metadata.intrinsics) == session / "lidar/lidar.json"


@pytest.mark.parametrize("whole", [True, False])
def test_points(session: Path, tmp_path: Path, whole: bool) -> None:
    """Their points are ouster-sdk's, also of metadata without what firmware 2.0 to 2.4 lacks."""
    text = (session / "lidar/lidar.json").read_text()
    if not whole:
        document = json.loads(text)
        del document["beam_intrinsics"]["beam_to_lidar_transform"]
        text = json.dumps(document)
    info = core.SensorInfo(text)
    place = tmp_path / "lidar.json"
    place.write_text(convert_metadata(info, text))
    sweep = roverd.sensors.OSLidarDepth(str(session / "lidar"))[1]
    cloud = ouster.PointCloud(min_range=None)(dataclasses.replace(sweep, intrinsics=str(place)))
    points = np.asarray(core.XYZLut(info, False)(sweep.rng[0, 0].astype(np.uint32)))
    np.testing.assert_allclose(cloud.xyz[0, 0], points[sweep.rng[0, 0] > 0], atol=1e-5)


def test_camera(session: Path) -> None:
    camera = roverd.sensors.Camera(str(session / "camera"))
    shape = shape_of(session, "camera", "video.avi")
    movie = cv2.VideoCapture(str(session / "camera/video.avi"))
    count = 0
    for image in camera.channels["video.avi"].stream():
        found, expected = movie.read()
        assert found and image.shape == shape
        np.testing.assert_array_equal(image, expected[..., ::-1])  # theirs is RGB
        count += 1
    movie.release()
    assert count == len(camera)
    for k in range(1, len(camera), 17):
        assert camera[k].image.shape == (1, 1, *shape)
        assert camera[k].timestamps[0, 0] == column(session, "camera", "ts")[k]


def test_imu(session: Path) -> None:
    imu = roverd.sensors.IMU(str(session / "imu"))
    ours = {name: column(session, "imu", name) for name in ("acc", "avel", "rot")}
    assert len(imu) == len(ours["acc"])
    for name, values in ours.items():
        np.testing.assert_array_equal(getattr(imu.imudata, name)[:, 0], values)
    sample = imu[len(imu) - 1]
    assert sample.acc.shape == (1, 1, 3)


def test_the_trace_is_found_whole(session: Path) -> None:
    trace = roverd.Trace.from_config(str(session))
    assert {*SENSORS, "lidar_imu"} == set(trace.sensors)  # and nothing of _recorder
    for name, sensor in trace.sensors.items():
        timestamps = sensor.metadata.timestamps
        np.testing.assert_array_equal(timestamps, column(session, name, "ts"))
        assert set(sensor.channels) == set(meta(session, name))
        for channel in sensor.channels.values():
            assert channel.filesize > 0
        last = sensor[len(sensor) - 1]  # every channel, also those that only we have
        assert set(last) == set(sensor.channels)
    assert roverd.Dataset.find_traces(str(session.parent)) == [str(session)]


def test_info(session: Path) -> None:
    done = command("info", session)
    assert done.returncode == 0, done.stderr
    for name in SENSORS:
        count = len(column(session, name, "ts"))
        assert any(
            line.startswith(name) and f"n={count}," in line for line in done.stdout.split("\n")
        )


def test_validate_and_list(session: Path) -> None:
    done = command("validate", session)
    assert (done.returncode, done.stdout) == (0, "Validate: 1 traces with 0 containing errors.\n")
    listed = command("list", session.parent)
    assert (listed.returncode, listed.stdout) == (0, f"{session.name}\n")


def test_checksums_are_theirs(session: Path, tmp_path: Path) -> None:
    """Their ``checksum`` of the data files compares equal to the CSV that closing wrote."""
    theirs = tmp_path / "theirs.csv"
    copy = tmp_path / "copy"
    shutil.copytree(session, copy, ignore=shutil.ignore_patterns("_recorder"))
    done = command("checksum", copy, theirs)
    assert done.returncode == 0, done.stderr
    ours = (session / "_recorder/checksums.csv").read_text().splitlines()
    assert ours[0] == "file,md5"
    expected = theirs.read_text().splitlines()
    assert sorted(line for line in ours if not line.startswith("_recorder")) == sorted(expected)
