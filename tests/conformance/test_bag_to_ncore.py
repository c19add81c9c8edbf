"""A bag of a driving vehicle, imported and packed, in NVIDIA's loader: poses, mounts, sensors.

The truth is not ours: transforms composed by scipy, messages serialized by rosbags.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from recorder.formats.ros2.definitions import POINT_CLOUD
from tests.acceptance.command import recorder
from tests.drivers.ouster.rig import T0_NS, capture, flat, make_info, ouster_messages
from tests.formats.bags.kit import (
    HEIGHT,
    START_NS,
    WIDTH,
    Sent,
    compressed,
    jpeg,
    write_sqlite,
)
from tests.formats.ros2 import cloud_kit
from tests.perception import test_recorded_poses as poses
from tests.perception.test_recorded_calibration import OPTICAL, info

components: Any = pytest.importorskip(
    "ncore.impl.data.v4.components", reason="needs nvidia-ncore, which is not installed"
)
compat: Any = pytest.importorskip("ncore.impl.data.v4.compat")
pytestmark = pytest.mark.conformance

CAMERA = ((1.0, 2.0, 3.0), OPTICAL)
LIDAR = ((0.5, 0.0, 2.0), Rotation.from_euler("z", 30, degrees=True).as_quat())
ROOF = ((0.0, 0.5, 2.5), Rotation.from_euler("xyz", [1, -2, 90], degrees=True).as_quat())
FRAME_NS = 50_000_000


class Packed(NamedTuple):
    loader: Any
    result: dict[str, Any]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp("drive")
    sent = [info("/front/camera_info"), *poses.drive(2.0)]
    for frame, place in (("camera_optical", CAMERA), ("os_sensor", LIDAR)):
        sent.append(poses.tf("/tf_static", START_NS, ("base_link", frame, *place)))
    for at in range(2, 36):
        sent.append(compressed("/front/image_raw", jpeg(at), START_NS + at * FRAME_NS))
    rng = np.random.default_rng(38)
    for at in range(4, 16):
        t_ns = START_NS + at * 100_000_000
        cloud = cloud_kit.ouster(rng, stamp_ns=t_ns)
        sent.append(Sent("/roof/points", POINT_CLOUD, "cdr", cloud.data, t_ns + 100_000_000))
    sent.append(poses.tf("/tf_static", START_NS, ("base_link", cloud_kit.FRAME, *ROOF)))
    lidar = make_info()
    packets = ouster_messages(lidar, flat(capture(lidar, range(4))))
    later_ns = START_NS + 300_000_000 - T0_NS
    sent += [Sent(p.topic, p.schema, "cdr", p.data, p.log_ns + later_ns) for p in packets]
    bag = write_sqlite(folder / "drive_0.db3", sorted(sent, key=lambda each: each.log_ns))
    ran = recorder("import", bag, "--root", folder, "--name", "drive", "--format", "json")
    assert (ran.code, ran.complaints) == (0, [])
    packing = recorder("finalize", folder / "drive", "--to", "ncore", "--format", "json")
    assert packing.code == 0, packing.err
    (archive,) = packing.result["archives"]
    reader = components.SequenceComponentGroupsReader([Path(archive["files"][-1])])
    return Packed(compat.SequenceLoaderV4(reader), ran.result)


def evaluate(packed: Packed, source: str, target: str, t_ns: Any) -> Any:
    times = np.asarray(t_ns, np.int64) // 1000
    return packed.loader.pose_graph.evaluate_poses(source, target, times.astype(np.uint64))


def test_the_loader_has_the_sensors(packed: Packed) -> None:
    loader = packed.loader
    assert (loader.camera_ids, loader.lidar_ids) == (["front"], ["ouster", "roof"])
    assert loader.get_camera_sensor("front").frames_count == 34
    assert loader.get_lidar_sensor("ouster").frames_count == 4
    assert loader.get_lidar_sensor("roof").frames_count == 12
    parameters = loader.get_camera_sensor("front").model_parameters
    assert tuple(map(int, parameters.resolution)) == (WIDTH, HEIGHT)


def test_the_rig_is_where_the_transforms_say(packed: Packed) -> None:
    t_ns = START_NS + np.arange(150_000_000, 1_700_000_000, 20_000_000, dtype=np.int64)
    found = evaluate(packed, "rig", "world", t_ns)
    wanted = poses.truth(t_ns // 1000 * 1000)
    assert np.abs(found[:, :3, 3] - wanted[:, :3, 3]).max() < 1e-3  # m
    turns = Rotation.from_matrix(found[:, :3, :3]).inv() * Rotation.from_matrix(wanted[:, :3, :3])
    assert turns.magnitude().max() < 1e-4


@pytest.mark.parametrize(
    ("sensor", "place"), [("front", CAMERA), ("ouster", LIDAR), ("roof", ROOF)]
)
def test_sensors_are_where_the_static_transforms_say(
    packed: Packed, sensor: str, place: Any
) -> None:
    t_ns = [START_NS + 1_000_000_000]
    found = evaluate(packed, sensor, "rig", t_ns)[0]
    assert np.abs(found - poses.matrix(*place)).max() < 1e-6
    in_world = evaluate(packed, sensor, "world", t_ns)[0]
    wanted = poses.truth(np.array(t_ns) // 1000 * 1000)[0] @ poses.matrix(*place)
    assert np.abs(in_world[:3, 3] - wanted[:3, 3]).max() < 1e-3
