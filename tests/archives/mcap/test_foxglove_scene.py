"""MCAP files for Foxglove: positions, transforms, labels, events and what is noted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import ArchiveError
from recorder.session.events import make_event
from recorder.session.part import Moment, Part
from tests.archives.mcap.test_foxglove import pack, simulated, stamps
from tests.archives.ncore.packer_rig import CALIBRATION, add_poses
from tests.session.build import START_NS, Builder, build_session, camera_spec
from tests.viewers.live.foxglove.client import stamp_ns
from tests.viewers.live.foxglove.test_playback import box, write_labels
from tests.viewers.live.views.sensors import play


def test_positions_are_fixes_and_samples_without_one_are_left_out(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    streams = simulated(builder, "imu", 40, model="MTi-7")
    gnss = next(stream for stream in streams if stream.spec.name == "imu_gnss")
    found, _ = pack(builder.close(), tmp_path)
    fixes = found.messages["/imu_gnss/fix"]
    known = np.isfinite(gnss.data["pos"]).all(axis=1)
    assert known.any()
    assert stamps(fixes) == gnss.t_ns[known].tolist()
    assert [message.sequence for message in fixes] == np.flatnonzero(known).tolist()
    for message, position in zip(fixes, gnss.data["pos"][known], strict=True):
        fix = message.value
        assert [fix.latitude, fix.longitude, fix.altitude] == position.tolist()
        assert stamp_ns(fix.timestamp) == message.log_ns
    assert len(found.messages["/imu_gnss"]) == len(gnss.t_ns)


@pytest.fixture
def surrounded(tmp_path: Path) -> Path:
    """A camera, a calibration, eleven poses along x, and ten sets of labels, 100 ms apart."""
    path = build_session(tmp_path / "drive", camera_spec(), seconds=1.0).path
    (path / "calibration.yaml").write_text(CALIBRATION)
    t_ns = START_NS + np.arange(11) * 100_000_000
    add_poses(path, t_ns, np.stack([np.arange(11.0), np.zeros(11), np.zeros(11)], 1), "_pose")
    write_labels(path, [box(number) for number in range(10)])
    return path


def test_transforms_are_the_calibration_once_and_every_pose(
    surrounded: Path, tmp_path: Path
) -> None:
    found, _ = pack(surrounded, tmp_path)
    static, *poses = found.messages["/tf"]
    assert static.log_ns == START_NS
    places = {(t.parent_frame_id, t.child_frame_id): t for t in static.value.transforms}
    assert places.keys() == {("rig", "camera"), ("rig", "imu")}
    place = places["rig", "camera"].translation
    assert (place.x, place.y, place.z) == (1.0, 0.0, 1.5)
    assert places["rig", "imu"].rotation.z == 1.0
    assert len(poses) == 11
    for number, message in enumerate(poses):
        (pose,) = message.value.transforms
        assert (pose.parent_frame_id, pose.child_frame_id) == ("world", "rig")
        assert stamp_ns(pose.timestamp) == message.log_ns == START_NS + number * 100_000_000
        assert pose.translation.x == pytest.approx(number, abs=1e-9)


def test_labels_are_scenes_of_each_time(surrounded: Path, tmp_path: Path) -> None:
    found, _ = pack(surrounded, tmp_path)
    updates = found.messages["/labels/truth"]
    assert stamps(updates) == [START_NS + number * 100_000_000 for number in range(10)]
    for number, message in enumerate(updates):
        (entity,) = message.value.entities
        assert [deletion.type for deletion in message.value.deletions] == [1]  # ALL
        assert (entity.id, entity.frame_id) == ("car_01", "rig")
        assert entity.cubes[0].pose.position.x == number


def test_boxes_in_pictures_are_outlines_around_their_pixels(
    surrounded: Path, tmp_path: Path
) -> None:
    t_ns = START_NS + 7
    label = {"t_ns": t_ns, "frame": 0, "track": "car_01", "class": "car", "box_px": [2, 3, 10, 5]}
    folder = surrounded / "_labels"
    folder.mkdir()
    for camera in ("camera", "other"):
        header = {"format": "recorder-boxes", "version": 1, "camera": camera}
        lines = "".join(json.dumps(line) + "\n" for line in (header, label))
        (folder / f"{camera}.jsonl").write_text(lines)
    found, context = pack(surrounded, tmp_path)
    (message,) = found.messages["/camera/boxes"]
    assert found.schemas["/camera/boxes"] == "foxglove.ImageAnnotations"
    assert message.log_ns == stamp_ns(message.value.timestamp) == t_ns
    (outline,), (name,) = message.value.points, message.value.texts
    assert outline.type == 2  # LINE_LOOP
    corners = [(point.x, point.y) for point in outline.points]
    assert corners == [(2.5, 3.5), (12.5, 3.5), (12.5, 8.5), (2.5, 8.5)]
    assert {pair.key: pair.value for pair in outline.metadata} == {
        "class": "car",
        "track": "car_01",
    }
    assert name.text == "car car_01"
    assert "/other/boxes" not in found.schemas
    assert any("_labels/other" in line and "not packed" in line for line in context.notes.lines)


def test_a_stream_with_the_name_of_another_topic_keeps_its_samples(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec("labels"), 0.1)
    for name in ("log", "tf"):
        channels = (ChannelSpec("value", "raw", "f4"),)
        builder.add(StreamSpec(name, channels, rate_hz=10.0), 0.3)
    builder.lose("log", 3, 4)
    path = builder.close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    write_labels(path, [box(0)])
    found, _ = pack(path, tmp_path)
    for topic in ("/stream/log", "/stream/tf", "/stream/labels/image"):
        assert len(found.messages[topic]) == 3
    assert found.schemas["/log"] == "foxglove.Log"
    assert found.schemas["/tf"] == "foxglove.FrameTransforms"


def test_frames_of_a_radar_that_lack_packets_are_noted(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    spec = next(play("radar", 1))[0]
    assert spec.channel("valid").format == "raw"
    builder.add(spec, count=4)
    path = builder.close()
    (path / "radar" / "valid").write_bytes(bytes([1, 0, 1, 1]))
    found, context = pack(path, tmp_path)
    assert [message.value["valid"] for message in found.messages["/radar"]] == [1, 0, 1, 1]
    assert "radar: 1 frames lack packets" in context.notes.lines


def test_events_are_logs_and_losses_and_marks_have_topics_of_their_own(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.2)
    builder.lose("camera", 6, 8, t_ns=START_NS + 5)
    builder.events.append(make_event("mark", START_NS + 9, text="pothole <b>"))
    builder.events.append(
        make_event("fault", START_NS + 12, "camera", "absent", detail="no answer")
    )
    found, _ = pack(builder.close(), tmp_path)
    logs = [message.value for message in found.messages["/log"]]
    assert [log.message for log in logs] == [
        "lost 3 samples (buffer)", "mark: pothole <b>", "fault: no answer",
    ]  # fmt: skip
    assert [log.level for log in logs] == [3, 2, 4]  # WARNING, INFO, ERROR
    assert [log.name for log in logs] == ["camera", "recorder", "camera"]
    assert stamps(found.messages["/log"]) == [START_NS + 5, START_NS + 9, START_NS + 12]
    (mark,) = found.messages["/recorder/marks"]
    assert (mark.log_ns, mark.value["text"]) == (START_NS + 9, "pothole <b>")
    (loss,) = found.messages["/recorder/losses"]
    assert (loss.value["stream"], loss.value["count"]) == ("camera", 3)


def test_a_part_has_poses_and_labels_of_its_time_alone(surrounded: Path, tmp_path: Path) -> None:
    part = Part(Moment.parse("0.25"), Moment.parse("0.55"), ("camera",))
    found, _ = pack(surrounded, tmp_path, part)
    begin, end = START_NS + 250_000_000, START_NS + 550_000_000
    for topic in ("/camera/image", "/labels/truth", "/tf"):
        times = stamps(found.messages[topic])
        assert len(times) >= 3
        assert begin <= min(times) and max(times) < end
    assert stamps(found.messages["/labels/truth"]) == [
        START_NS + number * 100_000_000 for number in (3, 4, 5)
    ]


def test_a_wrong_label_is_an_error_that_names_its_line(surrounded: Path, tmp_path: Path) -> None:
    write_labels(surrounded, [box(0), box(1, size_m=[1.0])])
    with pytest.raises(ArchiveError, match=r"labels/truth: .*truth\.jsonl:3: size_m: needs 3"):
        pack(surrounded, tmp_path)


def test_channels_without_a_message_are_noted(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.1)
    channels = (ChannelSpec("sound", "raw", "f4", (1000,)), ChannelSpec("gain", "raw", "f4"))
    builder.add(StreamSpec("audio", channels, rate_hz=10.0), 0.3)
    builder.add(StreamSpec("scope", channels[:1], rate_hz=10.0), 0.3)
    found, context = pack(builder.close(), tmp_path)
    assert len(found.messages["/audio"]) == 3
    assert "/scope" not in found.schemas
    lines = [line for line in context.notes.lines if "no message has the channels sound" in line]
    assert len(lines) == 2
