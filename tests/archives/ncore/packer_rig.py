"""Sessions to pack, and what came of them, read by the test's own reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.formats.zarr2.kit import decode, keys_of
from tests.session.build import (
    BEAMS,
    COLUMNS,
    START_MONO_NS,
    START_NS,
    Builder,
    camera_spec,
    imu_spec,
    lidar_spec,
    radar_spec,
)

LIDAR_JSON = json.dumps(
    {
        "beam_intrinsics": {
            "beam_altitude_angles": list(range(BEAMS, 0, -1)),
            "beam_azimuth_angles": [3.0, -3.0] * (BEAMS // 2),
            "lidar_origin_to_beam_origin_mm": 15.8,
        },
        "lidar_intrinsics": {},
        "lidar_data_format": {"columns_per_frame": COLUMNS, "pixels_per_column": BEAMS},
        "config_params": {"lidar_mode": f"{COLUMNS}x10"},
    }
)
CALIBRATION = """
sensors:
  camera:
    T_sensor_rig: {translation_m: [1, 0, 1.5], quaternion_xyzw: [-0.5, 0.5, -0.5, 0.5]}
    model: opencv-pinhole
    parameters: {fx: 30, fy: 31, cx: 15.5, cy: 11.5, k1: 0.1}
    resolution: [32, 24]
  imu: {T_sensor_rig: {translation_m: [0, 0, 0], quaternion_xyzw: [0, 0, 1, 0]}}
"""


def lidar(name: str = "lidar") -> StreamSpec:
    return replace(lidar_spec(name), files={"lidar.json": LIDAR_JSON})


def still_imu(name: str = "imu") -> StreamSpec:
    return replace(imu_spec(name), settings={"coordinates": "ENU"})


def rig(path: Path, seconds: float = 1.0) -> Builder:
    """Camera, lidar, radar, IMU; not closed yet."""
    builder = Builder(path)
    builder.add(camera_spec(), seconds)
    builder.add(lidar(), seconds)
    builder.add(radar_spec(), seconds)
    builder.add(still_imu(), seconds)
    return builder


def add_poses(path: Path, t_ns: npt.NDArray[np.int64], pos: npt.NDArray[Any], name: str) -> None:
    """A virtual sensor with poses that do not turn."""
    folder = path / name
    folder.mkdir()
    rot = np.broadcast_to(np.eye(3), (len(t_ns), 3, 3))
    values = {
        "ts": t_ns / 1e9,
        "t_mono": (t_ns - START_NS + START_MONO_NS).astype("<u8"),
        "pos": pos.astype("<f8"),
        "rot": rot.astype("<f8"),
    }
    meta = {}
    for channel, array in values.items():
        array.tofile(folder / channel)
        kind, shape = array.dtype.str[1:], list(array.shape[1:])
        meta[channel] = {"format": "raw", "type": kind, "shape": shape, "desc": ""}
    (folder / "meta.json").write_text(json.dumps(meta))


@dataclass
class Archive:
    """An archive, key by key."""

    result: PackedArchive
    meta: dict[str, Any]
    keys: dict[str, bytes]

    def attributes(self, path: str) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(self.keys[f"{path}/.zattrs"])
        return values

    def array(self, path: str) -> npt.NDArray[Any]:
        return decode(self.keys, path)

    def times_us(self, sensor: str) -> npt.NDArray[np.int64]:
        """Starts and ends of the frames of ``cameras/front``."""
        return np.array(self.attributes(f"{sensor}/frames")["frames_timestamps_us"], np.int64)

    def pose_times_us(self) -> list[int]:
        poses = self.attributes("poses/default/dynamic_poses")["('rig', 'world')"]
        times: list[int] = poses["timestamps_us"]
        return times

    def noted(self, *words: str) -> int:
        """How many notes have all of the words."""
        return sum(all(word in note for word in words) for note in self.result.notes)


def pack(path: Path, **options: Any) -> Archive:
    """Finalize, and read what came of it."""
    (result,) = finalize(path, [ArchiveRequest("ncore", options)])
    meta = json.loads(result.files[-1].read_bytes())
    return Archive(result, meta, keys_of(result.files[0]))


def other_channel(name: str, dtype: str, shape: tuple[int, ...]) -> Callable[[str], StreamSpec]:
    return lambda stream: StreamSpec(
        stream, (ChannelSpec(name, "raw", dtype, shape, "", "m"),), rate_hz=10.0
    )
