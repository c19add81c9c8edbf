"""The faults of a config, all of them at once, and which streams ``record_format`` may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.common.errors import ConfigFaultsError
from tests.config.configs import SMALL, load, refusal


def test_all_that_is_wrong_with_all_sensors_is_reported_at_once(rig: Path) -> None:
    text = """\
version: 1
storage: {sync_intervall_ms: 5, buffer_mb: lots}
sensors:
  cam: {driver: camera, source: "file:gone.mp4", width: wide, fsp: 5}
  nobody: {driver: xens, source: "sim:"}
  Bad: {driver: camera, source: "sim:"}
  good: {driver: camera, source: "sim:"}
  lidar:
    driver: ouster
    source: "pcap:gone.pcap"
    metadata: gone.json
    min_rate: -1
  cpus: {driver: camera, source: "sim:", process: {cpus: [first]}}
session: {name: "{nowhere}"}
calibration: gone.yaml
finalize: [ncoer]
record_format: {streams: [imu]}
control: {curve_keys: gone}
"""
    with pytest.raises(ConfigFaultsError) as caught:
        load(rig, text)
    assert [(error.line, error.key) for error in caught.value.errors] == [
        (2, "storage.sync_intervall_ms"),
        (2, "storage.buffer_mb"),
        (4, "sensors.cam.fsp"),
        (4, "sensors.cam.source"),
        (4, "sensors.cam.width"),
        (5, "sensors.nobody.driver"),
        (6, "sensors.Bad"),
        (10, "sensors.lidar.source"),
        (11, "sensors.lidar.metadata"),
        (12, "sensors.lidar.min_rate"),
        (13, "sensors.cpus.process.cpus[0]"),
        (14, "session.name"),
        (15, "calibration"),
        (16, "finalize[0]"),
        (17, "record_format.streams[0]"),
        (18, "control.curve_keys"),
    ]
    lines = str(caught.value).splitlines()
    assert len(lines) == 16 and all(line.startswith(f"{rig}/rig.yaml:") for line in lines)
    assert caught.value.exit_code == 2


def test_a_mapping_where_none_belongs_hides_no_other_fault(rig: Path) -> None:
    text = """\
version: 1
sensors:
  cam:
    driver: camera
    source: "sim:"
    width: {pixels: 640}
    min_rate: -1
    lens: {n: {one: 1}}
storage:
  buffer_mb: {gb: 1}
  sync_interval_ms: {s: 1}
"""
    with pytest.raises(ConfigFaultsError) as caught:
        load(rig, text)
    assert [(error.line, error.key) for error in caught.value.errors] == [
        (6, "sensors.cam.width"),
        (7, "sensors.cam.min_rate"),
        (8, "sensors.cam.lens.n"),
        (10, "storage.buffer_mb"),
        (11, "storage.sync_interval_ms"),
    ]


def test_a_path_of_the_wrong_type_is_one_fault(rig: Path) -> None:
    text = """\
version: 1
sensors:
  lidar: {driver: ouster, source: "sim:", metadata: {file: a}}
"""
    with pytest.raises(ConfigFaultsError) as caught:
        load(rig, text)
    assert [(error.line, error.key) for error in caught.value.errors] == [
        (3, "sensors.lidar.metadata"),
    ]


@pytest.mark.parametrize(
    ("stream", "known"),
    [
        ("imu", True),
        ("imu_left", True),
        ("imu_left_x", True),
        ("imux", False),
        ("im", False),
        ("left", False),
        ("imu2_x", False),
        ("cam", True),
    ],
)
def test_a_stream_is_named_after_its_sensor(rig: Path, stream: str, known: bool) -> None:
    """It is the sensor's own, or has a name of its own behind the sensor's."""
    imu = SMALL + '  imu: {driver: camera, source: "sim:"}\n'
    text = f"{imu}record_format:\n  streams: [{stream}]\n"
    if known:
        assert load(rig, text).record_format.streams == (stream,)
        return
    error = refusal(rig, text)
    assert error.key == "record_format.streams[0]"
    assert f"no sensor records a stream '{stream}'" in str(error)


def test_the_second_stream_is_looked_at_as_the_first(rig: Path) -> None:
    text = f"{SMALL}record_format:\n  streams: [cam, cam_a, camb]\n"
    assert refusal(rig, text).key == "record_format.streams[2]"
