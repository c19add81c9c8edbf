"""Cost of a bag of a vehicle on its way into NCore: ``recorder import``, then ``finalize``.

The bag has a camera (1080p JPEGs of quality 90 as CompressedImage), a lidar of 128x1024 at 10 Hz
(PointCloud2 in a layout of ouster_ros) and ``/tf`` at 100 Hz.  It is written once, by the package
``mcap`` or by sqlite3 as rosbag2 writes it.  Wall time and CPU time include start and verification,
and are those of all processes; memory is the peak of their sum (PSS).  A second bag, several times
as long, shows whether memory grows.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcap.writer import CompressionType, Writer

from benchmarks.clouds import FRAME, LAYOUTS, make_clouds, stamp_cloud
from benchmarks.frames import load_frames, make_rig
from benchmarks.harness import Figure, Option, Run, recorder, run_measured, succeed
from benchmarks.measure import file_bytes
from recorder.codecs.jpeg import encode_jpeg
from recorder.formats.ros2.codec import encode_message
from recorder.formats.ros2.definitions import (
    COMPRESSED_IMAGE,
    ENCODING,
    POINT_CLOUD,
    TRANSFORMS,
    definition,
)
from recorder.formats.ros2.messages import CompressedImage, Header, TransformStamped

OPTIONS = {
    "seconds": Option("float", 30.0, "length of the bag", minimum=2),
    "longer": Option("int", 4, "times the length of a second bag; 1: none", minimum=1),
    "rounds": Option("int", 3, "times that each is imported and packed", minimum=1),
    "storage": Option("str", "mcap", "storage of the bag", choices=("mcap", "mcap-zstd", "db3")),
    "camera": Option("float", 10.0, "pictures a second", minimum=1),
    "points": Option("str", "ouster", "layout of a point", choices=tuple(LAYOUTS)),
}
QUICK = {"seconds": 4.0, "longer": 2, "rounds": 1}
_START_NS: Final = 1_700_000_000_000_000_000
_CAMERA, _LIDAR, _TF, _STATIC = "/front/image/compressed", "/lidar/points", "/tf", "/tf_static"
_TYPES: Final = {
    _CAMERA: COMPRESSED_IMAGE,
    _LIDAR: POINT_CLOUD,
    _TF: TRANSFORMS,
    _STATIC: TRANSFORMS,
}
_OPTICAL: Final = "camera_optical"
_OFF_NS: Final = 2_000_000  # between topics, as no two sensors are due at the same time
_SWEEP_NS: Final = 100_000_000  # from a cloud's stamp, that of its first point, to its message
_TABLES: Final = """
CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL,
    serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL);
CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,
    data BLOB NOT NULL);
