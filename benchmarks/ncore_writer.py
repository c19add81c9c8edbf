"""Our NCore writer compared with nvidia-ncore's writer, in one run on the same frames.

1080p JPEG frames and 128x1024 sweeps, with one return and with two, are written to an ``.itar`` and
to a folder store.  The writers take turns.  Time includes all frames, finishing the store and
making the JSON file.  Ours computes the MD5 for the JSON file while it writes, theirs reads the
store again; ours syncs its files, theirs does not.  The benchmark runs in ``.venv-conformance``,
which has nvidia-ncore.
"""

from __future__ import annotations

import importlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.harness import Figure, Option, Run, Unavailable, ratios
from recorder.archives.ncore import IdealPinhole, SequenceWriter
from recorder.archives.ncore.format.sequence import StoreKind

ROWS, COLUMNS = 128, 1024
RAYS = ROWS * COLUMNS
START_NS = 1_700_000_000_000_000_000
STOP_NS = START_NS + 3_600_000_000_000
STEP_NS = 100_000_000
VARIANTS = 4
OPTIONS = {
    "frames": Option("int", 200, "pictures of a run", minimum=1),
    "sweeps": Option("int", 30, "sweeps of a run", minimum=1),
    "rounds": Option("int", 5, "rounds of both writers, after one that warms up", minimum=1),
    "stores": Option("str", "itar,folder", "kinds of store"),
}
QUICK = {"frames": 40, "sweeps": 6, "rounds": 2}


class Sweep(NamedTuple):
    """Data of a sweep, as both writers accept them."""

    direction: npt.NDArray[np.float32]
    column_ns: npt.NDArray[np.int64]
    distance_m: npt.NDArray[np.float32]
    intensity: npt.NDArray[np.float32]


class Timing(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def images() -> list[bytes]:
    """Make 1080p pictures with edges and noise, as JPEG."""
    rng = np.random.default_rng(1)
    made = []
    for number in range(VARIANTS):
        image = np.zeros((1080, 1920, 3), np.uint8)
        image[:] = np.linspace(0, 255, 1920, dtype=np.uint8)[None, :, None]
        for _ in range(60):
            x, y = int(rng.integers(0, 1920)), int(rng.integers(0, 1080))
            colour = tuple(int(c) for c in rng.integers(0, 255, 3))
            cv2.rectangle(image, (x, y), (x + 40 * number + 80, y + 60), colour, -1)
        noisy = image + rng.integers(0, 12, image.shape, dtype=np.uint8)
        made.append(bytes(cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]))
    return made


def sweeps(returns: int) -> list[Sweep]:
    """Make sweeps of smooth surfaces with noise and gaps; directions are xyz / |xyz|."""
    rng = np.random.default_rng(2)
    rows, columns = np.divmod(np.arange(RAYS), COLUMNS)
    made = []
    for _ in range(VARIANTS):
        azimuth = columns / COLUMNS * 2 * np.pi
        elevation = 0.39 - rows / ROWS * 0.78
        distance = 20 + 15 * np.sin(3 * azimuth) + 5 * np.cos(7 * elevation)
        distance = distance + rng.normal(0, 0.02, (returns, RAYS))
        metres: npt.NDArray[np.float32] = np.round(distance, 3).astype(np.float32)
        metres[rng.uniform(size=metres.shape) < 0.25] = np.nan
        origin = 0.0277 / np.nan_to_num(metres[0], nan=20.0)
        azimuth = azimuth + origin * 0.1
        vectors = np.stack(
            [
                np.cos(azimuth) * np.cos(elevation),
                np.sin(azimuth) * np.cos(elevation),
                np.sin(elevation),
            ],
            axis=1,
        )
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        levels = rng.integers(0, 256, (returns, RAYS)) / 255
        levels[np.isnan(metres)] = np.nan
        intensity = levels.astype(np.float32)
        column_ns = np.linspace(0, 99_000_000, COLUMNS).astype(np.int64)
        made.append(Sweep(vectors.astype(np.float32), column_ns, metres, intensity))
    return made


ELEMENTS = np.stack(np.divmod(np.arange(RAYS), COLUMNS), axis=1).astype(np.uint16)


def ours(
    folder: Path, store: StoreKind, frames: list[bytes], lidar: list[Sweep], count: int
) -> Timing:
    """Time our writer."""
    begin, cpu = time.perf_counter(), time.process_time()
    sequence = SequenceWriter(folder, "seq", interval_ns=(START_NS, STOP_NS), store=store)
    sequence.poses().static_pose("sensor", "world", np.eye(4))
    if frames:
        model = IdealPinhole((1920, 1080), focal_length_px=(9, 9), principal_point_px=(9, 9))
        sequence.intrinsics().camera("sensor", model)
        camera = sequence.camera("sensor")
        for i in range(count):
            t_ns = START_NS + i * STEP_NS
            camera.frame(t_ns, t_ns + 20_000_000, frames[i % VARIANTS], metadata={"number": i})
    else:
        writer = sequence.lidar("sensor")
        elements = writer.constant(ELEMENTS)
        for i in range(count):
            sweep = lidar[i % VARIANTS]
            t_ns = START_NS + i * STEP_NS
            writer.frame(
                t_ns,
                t_ns + 99_000_000,
                direction=sweep.direction,
                t_ns=np.tile(sweep.column_ns + t_ns, ROWS),
                distance_m=sweep.distance_m,
                intensity=sweep.intensity,
                model_element=elements,
                metadata={"number": i},
            )
    sequence.finish()
    return Timing(time.perf_counter() - begin, time.process_time() - cpu)


