"""The profile ``foxglove``: every sample with its stamp and its values, decoded by the schemas."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ouster.sdk import core

from recorder.archives.context import PackingContext
from recorder.archives.mcap.foxglove import PROFILE
from recorder.archives.mcap.packer import PACKER
from recorder.codecs.raw_pixels import RawPixels
from recorder.common.errors import ArchiveError
from recorder.perception.calibration import Calibration, read_calibration
from recorder.perception.lidar.points import POINT, SweepPoints
from recorder.perception.radar.detections import DETECTION, RadarDetections
from recorder.perception.radar.geometry import RadarGeometry
from recorder.perception.radar.radar import SpeedMethod
from recorder.session.part import Part
from recorder.session.reader import Session
from recorder.session.session_part import SessionPart
from tests.archives.mcap.reading import Logged, Read, read
from tests.archives.ncore.packer_rig import CALIBRATION, lidar, still_imu
from tests.session.build import (
    START_NS,
    Builder,
    Recorded,
    build_session,
    camera_spec,
    imu_spec,
    raw_camera_spec,
)
from tests.viewers.live.foxglove.client import stamp_ns
from tests.viewers.live.views.sensors import play


def context_of(session: Session, folder: Path, **options: Any) -> PackingContext:
    path = session.path / "calibration.yaml"
    calibration = read_calibration(path) if path.is_file() else Calibration()
    return PackingContext(session, folder, PACKER.check(options), calibration)


def pack(
    path: Path, tmp_path: Path, part: Part | None = None, **options: Any
) -> tuple[Read, PackingContext]:
    opened = SessionPart(path, part) if part else Session(path, virtual=True)
    with opened as session:
        context = context_of(session, Path(mkdtemp(dir=tmp_path)), **options)
        with closing(context):
            (name,) = PACKER.pack(context).files
        return read(context.folder / name), context


def simulated(builder: Builder, name: str, count: int, **options: Any) -> list[Recorded]:
    """Record the first messages of a simulated sensor; its own stream, then the others."""
    parts: dict[str, list[Any]] = {name: []}
    specs = {}
    for spec, sample, _ in play(name, 10_000, **options):
        parts.setdefault(spec.name, []).append(sample)
        specs[spec.name] = spec
        if len(parts[name]) == count:
            break
    first = min(int(samples[0].t_ns[0]) for samples in parts.values())
    made = []
    for stream, samples in parts.items():
        t_ns = np.concatenate([sample.t_ns for sample in samples]) - first + START_NS + 1_000_000
        device = [sample.t_dev_ns for sample in samples if sample.t_dev_ns is not None]
        data = {
            channel: np.concatenate([np.asarray(sample.data[channel]) for sample in samples])
            for channel in samples[0].data
        }
        recorded = Recorded(
            specs[stream], t_ns, np.arange(len(t_ns)), np.concatenate(device) if device else None,
            data,
        )  # fmt: skip
        builder.streams[stream] = recorded
        builder.epochs[stream] = [{"epoch": 11, "first_sample": 0}]
        entry = builder.sensors.setdefault(name, {"driver": name, "streams": []})
        entry["streams"].append(stream)
        builder._write(recorded)
        made.append(recorded)
    return made


def values_of(cloud: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The points of a PointCloud by its own fields, which must be those of the dtype."""
    kinds = {1: "u1", 3: "u2", 5: "u4", 7: "f4"}
    fields = {field.name: (kinds[field.type], field.offset) for field in cloud.fields}
    assert fields == {
        name: (kind.str[1:], offset) for name, (kind, offset, *_) in (dtype.fields or {}).items()
    }
    assert cloud.point_stride == dtype.itemsize
    return np.frombuffer(cloud.data, dtype)


def image_of(image: Any) -> npt.NDArray[Any]:
    kinds = {"mono8": "u1", "mono16": "<u2", "16SC1": "<i2", "32FC1": "<f4", "bayer_grbg8": "u1"}
    kind = np.dtype(kinds[image.encoding])
    assert image.step == image.width * kind.itemsize
    return np.frombuffer(image.data, kind).reshape(image.height, image.width)


