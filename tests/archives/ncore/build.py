"""A sequence with every component, and what went into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.ncore import (
    Attribute,
    BivariateWindshield,
    Cuboid,
    FTheta,
    IdealPinhole,
    ImageEncoded,
    LabelDescriptor,
    LabelType,
    OpenCvFisheye,
    OpenCvPinhole,
    Quantization,
    Raw,
    RowOffsetSpinning,
    SequenceWriter,
    euler_xyz,
)
from recorder.archives.ncore.format.sequence import StoreKind

START_NS = 1_700_000_000_000_000_000
STOP_NS = START_NS + 1_000_000_500  # not a whole microsecond
ROWS, COLUMNS = 4, 16
RAYS = ROWS * COLUMNS
METADATA = {"vehicle": "rig-1", "speeds": [1, 2.5, None], "nested": {"ok": True}}
RADIANS = np.linspace(0, 2 * np.pi, COLUMNS, endpoint=False)

MODELS = {
    "front": OpenCvPinhole.of_distortion(
        (64, 48), (50, 51), (32, 24), (0.1, -0.2, 0.001, 0.002, 0.05), "ROLLING_TOP_TO_BOTTOM"
    ),
    "fish": OpenCvFisheye(
        (64, 48), focal_length_px=(30, 30), principal_point_px=(31.5, 24), radial=(0.01, 0, 0, 0)
    ),
    "theta": FTheta(
        (64, 48),
        principal_point_px=(31.5, 23.5),
        pixel_distance_to_angle=(0, 0.02, 1e-5),
        angle_to_pixel_distance=(0, 50, -1),
        max_angle_rad=1.0,
        external_distortion=BivariateWindshield((0, 1, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1)),
    ),
    "ideal": IdealPinhole((64, 48), focal_length_px=(50, 50), principal_point_px=(32, 24)),
}
LIDAR = RowOffsetSpinning(
    10.0, "cw", (0.2, 0.1, 0.0, -0.1), -RADIANS, np.array([0.01, -0.01, 0.01, -0.01])
)
DEPTH = LabelDescriptor(
    "front",
    LabelType("DEPTH", "z", "METERS"),
    Raw("float32", (), Quantization("uint16", 0.01)),
    "GT_SYNTHETIC",
)
FLOW = LabelDescriptor(
    "front", LabelType("FLOW", "optical_forward", "PIXELS"), Raw("float32", (2,)), "AUTOLABEL"
)
CLASSES = LabelDescriptor(
    "front", LabelType("SEGMENTATION", "semantic", "UNITLESS"), ImageEncoded("uint8"), "EXTERNAL"
)
CUBOIDS = [
    Cuboid(
        f"track-{i}", "car", START_NS + i * 1_000_000, "lidar", START_NS + 150_000_000,
        (float(i), 2.0, 0.5), (4.5, 1.8, 1.5), euler_xyz((0.0, 0.0, 0.5, 1.0)), "GT_SYNTHETIC",
        None if i % 2 else "v3",
    )
    for i in range(7)
]  # fmt: skip


@dataclass
class Given:
    """What went in, by component."""

    cameras: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    sweeps: list[dict[str, Any]] = field(default_factory=list)
    detections: list[dict[str, Any]] = field(default_factory=list)
    clouds: list[dict[str, Any]] = field(default_factory=list)
    depths: list[tuple[int, npt.NDArray[Any]]] = field(default_factory=list)
    flows: list[tuple[int, npt.NDArray[Any]]] = field(default_factory=list)
    classes: list[tuple[int, bytes]] = field(default_factory=list)
    static: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    trajectory: tuple[npt.NDArray[Any], npt.NDArray[Any]] = (np.empty(0), np.empty(0))
    imu: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))
    ego_mask: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))


def jpeg(number: int, size: tuple[int, int] = (48, 64)) -> bytes:
    """A small picture that differs from number to number."""
    image = np.full((*size, 3), number % 251, np.uint8)
    image[: size[0] // 2, : size[1] // 2] = 255 - number % 251
    return bytes(cv2.imencode(".jpg", image)[1].tobytes())


def rotations(angles_rad: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Poses [n, 4, 4] turned about z, moving along x."""
    poses = np.tile(np.eye(4), (len(angles_rad), 1, 1))
    cosine, sine = np.cos(angles_rad), np.sin(angles_rad)
    poses[:, 0, 0], poses[:, 0, 1] = cosine, -sine
    poses[:, 1, 0], poses[:, 1, 1] = sine, cosine
    poses[:, 0, 3] = angles_rad * 10
    return poses