def theirs(
    folder: Path, store: StoreKind, frames: list[bytes], lidar: list[Sweep], count: int
) -> Timing:
    """Time nvidia-ncore's writer."""
    components: Any = importlib.import_module("ncore.impl.data.v4.components")
    interval: Any = importlib.import_module("ncore.impl.common.transformations").HalfClosedInterval
    paths: Any = importlib.import_module("upath")
    kind = "itar" if store == "itar" else "directory"
    begin, cpu = time.perf_counter(), time.process_time()
    writer = components.SequenceComponentGroupsWriter(
        paths.UPath(folder), "seq", "seq", interval(START_NS // 1000, STOP_NS // 1000), {}, kind
    )
    poses = writer.register_component_writer(components.PosesComponent.Writer, "default")
    poses.store_static_pose("sensor", "world", np.eye(4))
    if frames:
        kind_of = components.CameraSensorComponent.Writer
        camera = writer.register_component_writer(kind_of, "sensor")
        for i in range(count):
            t_us = (START_NS + i * STEP_NS) // 1000
            times = np.array([t_us, t_us + 20_000], np.uint64)
            camera.store_frame(frames[i % VARIANTS], "jpeg", times, {}, {"number": i})
    else:
        kind_of = components.LidarSensorComponent.Writer
        sensor = writer.register_component_writer(kind_of, "sensor")
        for i in range(count):
            sweep = lidar[i % VARIANTS]
            t_us = (START_NS + i * STEP_NS) // 1000
            sensor.store_frame(
                sweep.direction,
                np.tile((sweep.column_ns // 1000 + t_us).astype(np.uint64), ROWS),
                ELEMENTS,
                sweep.distance_m,
                sweep.intensity,
                np.array([t_us, t_us + 99_000], np.uint64),
                {},
                {"number": i},
            )
    stores = writer.finalize()
    reader = components.SequenceComponentGroupsReader(stores)
    (folder / "seq.json").write_text(json.dumps(reader.get_sequence_meta().to_dict()))
    return Timing(time.perf_counter() - begin, time.process_time() - cpu)


def measure(run: Run) -> Iterator[Figure]:
    """Measure each store with pictures, and with sweeps of one return and two."""
    try:
        importlib.import_module("ncore.impl.data.v4.components")
    except ImportError as error:
        raise Unavailable(f"nvidia-ncore cannot be imported: {error}") from None
    pictures = images()
    size_kb = sum(map(len, pictures)) / len(pictures) / 1e3
    run.data["pictures"] = f"{run.options['frames']} made ones of 1080p, JPEGs of {size_kb:.0f} kB"
    run.data["sweeps"] = (
        f"{run.options['sweeps']} made ones of {ROWS}x{COLUMNS} with noise and gaps"
    )
    worst: dict[str, list[float]] = {}
    stores = run.options["stores"].split(",")
    cases: list[tuple[str, list[bytes], int]] = [("1080p JPEG", pictures, 0)]
    cases += [("sweep", [], 1), ("sweep of two returns", [], 2)]
    left = len(stores) * len(cases)
    for store in stores:
        for name, frames, returns in cases:
            lidar = sweeps(returns) if returns else []
            for what, values in compare(run, store, frames, lidar, 1 / left).items():
                yield Figure(f"{name}, {store}, {what} ratio", values)
                worst[what] = max(worst.get(what, values), values, key=statistics.median)
            left -= 1
    for what, values in worst.items():
        yield Figure(f"{what} ratio, worst", values)


def compare(
    run: Run, store: StoreKind, frames: list[bytes], lidar: list[Sweep], share: float
) -> dict[str, list[float]]:
    """Run both writers in turns; return the ratios of time and of CPU time."""
    count = run.options["frames" if frames else "sweeps"]
    timings: dict[str, list[Timing]] = {"ours": [], "theirs": []}
    writers: dict[str, Callable[..., Timing]] = {"ours": ours, "theirs": theirs}
    for write in writers.values():  # a first time to warm up
        with run.scratch() as folder:
            write(folder, store, frames, lidar, min(count, VARIANTS))
    for _ in run.rounds(share):
        for who, write in writers.items():
            with run.scratch() as folder:
                timings[who].append(write(folder, store, frames, lidar, count))
    walls, cpus = (zip(*timings[who], strict=True) for who in writers)
    (our_wall, our_cpu), (their_wall, their_cpu) = walls, cpus
    return {"time": ratios(our_wall, their_wall), "CPU": ratios(our_cpu, their_cpu)}
