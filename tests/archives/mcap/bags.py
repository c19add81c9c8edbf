"""Bags of ROS 2, packed from sessions with known content and read by rosbags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rosbags.rosbag2 import Reader

from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.archives.ncore.packer_rig import CALIBRATION, add_poses, lidar, still_imu
from tests.formats.ros2.kit import STORE
from tests.session.build import START_NS, Builder, Recorded, camera_spec, radar_spec

NUMPY_OF_FIELD = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 8: "<f8"}

Received = tuple[int, Any]
"""Log time, and message as rosbags has it."""


@dataclass
class Bag:
    """A packed session.

    Attributes:
        folder: the bag.
        recorded: what the session has, by stream.
        result: of the finalizer.
        messages: by topic, in the order of the file.
    """

    folder: Path
    recorded: Mapping[str, Recorded]
    result: PackedArchive
    messages: Mapping[str, list[Received]]

    def of(self, topic: str) -> list[Any]:
        return [message for _, message in self.messages[topic]]

    def log_ns(self, topic: str) -> list[int]:
        return [t_ns for t_ns, _ in self.messages[topic]]

    def noted(self, *words: str) -> int:
        return sum(all(word in note for word in words) for note in self.result.notes)


def stamp_ns(message: Any) -> int:
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def cloud(message: Any) -> npt.NDArray[Any]:
    """Points of a PointCloud2 by its own fields, [height, width]."""
    kind = np.dtype(
        {
            "names": [field.name for field in message.fields],
            "formats": [NUMPY_OF_FIELD[field.datatype] for field in message.fields],
            "offsets": [field.offset for field in message.fields],
            "itemsize": message.point_step,
        }
    )
    assert message.row_step == message.point_step * message.width
    return message.data.view(kind).reshape(message.height, message.width)  # type: ignore[no-any-return]


def image(message: Any) -> npt.NDArray[Any]:
    known = {"16UC1": "<u2", "32SC1": "<i4"}
    kind = known.get(message.encoding) or ("u1" if message.encoding.endswith("8") else "<u2")
    assert (message.step, message.is_bigendian) == (message.width * np.dtype(kind).itemsize, 0)
    return message.data.view(kind).reshape(message.height, message.width)  # type: ignore[no-any-return]


def gnss_spec(name: str = "imu_gnss") -> StreamSpec:
    channels = (
        ChannelSpec("pos", "raw", "f8", (3,), "latitude, longitude, height", "deg, deg, m"),
        ChannelSpec("fix", "raw", "u1", (), "the receiver's fix"),
        ChannelSpec("cov", "raw", "f4", (3, 3), "covariance north, east, down", "m^2"),
    )
    return StreamSpec(name, channels, rate_hz=10.0)


def rig(path: Path, seconds: float = 0.5) -> Builder:
    """All kinds of sensors, poses, labels, a loss and a mark."""
    builder = Builder(path)
    builder.add(camera_spec(), seconds)
    builder.add(lidar(), seconds, offset_ns=100_000_000)
    builder.add(radar_spec(), seconds, offset_ns=5_000_000)
    builder.add(still_imu(), seconds)
    made = builder.add(other_spec(), seconds)
    builder.lose("camera", 3, 5)
    builder.events.append(
        {"t_ns": START_NS + 600_000_000, "type": "mark", "text": "Schlagloch ✓", "stream": None}
    )
    add_poses(path, made.t_ns, np.stack([np.arange(len(made.t_ns))] * 3, 1), "_pose")
    (path / "calibration.yaml").write_text(CALIBRATION)
    labels = path / "_cuboids"
    labels.mkdir()
    lines = [{"format": "recorder-cuboids", "version": 1, "source": "manual"}]
    lines += [label(int(t_ns), track) for t_ns in made.t_ns[:3] for track in ("a", "b")]
    (labels / "people.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return builder


def label(t_ns: int, track: str) -> dict[str, Any]:
    return {
        "t_ns": t_ns, "track": track, "class": "car", "frame": "rig",
        "center_m": [1.0, 2.0, 3.0], "size_m": [4.0, 1.8, 1.5],
        "quaternion_xyzw": [0.0, 0.0, 0.6, 0.8],
    }  # fmt: skip


def other_spec(name: str = "wheel") -> StreamSpec:
    channels = (ChannelSpec("speed", "raw", "f4", (), "wheel speed", "m/s"),)
    return StreamSpec(name, channels, rate_hz=20.0)


def pack(builder: Builder, **options: Any) -> Bag:
    """Pack a closed session."""
    (result,) = finalize(builder.path, [ArchiveRequest("mcap", {"profile": "ros2", **options})])
    (folder,) = result.files
    return Bag(folder, builder.streams, result, received(folder))


def received(folder: Path) -> dict[str, list[Received]]:
    """All messages of a bag by topic, decoded by rosbags."""
    with Reader(folder) as reader:
        found: dict[str, list[Received]] = {each.topic: [] for each in reader.connections}
        for connection, t_ns, data in reader.messages():
            message = STORE.deserialize_cdr(data, connection.msgtype)
            found[connection.topic].append((t_ns, message))
    return found


def two_returns(name: str = "lidar") -> StreamSpec:
    """A lidar with second returns."""
    spec = lidar(name)
    shape = spec.channel("rng").shape
    more = (
        ChannelSpec("rng2", "lzmaf", "u2", shape, "range", "mm", delta=True),
        ChannelSpec("rfl2", "lzmaf", "u1", shape, "reflectivity"),
    )
    return replace(spec, channels=(*spec.channels, *more))
