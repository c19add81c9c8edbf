"""Detections as points: each value is the processor's, and speeds are resolved over frames."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from recorder.common.errors import FormatError
from recorder.perception.radar.detections import DETECTION, RadarDetections, detection_points
from recorder.perception.radar.frames import BATCH, RadarFrames
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.radar import RadarProcessor, SpeedMethod
from tests.viewers.live.views.sensors import play


def test_points_are_the_resolved_detections_of_each_frame() -> None:
    parts = [(spec, sample) for spec, sample, _ in play("radar", 5)]
    spec = parts[0][0]
    geometry = RadarGeometry.of_metadata(spec.files["radar.json"], "radar.json")
    frames = [np.asarray(sample.data["iq"])[0] for _, sample in parts]
    t_ns = np.array([int(sample.t_ns[0]) for _, sample in parts])
    radar = RadarDetections(geometry, frames.__getitem__, t_ns, limit=40)
    processor = RadarProcessor(geometry, limit=40)
    wanted = RadarFrames(processor, frames.__getitem__, t_ns).resolved(2)
    assert 0 < len(wanted) <= 40
    points = radar.points(2)
    assert points.dtype == DETECTION and len(points) == len(wanted)
    xyz = np.stack([points[axis] for axis in "xyz"], axis=1)
    np.testing.assert_allclose(np.linalg.norm(xyz, axis=1), wanted.range_m, rtol=1e-6)
    np.testing.assert_array_equal(xyz, wanted.direction * wanted.range_m[:, None])
    np.testing.assert_array_equal(points["velocity"], wanted.velocity_m_s)
    np.testing.assert_array_equal(points["power"], wanted.power_db)
    np.testing.assert_array_equal(points["snr"], wanted.snr_db)
    np.testing.assert_array_equal(points["method"], wanted.method)
    assert (np.diff(points["power"]) <= 0).all()
    assert (points["method"] != SpeedMethod.AMBIGUOUS).any()
    assert radar.facts()["velocity_methods"] == {"ambiguous": 0, "array": 1, "range_rate": 2}
    assert radar.remarks() == []


def test_a_frame_that_cannot_be_read_is_an_error_of_its_own_alone() -> None:
    parts = [(spec, sample) for spec, sample, _ in play("radar", BATCH + 2)]
    geometry = RadarGeometry.of_metadata(parts[0][0].files["radar.json"], "radar.json")
    frames: list[npt.NDArray[np.int16]] = [np.asarray(s.data["iq"])[0] for _, s in parts]
    t_ns = np.array([int(sample.t_ns[0]) for _, sample in parts])
    reads: list[int] = []

    def read(index: int) -> npt.NDArray[np.int16]:
        reads.append(index)
        if index == 3:
            raise FormatError("radar/iq: frame 3 is damaged")
        frame: npt.NDArray[np.int16] = frames[index]
        return frame

    radar = RadarDetections(geometry, read, t_ns)
    for index in (0, 1, 2, 4, 5, BATCH, BATCH + 1):
        assert len(radar.points(index)) > 0
    assert [reads.count(index) for index in range(BATCH + 2) if index != 3] == [1] * (BATCH + 1)
    with pytest.raises(FormatError, match="frame 3 is damaged"):
        radar.points(3)


def test_a_frame_without_a_target_has_no_point() -> None:
    spec = next(play("radar", 1))[0]
    geometry = RadarGeometry.of_metadata(spec.files["radar.json"], "radar.json")
    found = RadarProcessor(geometry).detect(np.zeros(spec.channel("iq").shape, np.int16))
    assert detection_points(found).shape == (0,)