def unit_vectors(rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    """Directions, float32 [count, 3]."""
    vectors = rng.normal(size=(count, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32)


def write_poses(sequence: SequenceWriter, sensors: list[str], given: Given) -> None:
    """Every sensor on the rig, the rig in the world."""
    interval = sequence.interval
    t_ns = np.linspace(0, interval.last_ns - interval.start_ns, 11).astype(np.int64)
    t_ns += interval.start_ns
    poses = rotations(np.linspace(0, 0.5, len(t_ns)))
    given.trajectory = (t_ns, poses)
    sequence.poses().dynamic_pose("rig", "world", t_ns, poses)
    for number, sensor in enumerate(sensors):
        pose = rotations(np.array([0.1 * number]))[0]
        pose = pose.astype(np.float32) if number % 2 else pose
        given.static[sensor] = pose
        sequence.poses().static_pose(sensor, "rig", pose)


def sweep(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """One sweep with two returns, some of them missing."""
    start = START_NS + 100_000_000 * number + 50_000_000
    distance = rng.uniform(0, 100, (2, RAYS)).astype(np.float32)
    distance[0, ::5] = np.nan
    distance[1, ::2] = np.nan
    intensity = rng.uniform(0, 1, (2, RAYS)).astype(np.float32)
    intensity[np.isnan(distance)] = np.nan
    t_ns = start + np.sort(rng.integers(0, 99_000_000, RAYS))
    return {
        "t_start_ns": start,
        "t_end_ns": start + 99_000_000,
        "direction": unit_vectors(rng, RAYS),
        "t_ns": t_ns,
        "distance_m": distance,
        "intensity": intensity,
        "returns": {"range_noise_m": np.where(np.isnan(distance), np.nan, np.float32(0.01))},
        "data": {"rfl": rng.integers(0, 255, (2, RAYS), dtype=np.uint8)},
        "metadata": {"number": number},
    }


def detection(rng: np.random.Generator, number: int, count: int) -> dict[str, Any]:
    """One radar frame; it may have no detection."""
    start = START_NS + 50_000_000 * number
    return {
        "t_start_ns": start,
        "t_end_ns": start + 12_345_678,
        "direction": unit_vectors(rng, count),
        "t_ns": np.full(count, start + 5_000, np.int64),
        "distance_m": rng.uniform(1, 50, (1, count)).astype(np.float32),
        "returns": {
            "radial_velocity_m_s": rng.normal(size=(1, count)).astype(np.float32),
            "power_db": rng.normal(size=(1, count)).astype(np.float32),
        },
    }


def write_cameras(sequence: SequenceWriter, given: Given) -> None:
    """Four cameras, a mask of one, intrinsics of all."""
    for camera_id, model in MODELS.items():
        sequence.intrinsics().camera(camera_id, model)
        frames = [
            (START_NS + 33_333_333 * i, START_NS + 33_333_333 * i + 12_000_000, jpeg(i))
            for i in range(5)
        ]
        given.cameras[camera_id] = frames
        camera = sequence.camera(camera_id, metadata={"position": camera_id})
        camera.set_generic_data({"exposure_s": np.linspace(0, 1, 5)})
        for number, (start, end, image) in enumerate(frames):
            camera.frame(
                start,
                end,
                image,
                data={"gain": np.array([number], np.float32), "empty": np.zeros((0, 3))},
                metadata={"number": number},
            )
    given.ego_mask = np.zeros((48, 64), bool)
    given.ego_mask[40:] = True
    sequence.masks().camera("front", {"ego": given.ego_mask})


def write_rays(sequence: SequenceWriter, given: Given, rng: np.random.Generator) -> None:
    """A lidar and a radar."""
    sequence.intrinsics().lidar("lidar", LIDAR)
    lidar = sequence.lidar("lidar", metadata={"model": "OS-X"})
    elements = lidar.constant(
        np.stack(np.divmod(np.arange(RAYS), COLUMNS), axis=1).astype(np.uint16)
    )
    for number in range(3):
        given.sweeps.append(sweep(rng, number))
        lidar.frame(**given.sweeps[-1], model_element=elements)
    radar = sequence.radar("radar", metadata={"chirp": {"slope": 70.006}})
    for number, count in enumerate((3, 0, 1)):
        given.detections.append(detection(rng, number, count))
        radar.frame(**given.detections[-1])


def write_labels(sequence: SequenceWriter, given: Given, rng: np.random.Generator) -> None:
    """Cuboids, point clouds, and three kinds of camera labels."""
    sequence.cuboids(metadata={"taxonomy": "simple"}).add(CUBOIDS)
    clouds = sequence.point_clouds(
        "map",
        unit="METERS",
        attributes={
            "rgb": Attribute("uint8", (3,)),
            "normal": Attribute("float32", (3,), "DIRECTION"),
            "weight": Attribute("float64"),
        },
    )
    for number, count in enumerate((5, 0)):
        given.clouds.append(
            {
                "t_ns": START_NS + number,
                "frame": "world",
                "xyz": rng.normal(size=(count, 3)).astype(np.float32),
                "attributes": {
                    "rgb": rng.integers(0, 255, (count, 3), dtype=np.uint8),
                    "normal": unit_vectors(rng, count),
                    "weight": rng.normal(size=count),
                },
                "data": {"votes": np.arange(count)},
                "metadata": {"number": number},
            }
        )
        clouds.cloud(**given.clouds[-1])
    depth = sequence.camera_labels(DEPTH)
    flow = sequence.camera_labels(FLOW)
    classes = sequence.camera_labels(CLASSES, metadata={"names": ["road", "car"]})
    for number in range(3):
        t_ns = START_NS + 33_333_333 * number + 12_000_000
        given.depths.append((t_ns, rng.uniform(0, 600, (48, 64)).astype(np.float32)))
        given.flows.append((t_ns, rng.normal(size=(48, 64, 2)).astype(np.float32)))
        picture = rng.integers(0, 20, (48, 64), dtype=np.uint8)
        given.classes.append((t_ns, bytes(cv2.imencode(".png", picture)[1].tobytes())))
        depth.label(*given.depths[-1], metadata={"number": number})
        flow.label(*given.flows[-1])
        classes.label(*given.classes[-1])


def write_sequence(folder: Path, store: StoreKind, name: str = "drive") -> Given:
    """A sequence with every component, in one store."""
    given = Given()
    rng = np.random.default_rng(7)
    interval = (START_NS, STOP_NS)
    with SequenceWriter(
        folder, name, interval_ns=interval, metadata=METADATA, store=store
    ) as sequence:
        write_poses(sequence, [*MODELS, "lidar", "radar"], given)
        write_cameras(sequence, given)
        write_rays(sequence, given, rng)
        write_labels(sequence, given, rng)
        given.imu = rng.normal(size=(300, 6)).astype(np.float32)
        imu = sequence.poses().generic_rows("imu", np.float32, (6,), chunk_rows=128)
        imu.append(given.imu[:100])
        imu.append(given.imu[100:])
        sequence.poses().set_generic_data({"imu_t_ns": np.arange(300)}, {"source": "identity"})
        custom = sequence.custom("com.example.velocity", "fused", version="v2")
        custom.group.array("velocities", np.eye(3))
        sequence.camera("never")  # has no frame
    assert sequence.packed is not None
    assert sequence.packed.omitted == ("cameras/never",)
    return given
