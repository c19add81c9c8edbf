"""A session of the simulated sensors, made at once: the same bytes at each call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ouster.sdk import core

from drivers.camera.lens import Lens
from drivers.camera.model import SimulatedCamera
from drivers.mmwave.model import SIM_CHIRP, SimulatedRadar
from drivers.ouster.model import LidarScene, default_info
from drivers.world import World
from drivers.world.imu import SimulatedImu
from recorder.codecs.streams import ChannelSpec, StreamSpec
from tests.session.build import Builder, imu_spec

Array = npt.NDArray[Any]
Data = Mapping[str, Array]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the sensors' samples."""

    picture: tuple[int, int] = (640, 360)
    beams: int = 64
    columns: int = 1024
    chirps: int = 64


SMALL = Sizes(picture=(64, 48), beams=16, columns=512, chirps=16)


def simulated_session(
    path: Path,
    seconds: float = 1.0,
    sizes: Sizes = SMALL,
    streams: Sequence[str] = (),
    offsets_ns: Mapping[str, int] | None = None,
) -> Builder:
    """Record the world's first seconds with a camera, a lidar, a radar and an IMU.

    Args:
        path: of the session.
        seconds: its duration.
        sizes: of the samples.
        streams: names of the streams; empty: all.
        offsets_ns: by stream, what is added to its stamps.
    """
    builder, world = Builder(path), World("drive")
    makers = {"camera": _camera, "lidar": _lidar, "radar": _radar, "imu": _imu}
    for name in streams or makers:
        spec, samples = makers[name](world, sizes)
        assert spec.rate_hz is not None
        count = round(seconds * spec.rate_hz)
        made = [samples(k) for k in range(count)]
        data = {c.name: np.stack([one[c.name] for one in made]) for c in spec.channels}
        builder.add(spec, count=count, data=data, offset_ns=(offsets_ns or {}).get(name, 0))
    builder.close()
    return builder


def _camera(world: World, sizes: Sizes) -> tuple[StreamSpec, Any]:
    width, height = sizes.picture
    camera = SimulatedCamera(world, Lens.default(width, height), fps=10.0)
    channel = ChannelSpec("video.avi", "mjpg", "u1", (height, width, 3), "camera image")
    return StreamSpec("camera", (channel,), rate_hz=10.0), lambda k: {"video.avi": camera.frame(k)}


def _lidar(world: World, sizes: Sizes) -> tuple[StreamSpec, Any]:
    info = default_info(core, f"{sizes.columns}x10", sizes.beams)
    scene = LidarScene(core, info, world)
    shape = (sizes.beams, sizes.columns)
    channels = (
        ChannelSpec("rng", "lzmaf", "u2", shape, "range", "mm", delta=True),
        ChannelSpec("rng_far", "lzmaf", "u4", shape, "range minus rng", "mm"),
        ChannelSpec("rfl", "lzmaf", "u1", shape, "reflectivity"),
        ChannelSpec("nir", "lzmaf", "u2", shape, "ambient light"),
        ChannelSpec("t_col", "lzmaf", "u8", shape[1:], "column times", "ns", device_time=True),
    )
    files = {"lidar.json": info.to_json_string()}

    def sample(k: int) -> Data:
        fields = scene.sweep(k)
        near = np.minimum(fields["RANGE"], 65535)
        return {
            "rng": near.astype("<u2"),
            "rng_far": fields["RANGE"] - near,
            "rfl": fields["REFLECTIVITY"],
            "nir": fields["NEAR_IR"],
            "t_col": scene.column_times(k),
        }

    return StreamSpec("lidar", channels, rate_hz=10.0, device_clock=True, files=files), sample


def _radar(world: World, sizes: Sizes) -> tuple[StreamSpec, Any]:
    chirp = replace(SIM_CHIRP, frame_length=sizes.chirps)
    radar = SimulatedRadar(chirp, "iiqq", world=world)
    channels = (
        ChannelSpec("iq", "raw", "i2", chirp.shape, "raw ADC samples"),
        ChannelSpec("valid", "raw", "u1", (), "1: nothing of the frame is missing"),
    )
    values = chirp.intrinsics("iiqq", chirp.antennas.ideal_calibration())
    spec = StreamSpec("radar", channels, rate_hz=20.0, files={"radar.json": json.dumps(values)})
    return spec, lambda k: {"iq": radar.frame(k), "valid": np.ones((), np.uint8)}


def _imu(world: World, sizes: Sizes) -> tuple[StreamSpec, Any]:
    imu = SimulatedImu(100.0, world)

    def sample(k: int) -> Data:
        made = imu.samples(k, 1)
        return {"acc": made.acc[0], "avel": made.avel[0], "rot": made.rot[0]}

    return imu_spec(), sample
