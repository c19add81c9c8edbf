"""Readers of ROS 2 on packed bags: mcap-ros2-support, and the newest rosbags by itself.

rosbags of this version does not go with ouster-sdk; ``make .venv-rosbags/.installed`` installs it
into an environment of its own.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mcap.reader import make_reader
from ouster.sdk import core
from scipy.spatial.transform import Rotation

from recorder.archives.finalize import ArchiveRequest, finalize
from recorder.session.reader import Session
from tests.conformance.bag_messages import digest as digest_of
from tests.conformance.bag_messages import plain

pytestmark = pytest.mark.conformance
decoder = pytest.importorskip("mcap_ros2.decoder", reason="mcap-ros2-support is not installed")

ROOT = Path(__file__).parents[2]
ROSBAGS = ROOT / ".venv-rosbags/bin/python"
SECOND = 1_000_000_000
TYPES = {
    "/camera/image/compressed": "sensor_msgs/msg/CompressedImage",
    "/lidar/points": "sensor_msgs/msg/PointCloud2",
    "/lidar/range_image": "sensor_msgs/msg/Image",
    "/lidar/range_far_image": "sensor_msgs/msg/Image",
    "/lidar/reflec_image": "sensor_msgs/msg/Image",
    "/lidar/nearir_image": "sensor_msgs/msg/Image",
    "/radar/detections": "sensor_msgs/msg/PointCloud2",
    "/radar/range_doppler": "sensor_msgs/msg/Image",
    "/radar/iq": "std_msgs/msg/Int16MultiArray",
    "/imu/data": "sensor_msgs/msg/Imu",
}

Received = tuple[int, Any]


@dataclass
class Packed:
    """A bag, and its messages by topic: log time, and message as the reader has it."""

    session: Path
    folder: Path
    types: Mapping[str, str]
    messages: Mapping[str, list[Received]]


def pack(session: Path, **options: Any) -> Path:
    wanted = {"profile": "ros2", "lidar": "points_and_ranges", "iq": True, "maps": True}
    (result,) = finalize(
        session, [ArchiveRequest("mcap", wanted | options)], out=session.parent.parent / "bags"
    )
    (folder,) = result.files
    assert (folder / "metadata.yaml").is_file()
    return folder


def by_mcap(folder: Path) -> dict[str, list[Received]]:
    """Every message of the file, decoded with the schemas in it."""
    found: dict[str, list[Received]] = {}
    (path,) = folder.glob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True, decoder_factories=[decoder.DecoderFactory()])
        for _, channel, message, decoded in reader.iter_decoded_messages():
            found.setdefault(channel.topic, []).append((message.log_time, decoded))
    return found


@pytest.fixture(scope="module")
def packed(session: Path) -> Packed:
    folder = pack(session)
    return Packed(session, folder, {}, by_mcap(folder))


@pytest.fixture(scope="module")
def by_rosbags(packed: Packed) -> Packed:
    if not ROSBAGS.is_file():
        pytest.skip(f"needs rosbags in {ROSBAGS.parent.parent.name}: make conformance")
    ran = subprocess.run(
        [ROSBAGS, ROOT / "tests/conformance/bag_messages.py", packed.folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    types, messages = {}, dict[str, list[Received]]()
    for line in ran.stdout.splitlines():
        topic, kind, t_ns, message = json.loads(line)
        types[topic] = kind
        messages.setdefault(topic, []).append((t_ns, message))
    return Packed(packed.session, packed.folder, types, messages)


def digest(data: npt.NDArray[Any] | bytes) -> dict[str, Any]:
    return digest_of(np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data)


def stamp_ns(message: Any) -> int:
    stamp = message["header"]["stamp"]
    return int(stamp["sec"] * SECOND + stamp["nanosec"])


def test_rosbags_and_mcap_ros2_read_the_same(packed: Packed, by_rosbags: Packed) -> None:
    assert by_rosbags.messages.keys() == packed.messages.keys()
    for topic, messages in packed.messages.items():
        mine = [json.dumps([t_ns, plain(message)]) for t_ns, message in messages]
        theirs = [json.dumps(received) for received in by_rosbags.messages[topic]]
        assert sorted(mine) == sorted(theirs), topic  # messages of one time have no order


def test_types_are_those_of_ros(by_rosbags: Packed) -> None:
    assert {topic: by_rosbags.types.get(topic) for topic in TYPES} == TYPES


@pytest.mark.parametrize("topic", TYPES)
def test_each_sample_is_a_message_at_its_stamp(by_rosbags: Packed, topic: str) -> None:
    with Session(by_rosbags.session) as session:
        expected = session.streams[topic.split("/")[1]].t_ns.tolist()
    found = by_rosbags.messages[topic]
    assert [t_ns for t_ns, _ in found] == expected
    if not topic.startswith("/lidar") and topic != "/radar/iq":
        assert [stamp_ns(message) for _, message in found] == expected


def test_jpegs_are_those_of_the_session(by_rosbags: Packed) -> None:
    with Session(by_rosbags.session) as session:
        pictures = session.streams["camera"].channels["video.avi"]
        expected = [digest(pictures.encoded(index)) for index in range(len(pictures))]
    found = by_rosbags.messages["/camera/image/compressed"]
    assert [message["data"] for _, message in found] == expected
    assert {message["format"] for _, message in found} == {"jpeg"}


def test_inertial_values_are_those_of_the_session(by_rosbags: Packed) -> None:
    with Session(by_rosbags.session) as session:
        imu = session.streams["imu"]
        values = imu.read(channels=["acc", "avel", "rot"])
        spec = imu.spec
    assert spec is not None and spec.settings.get("coordinates", "ENU") == "ENU"
    messages = [message for _, message in by_rosbags.messages["/imu/data"]]
    for name, channel in (("angular_velocity", "avel"), ("linear_acceleration", "acc")):
        found = [[message[name][axis] for axis in "xyz"] for message in messages]
        assert np.array_equal(np.array(found, np.float32), values[channel])
    oriented = [message["orientation_covariance"][0] == 0 for message in messages]
    assert np.array_equal(oriented, np.isfinite(values["rot"]).all(axis=1))
    assert any(oriented)
    turns = [[message["orientation"][axis] for axis in "xyzw"] for message in messages]
    expected = Rotation.from_euler("xyz", values["rot"][oriented].astype(np.float64))
    error = (Rotation.from_quat(np.array(turns)[oriented]) * expected.inv()).magnitude()
    assert error.max() < 1e-6


def test_points_are_those_of_the_sdk(packed: Packed) -> None:
    """To 0.1 mm, at the pixels of the destaggered sweep, with the times of their columns."""
    info = core.SensorInfo((packed.session / "lidar/lidar.json").read_text())
    lut = core.XYZLut(info, use_extrinsics=False)
    with Session(packed.session) as session:
        sweeps = session.streams["lidar"].read(0, 3, ["rng", "rng_far", "rfl"])
    compared = 0
    for index, (_, message) in enumerate(packed.messages["/lidar/points"][:3]):
        assert (message.height, message.width, message.is_bigendian) == (info.h, info.w, False)
        kind = np.dtype(
            {
                "names": [field.name for field in message.fields],
                "formats": [" bBhHiIfd"[field.datatype] for field in message.fields],
                "offsets": [field.offset for field in message.fields],
                "itemsize": message.point_step,
            }
        )
        points = np.frombuffer(bytes(message.data), kind).reshape(info.h, info.w)
        found = np.stack([points[axis] for axis in "xyz"], -1)
        range_mm = sweeps["rng"][index] + sweeps["rng_far"][index]
        hit = core.destagger(info, range_mm) > 0
        assert np.array_equal(np.isfinite(found).all(axis=-1), hit)
        expected = core.destagger(info, lut(range_mm))
        assert np.abs(found - expected)[hit].max() < 1e-4
        reflectivity = core.destagger(info, sweeps["rfl"][index])
        assert np.array_equal(points["intensity"][hit], reflectivity[hit])
        assert np.array_equal(
            points["ring"], np.broadcast_to(np.arange(info.h)[:, None], hit.shape)
        )
        compared += int(hit.sum())
    assert compared > 10_000


def test_range_images_are_those_of_the_session(by_rosbags: Packed) -> None:
    info = core.SensorInfo((by_rosbags.session / "lidar/lidar.json").read_text())
    names = {"rng": "range_image", "rng_far": "range_far_image", "rfl": "reflec_image"}
    with Session(by_rosbags.session) as session:
        sweeps = session.streams["lidar"].read(0, 3, list(names))
    for channel, topic in names.items():
        found = [message["data"] for _, message in by_rosbags.messages[f"/lidar/{topic}"][:3]]
        images = [core.destagger(info, sweep) for sweep in sweeps[channel]]
        assert found == [digest(np.ascontiguousarray(image).tobytes()) for image in images]


def test_iq_is_that_of_the_session(by_rosbags: Packed) -> None:
    with Session(by_rosbags.session) as session:
        radar = session.streams["radar"]
        expected = [digest(radar.sample(index)["iq"]) for index in range(len(radar))]
        shape = radar.meta["iq"]["shape"]
        config = (session.path / "radar/radar.json").read_text()
    messages = [message for _, message in by_rosbags.messages["/radar/iq"]]
    assert [message["data"] for message in messages] == expected
    assert [each["size"] for each in messages[0]["layout"]["dim"]] == shape
    assert messages[0]["layout"]["dim"][-1]["stride"] == shape[-1]
    assert math.prod(shape) == messages[0]["data"]["size"]
    ((_, first),) = by_rosbags.messages["/radar/config"]
    assert first["data"] == config
