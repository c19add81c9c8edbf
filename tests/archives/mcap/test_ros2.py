"""Bags of ROS 2: topics, stamps and values against the session's, as rosbags reads them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader

from recorder.archives.mcap.ros2_clouds import RADAR_POINT
from recorder.codecs.raw_pixels import RawPixels
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError
from recorder.perception.lidar.lidar import pixel_shifts
from recorder.perception.lidar.points import SweepPoints
from recorder.session.reader import Session
from tests.archives.contract import ArchiveContract
from tests.archives.mcap.bags import (
    Bag,
    cloud,
    image,
    pack,
    rig,
    stamp_ns,
    two_returns,
)
from tests.archives.ncore.packer_rig import LIDAR_JSON, lidar, still_imu
from tests.session.build import (
    BEAMS,
    COLUMNS,
    RADAR_JSON,
    START_NS,
    Builder,
    Recorded,
    build_session,
    camera_spec,
    imu_spec,
    radar_spec,
    raw_camera_spec,
)

SHARED = {"lidar": "points_and_ranges", "iq": True, "maps": True}


class TestRos2(ArchiveContract):
    archive = "mcap"
    options = {"profile": "ros2"}


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Bag:
    builder = rig(tmp_path_factory.mktemp("ros2") / "drive")
    builder.close()
    return pack(builder, **SHARED)


def test_topics_are_those_of_ros(bag: Bag) -> None:
    assert sorted(bag.messages) == [
        "/camera/camera_info", "/camera/image/compressed", "/imu/data", "/labels/people",
        "/lidar/nearir_image", "/lidar/points", "/lidar/range_far_image", "/lidar/range_image",
        "/lidar/reflec_image", "/radar/config", "/radar/detections", "/radar/iq",
        "/radar/range_doppler", "/recorder/losses", "/recorder/marks", "/rosout", "/tf",
        "/tf_static", "/wheel/samples",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "stream"),
    [
        ("/camera/image/compressed", "camera"),
        ("/camera/camera_info", "camera"),
        ("/lidar/points", "lidar"),
        ("/lidar/range_image", "lidar"),
        ("/radar/detections", "radar"),
        ("/radar/iq", "radar"),
        ("/radar/range_doppler", "radar"),
        ("/imu/data", "imu"),
        ("/wheel/samples", "wheel"),
        ("/tf", "wheel"),  # its stamps are those of the poses
    ],
)
def test_every_sample_is_there_at_its_stamp(bag: Bag, topic: str, stream: str) -> None:
    assert bag.log_ns(topic) == bag.recorded[stream].t_ns.tolist()


def test_messages_are_in_order_of_log_time(bag: Bag) -> None:
    for topic in bag.messages:
        assert bag.log_ns(topic) == sorted(bag.log_ns(topic))


def test_metadata_is_that_of_the_bag(bag: Bag) -> None:
    text = (bag.folder / "metadata.yaml").read_text()
    found = yaml.safe_load(text)["rosbag2_bagfile_information"]
    name = bag.folder.name
    assert found["relative_file_paths"] == [f"{name}_0.mcap"]
    assert {path.name for path in bag.folder.iterdir()} == {f"{name}_0.mcap", "metadata.yaml"}
    counts = {
        entry["topic_metadata"]["name"]: entry["message_count"]
        for entry in found["topics_with_message_count"]
    }
    assert counts == {topic: len(messages) for topic, messages in bag.messages.items()}
    assert found["message_count"] == sum(counts.values())
    times = [t_ns for topic in bag.messages for t_ns in bag.log_ns(topic)]
    assert found["starting_time"]["nanoseconds_since_epoch"] == min(times)
    assert found["duration"]["nanoseconds"] == max(times) - min(times)
    durability = {
        entry["topic_metadata"]["name"]: yaml.safe_load(
            entry["topic_metadata"]["offered_qos_profiles"]
        )[0]["durability"]
        for entry in found["topics_with_message_count"]
    }
    latched = {topic for topic, kind in durability.items() if kind == 1}
    assert latched == {
        "/tf_static", "/rosout", "/radar/config", "/recorder/losses", "/recorder/marks",
    }  # fmt: skip


def test_jpegs_are_unchanged(bag: Bag) -> None:
    with Session(bag.folder.parents[2]) as session:
        camera = session.streams["camera"].channels["video.avi"]
        expected = [camera.encoded(index) for index in range(len(camera))]
    found = bag.of("/camera/image/compressed")
    assert [message.data.tobytes() for message in found] == expected
    assert {(message.format, message.header.frame_id) for message in found} == {
        ("jpeg", "camera_optical_frame")
    }
    assert [stamp_ns(message) for message in found] == bag.recorded["camera"].t_ns.tolist()


def test_jpegs_are_not_compressed_again(bag: Bag) -> None:
    (path,) = bag.folder.glob("*.mcap")
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    topics = {number: channel.topic for number, channel in summary.channels.items()}
    for chunk in summary.chunk_indexes:
        found = {topics[number] for number in chunk.message_index_offsets}
        jpegs = "/camera/image/compressed"
        assert (found == {jpegs}) if chunk.compression == "" else (jpegs not in found)


def test_camera_info_is_the_calibration(bag: Bag) -> None:
    info = bag.of("/camera/camera_info")
    assert [stamp_ns(message) for message in info] == bag.recorded["camera"].t_ns.tolist()
    first = info[0]
    assert (first.width, first.height, first.distortion_model) == (32, 24, "plumb_bob")
    assert first.header.frame_id == "camera_optical_frame"
    assert first.k.reshape(3, 3).tolist() == [[30, 0, 15.5], [0, 31, 11.5], [0, 0, 1]]
    assert first.d.tolist() == [0.1, 0, 0, 0, 0]
    assert first.p.reshape(3, 4)[:, :3].tolist() == first.k.reshape(3, 3).tolist()
    assert first.r.reshape(3, 3).tolist() == np.eye(3).tolist()


def test_a_fisheye_is_equidistant(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "drive", camera_spec(), seconds=0.1)
    (builder.path / "calibration.yaml").write_text(
        "sensors: {camera: {model: opencv-fisheye, resolution: [32, 24], "
        "parameters: {fx: 30, fy: 30, cx: 15, cy: 11, k1: 0.1, k2: 0.2, k3: 0.3, k4: 0.4}}}"
    )
    (first, *_) = pack(builder).of("/camera/camera_info")
    assert (first.distortion_model, first.d.tolist()) == ("equidistant", [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("pixels", "encoding"),
    [
        (RawPixels(8), "mono8"),
        (RawPixels(12), "mono16"),
        (RawPixels(8, "GBRG"), "bayer_gbrg8"),
        (RawPixels(10, "RGGB"), "bayer_rggb16"),
    ],
)
def test_raw_pictures_have_the_recorded_values(
    tmp_path: Path, pixels: RawPixels, encoding: str
) -> None:
    builder = Builder(tmp_path / "drive")
    made = builder.add(raw_camera_spec(pixels=pixels), 0.2)
    builder.close()
    bag = pack(builder)
    messages = bag.of("/camera/image_raw")
    for message, values in zip(messages, made.data[pixels.channel], strict=True):
        assert message.encoding == encoding
        assert np.array_equal(image(message), values)
    assert bag.noted("camera", "no camera_info")


def test_raw_pictures_become_jpegs_on_request_and_it_is_noted(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "drive", raw_camera_spec(), seconds=0.2)
    bag = pack(builder, raw_pictures="jpeg")
    assert len(bag.of("/camera/image/compressed")) == 6
    assert bag.of("/camera/image/compressed")[0].data[:2].tobytes() == b"\xff\xd8"
    assert bag.noted("camera", "packed with 8 bits")


def test_further_channels_are_json_or_noted(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    spec = imu_spec()
    field = ChannelSpec("mag", "raw", "f4", (3,), "magnetic field")
    large = ChannelSpec("spectrum", "raw", "f4", (1000,), "vibration")
    made = builder.add(replace(spec, channels=(*spec.channels, field, large)), 0.1)
    builder.close()
    bag = pack(builder)
    found = [json.loads(message.data) for message in bag.of("/imu/samples")]
    assert [sample["mag"] for sample in found] == made.data["mag"].tolist()
    assert "spectrum" not in found[0]
    assert bag.noted("imu", "no message has the channels spectrum")
    assert len(bag.of("/imu/data")) == len(found) == 10


@pytest.mark.parametrize("order", ["destaggered", "staggered"])
def test_points_are_those_of_the_sweep(tmp_path: Path, order: str) -> None:
    upright = order == "destaggered"
    builder = Builder(tmp_path / "drive")
    made = builder.add(two_returns(), 0.3, offset_ns=100_000_000)
    builder.close()
    bag = pack(builder, points=order)
    sweeps = SweepPoints(made.spec, destaggered=upright, organized=upright)
    topics = ["/lidar/points", "/lidar/points2"] if upright else ["/lidar/points"]
    assert sorted(t for t in bag.messages if t.startswith("/lidar")) == topics
    for index, t_ns in enumerate(made.t_ns.tolist()):
        start_ns, expected = sweeps.points({n: v[index] for n, v in made.data.items()}, t_ns)
        clouds = [bag.of(topic)[index] for topic in topics]
        assert {stamp_ns(message) for message in clouds} == {start_ns}
        assert {message.header.frame_id for message in clouds} == {"lidar"}
        assert {message.is_dense for message in clouds} == {not upright}
        if upright:
            assert {cloud(message).shape for message in clouds} == {(BEAMS, COLUMNS)}
        found = np.concatenate([cloud(message).reshape(-1) for message in clouds])
        for name in expected.dtype.names or ():
            assert np.array_equal(
                found[name].astype(expected[name].dtype), expected[name], equal_nan=name in "xyz"
            ), name
        # The stamp is the time of the last column.
        assert start_ns + int(found["t"].max()) == t_ns


def test_fields_of_points_are_of_the_types_that_pcl_expects(bag: Bag) -> None:
    fields = {field.name: field.datatype for field in bag.of("/lidar/points")[0].fields}
    assert fields == {"x": 7, "y": 7, "z": 7, "intensity": 7, "t": 6, "ring": 4, "return": 2}


def test_a_detection_is_as_large_as_its_fields() -> None:
    names = RADAR_POINT.names or ()
    kinds = [RADAR_POINT[name].str for name in names]
    assert kinds == [*["<f4"] * 6, "|u1"]
    offsets = [RADAR_POINT.fields[name][1] for name in names] if RADAR_POINT.fields else []
    assert (offsets, RADAR_POINT.itemsize) == ([0, 4, 8, 12, 16, 20, 24], 28)


@pytest.mark.parametrize("order", ["destaggered", "staggered"])
def test_images_have_the_recorded_values(tmp_path: Path, order: str) -> None:
    builder = build_session(tmp_path / "drive", lidar(), seconds=0.2)
    made = builder.streams["lidar"]
    bag = pack(builder, lidar="ranges", points=order)
    assert "/lidar/points" not in bag.messages
    sweeps = SweepPoints(made.spec)
    optics = sweeps.optics
    shifts = pixel_shifts(LIDAR_JSON, optics, "lidar.json")
    for channel, topic in (
        ("rng", "range_image"), ("rng_far", "range_far_image"), ("rfl", "reflec_image"),
        ("nir", "nearir_image"),
    ):  # fmt: skip
        for index, message in enumerate(bag.of(f"/lidar/{topic}")):
            sample = {name: values[index] for name, values in made.data.items()}
            values = expected = sample[channel]
            if order == "destaggered":
                rows = [np.roll(row, shift) for row, shift in zip(values, shifts, strict=True)]
                expected = np.stack(rows)
            assert np.array_equal(image(message), expected)
            assert stamp_ns(message) == sweeps.column_times(sample, int(made.t_ns[index]))[0]
        assert bag.log_ns(f"/lidar/{topic}") == made.t_ns.tolist()


def test_a_lidar_may_be_left_out(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "drive", lidar(), still_imu(), seconds=0.2)
    assert not [t for t in pack(builder, lidar="none").messages if t.startswith("/lidar")]


def test_detections_are_those_of_the_processing(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    made = builder.add(radar_spec(), 0.3)
    echo(made.data["iq"], builder)
    builder.close()
    bag = pack(builder)
    with Session(builder.path) as session:
        from recorder.perception.calibration import Calibration
        from recorder.perception.radar.detections import RadarDetections
        from recorder.perception.sensor_files import radar_geometry

        stream = session.streams["radar"]
        geometry = radar_geometry(stream, Calibration())
        radar = RadarDetections(geometry, lambda k: stream.sample(k)["iq"], stream.t_ns)
        expected = [radar.points(index) for index in range(len(stream))]
    assert sum(map(len, expected)) > 0
    for message, points in zip(bag.of("/radar/detections"), expected, strict=True):
        found = cloud(message)[0] if message.width else np.empty(0, cloud(message).dtype)
        assert len(found) == len(points)
        for name in points.dtype.names or ():
            assert np.array_equal(found[name], points[name])
        assert not np.any(np.reshape(message.data, (-1, 28))[:, 25:])  # no old bytes of memory
        assert message.header.frame_id == "radar"


def echo(iq: Any, builder: Builder) -> None:
    """Replace random IQ by a target in every frame."""
    values = iq.shape[-1] // 2
    tone = 4000 * np.exp(2j * np.pi * 0.2 * np.arange(values))
    pairs = np.stack([tone.real, tone.imag], -1)
    order = json.loads(RADAR_JSON)["iq_order"]
    assert order == "iiqq"
    # Two samples of I, then the same two of Q.
    blocks = pairs.reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1)
    noise = np.random.default_rng(3).normal(0, 3, iq.shape)
    made = (blocks + noise).astype(np.int16)
    made.astype("<i2").tofile(builder.path / "radar" / "iq")


def test_iq_is_unchanged_and_has_its_chirp(bag: Bag) -> None:
    recorded = bag.recorded["radar"].data["iq"]
    for message, values in zip(bag.of("/radar/iq"), recorded, strict=True):
        dimensions = message.layout.dim
        assert [d.label for d in dimensions] == ["chirp", "tx", "rx", "value"]
        shape = tuple(d.size for d in dimensions)
        assert np.array_equal(message.data.reshape(shape), values)
        assert [d.stride for d in dimensions] == [values.size, *np.cumprod(shape[:0:-1])[::-1]]
    ((t_ns, config),) = bag.messages["/radar/config"]
    assert t_ns == bag.recorded["radar"].t_ns[0]
    assert config.data == RADAR_JSON


def test_maps_are_images_of_range_and_speed(bag: Bag) -> None:
    from recorder.perception.calibration import Calibration
    from recorder.perception.sensor_files import radar_geometry

    with Session(bag.folder.parents[2]) as session:
        geometry = radar_geometry(session.streams["radar"], Calibration())
    for message in bag.of("/radar/range_doppler"):
        assert image(message).shape == (8, geometry.ranges)
        assert np.median(image(message)) == pytest.approx(
            40, abs=1
        )  # the noise, -LEAST_DB / STEP_DB


def replace_data(made: Recorded, data: dict[str, Any]) -> Recorded:
    return replace(made, data={**made.data, **data})


def rewrite(builder: Builder, made: Recorded) -> None:
    """Record a stream again, with other values."""
    shutil.rmtree(builder.path / made.spec.name)
    builder._write(made)
    builder.close()


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "</script>", "x" * 100_000])
def test_hostile_marks_are_packed(tmp_path: Path, text: str) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(still_imu(), 0.1)
    builder.events.append({"t_ns": START_NS, "type": "mark", "text": text, "stream": "imu\0"})
    builder.close()
    bag = pack(builder)
    (log,) = bag.of("/rosout")
    assert log.msg == "mark: " + text.replace("\0", "\N{REPLACEMENT CHARACTER}").replace(
        "\ud800", "?"
    )
    (mark,) = bag.of("/recorder/marks")
    assert json.loads(mark.data)["text"] == text


def test_a_time_beyond_the_seconds_of_ros_names_the_stream(tmp_path: Path) -> None:
    builder = build_session(tmp_path / "drive", still_imu(), seconds=0.1, plain=True)
    made = builder.streams["imu"]
    (made.t_ns / 1e9 + 2**31).astype("<f8").tofile(builder.path / "imu" / "ts")
    with pytest.raises(FormatError, match=r"imu, sample 0: .*int32 seconds, until 2038"):
        pack(builder)
