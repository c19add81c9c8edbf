"""Our NCore writer beside nvidia-ncore's own, in one run on the same frames.

Needs nvidia-ncore (and zarr 2) in the interpreter's environment, besides the extra ``archives``:

    python -m benchmarks.ncore_writer [--frames N] [--sweeps N] [--store itar] [--folder DIR]

1080p JPEG frames and 128x1024 sweeps, one return and two, go into an ``.itar`` and a folder store.
The writers take turns, several rounds each.  Per frame: wall time, the median over the rounds of
the mean of a round's frames, and the best round, which other load on the machine disturbs least;
then the time to finish the store and to make the JSON file.  Ours takes the MD5 that stands in it
while it writes, theirs reads the store again for it; ours syncs what it wrote, theirs does not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from recorder.archives.ncore import IdealPinhole, SequenceWriter
from recorder.archives.ncore.sequence import StoreKind

ROWS, COLUMNS = 128, 1024
RAYS = ROWS * COLUMNS
START_NS = 1_700_000_000_000_000_000
STOP_NS = START_NS + 3_600_000_000_000
STEP_NS = 100_000_000
VARIANTS = 4


class Sweep(NamedTuple):
    """What a sweep consists of, as both writers take it."""

    direction: npt.NDArray[np.float32]
    column_ns: npt.NDArray[np.int64]
    distance_m: npt.NDArray[np.float32]
    intensity: npt.NDArray[np.float32]


class Timing(NamedTuple):
    """Milliseconds."""

    frame: float
    finish: float
    total: float
    cpu: float


def images() -> list[bytes]:
    """1080p pictures with edges and noise, as JPEG."""
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
    """Smooth surfaces with noise and gaps; directions are those of xyz / |xyz|."""
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
    """Our writer."""
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
    written = time.perf_counter()
    sequence.finish()
    end = time.perf_counter()
    return timing(begin, written, end, cpu, count)


def theirs(
    folder: Path, store: StoreKind, frames: list[bytes], lidar: list[Sweep], count: int
) -> Timing:
    """nvidia-ncore's writer."""
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
    written = time.perf_counter()
    stores = writer.finalize()
    reader = components.SequenceComponentGroupsReader(stores)
    (folder / "seq.json").write_text(json.dumps(reader.get_sequence_meta().to_dict()))
    end = time.perf_counter()
    return timing(begin, written, end, cpu, count)


def timing(begin: float, written: float, end: float, cpu: float, count: int) -> Timing:
    """Milliseconds, of a frame and of the whole."""
    return Timing(
        1e3 * (written - begin) / count,
        1e3 * (end - written),
        1e3 * (end - begin),
        1e3 * (time.process_time() - cpu),
    )


def compare(
    name: str, root: Path, store: StoreKind, frames: list[bytes], lidar: list[Sweep], count: int
) -> None:
    """Rounds of both writers by turns; prints a line each, and their ratio."""
    results: dict[str, list[Timing]] = {"ours": [], "theirs": []}
    writers: dict[str, Callable[..., Timing]] = {"ours": ours, "theirs": theirs}
    sizes = {}
    for round_ in range(6):
        for who, run in writers.items():
            folder = Path(tempfile.mkdtemp(dir=root))
            measured = run(folder, store, frames, lidar, count)
            if round_:  # the first one warms up
                results[who].append(measured)
            sizes[who] = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
            shutil.rmtree(folder)
    medians = {
        who: Timing(*(statistics.median(column) for column in zip(*rounds, strict=True)))
        for who, rounds in results.items()
    }
    best = {
        who: Timing(*(min(column) for column in zip(*rounds, strict=True)))
        for who, rounds in results.items()
    }
    for who, m in medians.items():
        print(
            f"{name:22} {store:7} {who:7} {m.frame:8.3f} ms/frame (best {best[who].frame:.3f})"
            f"  finish {m.finish:7.1f} ms"
            f"  all {m.total / count:8.3f} ms/frame  CPU {m.cpu / count:8.3f} ms/frame"
            f"  {sizes[who] / 1e6:7.1f} MB"
        )
    a, b = medians["ours"], medians["theirs"]
    print(
        f"{name:22} {store:7} ratio   {a.frame / b.frame:8.3f} of a frame"
        f" (best {best['ours'].frame / best['theirs'].frame:.3f}), "
        f"{a.total / b.total:.3f} of all, {a.cpu / b.cpu:.3f} of the CPU time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="our NCore writer beside nvidia-ncore's")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--sweeps", type=int, default=30)
    parser.add_argument("--store", choices=("itar", "folder"), help="one kind of store only")
    parser.add_argument("--folder", type=Path, help="where to write (a temporary folder)")
    arguments = parser.parse_args()
    try:
        importlib.import_module("ncore.impl.data.v4.components")
    except ImportError as error:
        sys.exit(f"nvidia-ncore is needed to compare with: {error}")
    pictures = images()
    print(f"JPEG of {sum(map(len, pictures)) / len(pictures) / 1e3:.0f} kB, sweeps of {RAYS} rays")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as root:
        stores: tuple[StoreKind, ...] = ("itar", "folder")
        if arguments.store:
            stores = (arguments.store,)
        for store in stores:
            compare("camera 1080p", Path(root), store, pictures, [], arguments.frames)
            for returns in (1, 2):
                name = f"lidar 128x1024 x{returns}"
                compare(name, Path(root), store, [], sweeps(returns), arguments.sweeps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process {peak:.0f} MB")


if __name__ == "__main__":
    main()