CREATE INDEX timestamp_idx ON messages (timestamp ASC);
"""  # of rosbag2_storage_sqlite3

Put = Callable[[str, int, bytes], None]
"""Function that writes a message of a topic with a log time."""


@dataclass(frozen=True)
class Way:
    """Cost of a bag on its way: importing it, and packing the session."""

    imported_s: float
    imported_cpu_s: float
    imported_mb: float
    packed_s: float
    packed_cpu_s: float
    packed_mb: float
    session_mb: float


def measure(run: Run) -> Iterator[Figure]:
    """Import and pack the bag, then the longer one."""
    make_rig(run)
    seconds, longer = run.options["seconds"], run.options["longer"]
    bag = write_bag(run, seconds)
    yield Figure("bag", [bag.stat().st_size / 1e6], "MB")
    done = run.repeat(lambda folder: take_way(run, bag, folder, seconds), 0.7)
    yield Figure("import and NCore", [w.imported_s + w.packed_s for w in done], "s")
    yield Figure("all, CPU", [w.imported_cpu_s + w.packed_cpu_s for w in done], "CPU s")
    yield Figure("import", [w.imported_s for w in done], "s")
    yield Figure("import, CPU", [w.imported_cpu_s for w in done], "CPU s")
    yield Figure("NCore", [w.packed_s for w in done], "s")
    yield Figure("NCore, CPU", [w.packed_cpu_s for w in done], "CPU s")
    yield Figure("session", [w.session_mb for w in done], "MB")
    yield Figure("import, memory", [w.imported_mb for w in done], "MB, PSS")
    yield Figure("NCore, memory", [w.packed_mb for w in done], "MB, PSS")
    bag.unlink()
    if longer > 1:
        bag = write_bag(run, seconds * longer)
        with run.scratch() as folder:
            long = take_way(run, bag, folder, seconds * longer)
        bag.unlink()
        more_mb = long.imported_mb - max(w.imported_mb for w in done)
        yield Figure(f"import, memory, {longer} times as long: more", [more_mb], "MB, PSS")
        more_mb = long.packed_mb - max(w.packed_mb for w in done)
        yield Figure(f"NCore, memory, {longer} times as long: more", [more_mb], "MB, PSS")


def take_way(run: Run, bag: Path, folder: Path, seconds: float) -> Way:
    """Import a bag into a folder, and pack the session there.

    Raises:
        BenchmarkError: a command failed.
        ValueError: a message is missing.
    """
    bytecode = run.folder / "bytecode"
    words = ["import", bag, "--root", folder, "--name", "bag", "--format", "json"]
    imported = succeed(run_measured(recorder(*words), bytecode=bytecode, tree=True))
    result = json.loads(imported.stdout)
    due = {_CAMERA: math.ceil(seconds * run.options["camera"]), _LIDAR: math.ceil(seconds * 10)}
    for topic, count in due.items():
        stream = result["streams"][result["topics"][topic]["sensor"]]
        if (stream["samples"], stream["lost"]) != (count, {}):
            raise ValueError(f"{topic}: {stream} instead of {count} samples")
    if not result["poses"]:
        raise ValueError(f"no poses: {result['notes']}")
    words = ["finalize", folder / "bag", "--to", "ncore", "--out", folder, "--format", "json"]
    packed = succeed(run_measured(recorder(*words), bytecode=bytecode, tree=True))
    for note in json.loads(packed.stdout)["archives"][0]["notes"]:
        if note not in run.notes:
            run.note(note)
    return Way(
        imported.wall_s,
        imported.cpu_s,
        imported.tree_mb,
        packed.wall_s,
        packed.cpu_s,
        packed.tree_mb,
        file_bytes(folder / "bag") / 1e6,
    )


def write_bag(run: Run, seconds: float) -> Path:
    """Write a bag of the given length; return its path."""
    storage = run.options["storage"]
    if storage == "db3":
        return _write_sqlite(run, seconds, run.folder / f"drive{seconds:g}_0.db3")
    compression = CompressionType.ZSTD if storage.endswith("zstd") else CompressionType.NONE
    path = run.folder / f"drive{seconds:g}_0.mcap"
    with path.open("wb") as file:
        writer = Writer(file, compression=compression)
        writer.start(profile="ros2", library="benchmark")
        channels = {}
        for topic, kind in _TYPES.items():
            schema = writer.register_schema(kind, ENCODING, definition(kind))
            channels[topic] = writer.register_channel(topic, "cdr", schema)
        _write_messages(
            run,
            seconds,
            lambda topic, t_ns, data: writer.add_message(channels[topic], t_ns, data, t_ns),
        )
        writer.finish()  # type: ignore[no-untyped-call]
    return path


def _write_sqlite(run: Run, seconds: float, path: Path) -> Path:
    database = sqlite3.connect(path)
    database.executescript(_TABLES)
    numbers = {topic: number for number, topic in enumerate(_TYPES, 1)}
    for topic, kind in _TYPES.items():
        row = (numbers[topic], topic, kind, "cdr", "")
        database.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", row)

    def put(topic: str, t_ns: int, data: bytes) -> None:
        message = (numbers[topic], t_ns, data)
        database.execute("INSERT INTO messages VALUES (NULL, ?, ?, ?)", message)

    _write_messages(run, seconds, put)
    database.commit()
    database.close()
    return path


def _write_messages(run: Run, seconds: float, put: Put) -> None:
    """Write the messages of all topics in the order of their log times."""
    frames, camera_hz = run.folder / "frames", run.options["camera"]
    clouds = make_clouds(frames, LAYOUTS[run.options["points"]])
    jpegs = [encode_jpeg(image, 90) for image in load_frames(frames, "camera")["image"]]
    mounts = (
        TransformStamped(Header(_START_NS, "base_link"), FRAME, (0.5, 0.0, 2.0), (0, 0, 0, 1)),
        TransformStamped(
            Header(_START_NS, "base_link"), _OPTICAL, (1.0, 0.0, 1.5), (-0.5, 0.5, -0.5, 0.5)
        ),
    )
    put(_STATIC, _START_NS, _encode(TRANSFORMS, mounts))
    due = [(k / camera_hz, 1, k) for k in range(math.ceil(seconds * camera_hz))]
    due += [((k + 1) / 10, 2, k) for k in range(math.ceil(seconds * 10))]
    due += [(k / 100, 0, k) for k in range(math.ceil(seconds * 100) + 20)]
    for due_s, kind, k in sorted(due):
        t_ns = _START_NS + round(due_s * 1e9) + kind * _OFF_NS
        if kind == 0:
            put(_TF, t_ns, _encode(TRANSFORMS, (_drive(t_ns, due_s),)))
        elif kind == 1:
            jpeg = jpegs[k % len(jpegs)] or b""
            image = CompressedImage(Header(t_ns, _OPTICAL), "jpeg", jpeg)
            put(_CAMERA, t_ns, _encode(COMPRESSED_IMAGE, image))
        else:
            cloud = clouds[k % len(clouds)]
            stamp_cloud(cloud, t_ns - _SWEEP_NS)
            put(_LIDAR, t_ns, bytes(cloud))


def _drive(t_ns: int, due_s: float) -> TransformStamped:
    """Return the pose on a circle of 50 m, at 10 m/s."""
    angle = due_s / 5
    position = (50 * math.sin(angle), 50 - 50 * math.cos(angle), 0.0)
    turn = (0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2))
    return TransformStamped(Header(t_ns, "odom"), "base_link", position, turn)


def _encode(kind: str, message: object) -> bytes:
    return b"".join(map(bytes, encode_message(kind, message)))