def stamps(messages: list[Logged]) -> list[int]:
    return [message.log_ns for message in messages]


def test_pictures_are_the_recorded_jpegs_and_samples_of_an_imu_are_json(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    camera = builder.add(camera_spec(), seq=[0, 1, 2, 5, 6])
    builder.lose("camera", 3, 4)
    imu = builder.add(still_imu(), 0.3)
    path = builder.close()
    (path / "calibration.yaml").write_text(CALIBRATION)
    found, context = pack(path, tmp_path)
    pictures = found.messages["/camera/image"]
    assert found.schemas["/camera/image"] == "foxglove.CompressedImage"
    assert stamps(pictures) == camera.t_ns.tolist()
    assert [message.sequence for message in pictures] == [0, 1, 2, 5, 6]
    with Session(path) as session:
        reader = session.streams["camera"].channels["video.avi"]
        for index, message in enumerate(pictures):
            image = message.value
            assert image.data == bytes(reader.encoded(index))
            assert (image.format, image.frame_id) == ("jpeg", "camera")
            assert stamp_ns(image.timestamp) == message.log_ns
    samples = found.messages["/imu"]
    assert stamps(samples) == imu.t_ns.tolist()
    assert [message.sequence for message in samples] == imu.seq.tolist()
    for index, message in enumerate(samples):
        values = message.value
        assert stamp_ns(values["timestamp"]) == message.log_ns
        assert (values["seq"], values["t_dev"]) == (index, int(imu.t_dev_ns[index]))  # type: ignore[index]
        for name in ("acc", "avel", "rot"):
            np.testing.assert_array_equal(np.float32(values[name]), imu.data[name][index])
    (calibration,) = found.messages["/camera/calibration"]
    assert calibration.log_ns == int(camera.t_ns[0])
    assert list(calibration.value.K) == [30, 0, 15.5, 0, 31, 11.5, 0, 0, 1]
    assert any("lost samples: 2 (buffer)" in line for line in context.notes.lines)
    assert [log.value.message for log in found.messages["/log"]] == ["lost 2 samples (buffer)"]
    assert [log.value.name for log in found.messages["/log"]] == ["camera"]


@pytest.mark.parametrize("points", ["destaggered", "staggered"])
def test_points_are_those_of_the_sweep(tmp_path: Path, points: str) -> None:
    builder = Builder(tmp_path / "drive")
    lidar_, *_ = simulated(builder, "lidar", 3, beams=32, mode="512x10")
    path = builder.close()
    found, _ = pack(path, tmp_path, points=points)
    assert "/lidar/range" not in found.schemas
    clouds = found.messages["/lidar/points"]
    assert found.schemas["/lidar/points"] == "foxglove.PointCloud"
    assert found.metadata["/lidar/points"]["order"] == points
    assert stamps(clouds) == lidar_.t_ns.tolist()
    sweeps = SweepPoints(lidar_.spec, destaggered=points == "destaggered")
    for index, message in enumerate(clouds):
        sample = {name: values[index] for name, values in lidar_.data.items()}
        start_ns, expected = sweeps.points(sample, message.log_ns)
        assert (message.value.frame_id, stamp_ns(message.value.timestamp)) == ("lidar", start_ns)
        assert np.array_equal(values_of(message.value, POINT), expected)
        assert len(expected) > 1000


def test_images_of_sweeps_have_every_value_of_the_recording(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    made = builder.add(lidar(), 0.3)
    found, context = pack(builder.close(), tmp_path, lidar="ranges", points="staggered")
    assert "/lidar/points" not in found.schemas
    assert {topic for topic in found.schemas if topic.startswith("/lidar")} == {
        "/lidar/range", "/lidar/reflectivity", "/lidar/near_ir", "/lidar/columns",
    }  # fmt: skip
    for index in range(3):
        data = {name: values[index] for name, values in made.data.items()}
        ranges = found.messages["/lidar/range"][index]
        assert ranges.log_ns == int(made.t_ns[index])
        range_mm = np.rint(1000 * image_of(ranges.value).astype(np.float64))
        assert np.array_equal(range_mm, data["rng"].astype(np.int64) + data["rng_far"])
        bright = found.messages["/lidar/reflectivity"][index].value
        assert np.array_equal(image_of(bright), data["rfl"])
        ambient = found.messages["/lidar/near_ir"][index].value
        assert np.array_equal(image_of(ambient), data["nir"])
        columns = found.messages["/lidar/columns"][index].value
        assert columns["t_col"] == data["t_col"].tolist()
    assert not any("no message has" in line for line in context.notes.lines)


def test_destaggered_images_are_upright(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    lidar_, *_ = simulated(builder, "lidar", 1, beams=32, mode="512x10")
    found, _ = pack(builder.close(), tmp_path, lidar="points_and_ranges")
    assert len(found.messages["/lidar/points"]) == 1
    (message,) = found.messages["/lidar/reflectivity"]
    info = core.SensorInfo(lidar_.spec.files["lidar.json"])
    assert np.array_equal(image_of(message.value), core.destagger(info, lidar_.data["rfl"][0]))


def test_second_returns_have_points_and_images_of_their_own(tmp_path: Path) -> None:
    spec = lidar()
    more = tuple(replace(spec.channel(name), name=f"{name}2") for name in ("rng", "rfl"))
    builder = Builder(tmp_path / "drive")
    made = builder.add(replace(spec, channels=spec.channels + more), 0.1)
    found, _ = pack(builder.close(), tmp_path, lidar="points_and_ranges", points="staggered")
    first, second = (found.messages[f"/lidar/{name}"][0].value for name in ("range", "range2"))
    data = {name: values[0] for name, values in made.data.items()}
    near = np.rint(1000 * image_of(first).astype(np.float64))
    assert np.array_equal(near, data["rng"].astype(np.int64) + data["rng_far"])
    assert np.array_equal(np.rint(1000 * image_of(second).astype(np.float64)), data["rng2"])
    bright = found.messages["/lidar/reflectivity2"][0].value
    assert np.array_equal(image_of(bright), data["rfl2"])
    points = values_of(found.messages["/lidar/points"][0].value, POINT)
    assert np.count_nonzero(points["return"]) == np.count_nonzero(data["rng2"])


def test_samples_of_a_fast_sensor_have_their_numbers_and_pictures_no_compression(
    tmp_path: Path,
) -> None:
    builder = Builder(tmp_path / "drive")
    made = builder.add(imu_spec(rate_hz=500.0), seq=[*range(20), *range(25, 50)])
    builder.lose("imu", 20, 24)
    builder.add(camera_spec(), 0.1)
    path = builder.close()
    found, _ = pack(path, tmp_path)
    samples = found.messages["/imu"]
    assert [message.sequence for message in samples] == made.seq.tolist()
    assert [message.value["seq"] for message in samples] == made.seq.tolist()
    with Session(path) as session:
        feeds = PROFILE.feeds(context_of(session, tmp_path))
    compressed = {topic.name: topic.compress for feed in feeds for topic in feed.topics}
    assert compressed == {"/imu": True, "/camera/image": False, "/tf": True}


def test_places_of_sensors_come_before_poses_that_are_older_than_the_samples(
    tmp_path: Path,
) -> None:
    path = build_session(tmp_path / "drive", camera_spec(), seconds=0.1).path
    (path / "calibration.yaml").write_text(CALIBRATION)
    (path / "_pose").mkdir()
    t_s = (START_NS + np.arange(-2, 3) * 1_000_000_000) / 1e9
    turns = np.tile(np.eye(3), (5, 1, 1))
    np.savez(path / "_pose" / "pose.npz", t=t_s, pos=np.zeros((5, 3)), rot=turns)
    found, _ = pack(path, tmp_path)
    static, *poses = found.messages["/tf"]
    assert {t.child_frame_id for t in static.value.transforms} == {"camera", "imu"}
    assert len(poses) == 5
    assert static.log_ns == poses[0].log_ns


def test_a_lidar_may_be_left_out(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    builder.add(camera_spec(), 0.1)
    builder.add(lidar(), 0.3)
    found, context = pack(builder.close(), tmp_path, lidar="none")
    assert not any(topic.startswith("/lidar") for topic in found.schemas)
    (line,) = [line for line in context.notes.lines if "no message has" in line]
    assert "rng, rng_far, rfl, nir, t_col" in line


def test_detections_are_resolved_and_iq_comes_with_its_chirp(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "drive")
    (radar,) = simulated(builder, "radar", 5)
    path = builder.close()
    found, _ = pack(path, tmp_path)
    assert {t for t in found.schemas if t.startswith("/radar")} == {"/radar", "/radar/detections"}
    detections = found.messages["/radar/detections"]
    assert stamps(detections) == radar.t_ns.tolist()
    iq = radar.data["iq"]
    geometry = RadarGeometry.of_metadata(radar.spec.files["radar.json"], "radar.json")
    wanted = RadarDetections(geometry, lambda index: iq[index], radar.t_ns)
    methods = set()
    for index, message in enumerate(detections):
        points = values_of(message.value, DETECTION)
        assert len(points) > 0
        assert np.array_equal(points, wanted.points(index))
        assert stamp_ns(message.value.timestamp) == message.log_ns
        methods |= set(points["method"].tolist())
    assert methods - {int(SpeedMethod.AMBIGUOUS)}
    facts = found.metadata["/radar/detections"]
    assert json.loads(facts["velocity_methods"]) == {"ambiguous": 0, "array": 1, "range_rate": 2}
    assert [message.value["valid"] for message in found.messages["/radar"]] == [1] * 5

    full, _ = pack(path, tmp_path, iq=True, maps=True)
    assert {"/radar/range_doppler", "/radar/range_azimuth"} <= full.messages.keys()
    chirp = full.metadata["/radar/iq"]
    assert json.loads(chirp["radar.json"]) == json.loads(radar.spec.files["radar.json"])
    assert json.loads(chirp["iq_order"]) == geometry.iq_order
    shape = json.loads(chirp["shape"])
    for index, message in enumerate(full.messages["/radar/iq"]):
        assert message.value.encoding == "16SC1"
        assert np.array_equal(image_of(message.value).reshape(shape), iq[index])
    assert [m.data for m in full.messages["/radar/detections"]] == [m.data for m in detections]


@pytest.mark.parametrize(
    ("pixels", "encoding"),
    [(RawPixels(12), "mono16"), (RawPixels(10, "RGGB"), "mono16"), (RawPixels(8), "mono8"),
     (RawPixels(8, "GRBG"), "bayer_grbg8")],
)  # fmt: skip
def test_raw_pictures_have_their_values(tmp_path: Path, pixels: RawPixels, encoding: str) -> None:
    builder = Builder(tmp_path / "drive")
    made = builder.add(raw_camera_spec(pixels=pixels), 0.1)
    path = builder.close()
    found, _ = pack(path, tmp_path)
    images = found.messages["/camera/image"]
    assert stamps(images) == made.t_ns.tolist()
    for index, message in enumerate(images):
        assert message.value.encoding == encoding
        assert np.array_equal(image_of(message.value), made.data[pixels.channel][index])
    metadata = found.metadata["/camera/image"]
    assert (metadata["pixels"], metadata["black_level"]) == (pixels.name, "16")
    shown, _ = pack(path, tmp_path, raw_pictures="jpeg")
    assert shown.schemas["/camera/image"] == "foxglove.CompressedImage"
    assert all(m.value.data[:2] == b"\xff\xd8" for m in shown.messages["/camera/image"])


def test_a_lidar_without_usable_metadata_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = build_session(tmp_path / "drive", lidar(), seconds=0.2).path
    (path / "lidar" / "lidar.json").write_text("{}")
    with pytest.raises(ArchiveError, match=r"lidar: .*lidar\.json: is not usable"):
        pack(path, tmp_path)
