"""Codecs alone: JPEGs, sweeps and clouds, beside OpenCV's VideoWriter, liblzma and zstd.

Pictures: `cv2.imencode` as the recorder calls it, at quality 90 and at the quality with the PSNR of
the VideoWriter's MJPG, which has no setting for it; red-rover swaps the colours first.  Sweeps:
four channels with our filters, once with rows stored that hardly shrink and once with all rows
packed, compared with preset 0 of three channels in red-rover's types.  Clouds: the same sweeps as
PointCloud2 of 22 bytes a point, 2.9 MB, decoded and packed as the driver `lidar` does it, compared
with zstd at level 1 on the message, as MCAP files have it.  CPU time is that of this process with
all its threads.  The codecs run in turns.
"""

from __future__ import annotations

import lzma
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy.typing as npt
import zstandard

from benchmarks.baseline import lidar_parts, write_video
from benchmarks.clouds import LAYOUTS, make_clouds
from benchmarks.frames import BEAMS, COLUMNS, load_frames, make_rig
from benchmarks.harness import Figure, Option, Run, ratios
from benchmarks.pictures import equal_quality, jpeg_psnr_db, video_psnr_db
from benchmarks.rig_drivers.lidar import FIELDS
from drivers.ouster.frames import channel_arrays, channel_specs
from recorder.codecs import CHANNEL_FORMATS
from recorder.codecs.jpeg import encode_jpeg
from recorder.codecs.streams import StreamSpec
from recorder.codecs.xz import WORTH
from recorder.formats.ros2.clouds import CloudLayout, decode_cloud

OPTIONS = {
    "laps": Option("int", 8, "times that a round encodes each frame", minimum=1),
    "rounds": Option("int", 5, "repetitions", minimum=1),
}
QUICK = {"laps": 1, "rounds": 2}

Coder = Callable[[], int]
"""Function that encodes all frames of a round and returns the number of bytes."""


def measure(run: Run) -> Iterator[Figure]:
    """Measure pictures, then sweeps and clouds."""
    frames = make_rig(run)
    yield from _pictures(run, load_frames(frames, "camera")["image"])
    yield from _sweeps(run, load_frames(frames, "lidar"))
    yield from _clouds(run, make_clouds(frames, LAYOUTS["packed"]))


def _pictures(run: Run, pictures: npt.NDArray[Any]) -> Iterator[Figure]:
    video, laps = run.folder / "video.avi", run.options["laps"]
    write_video(video, pictures)
    psnr_db = video_psnr_db(video, pictures[:, :, :, ::-1])
    quality = equal_quality(pictures, psnr_db)
    yield Figure("VideoWriter, PSNR", [psnr_db], "dB")
    yield Figure("quality 90, PSNR", [jpeg_psnr_db(pictures, 90)], "dB")
    yield Figure("quality of equal PSNR", [quality], "JPEG quality")

    def jpegs(level: int) -> Coder:
        return lambda: sum(
            len(encode_jpeg(picture, level) or b"") for _ in range(laps) for picture in pictures
        )

    coders: dict[str, Coder] = {
        "VideoWriter": lambda: _video_bytes(video, pictures, laps),
        "quality 90": jpegs(90),
        "equal PSNR": jpegs(quality),
    }
    # The recorder's camera encodes in one thread; OpenCV's writer takes as many as it wants.
    threads = {"VideoWriter": cv2.getNumThreads(), "quality 90": 1, "equal PSNR": 1}
    yield from _compare(run, "picture", coders, len(pictures) * laps, threads)


def _video_bytes(path: Path, pictures: npt.NDArray[Any], laps: int) -> int:
    write_video(path, (picture for _ in range(laps) for picture in pictures))
    return path.stat().st_size


def _sweeps(run: Run, fields: Mapping[str, npt.NDArray[Any]]) -> Iterator[Figure]:
    count, laps = len(fields["RANGE"]), run.options["laps"]
    theirs = [lidar_parts(dict(fields), k) for k in range(count)]
    shape = (BEAMS, COLUMNS)
    ours = [
        channel_arrays({n: fields[n][k] for n in FIELDS}.__getitem__, FIELDS, shape)
        for k in range(count)
    ]
    specs = [c for c in channel_specs(FIELDS, *shape, "lzmaf") if c.format == "lzmaf"]

    def make_coder(worth: float) -> Coder:
        stream = StreamSpec("lidar", tuple(specs), settings={"xz_worth": worth})
        encoders = {c.name: CHANNEL_FORMATS[c.format].encoder(stream, c) for c in specs}
        return lambda: sum(
            len(frame)
            for _ in range(laps)
            for arrays in ours
            for name, encode in encoders.items()
            for frame in encode(arrays[name])
        )

    coders: dict[str, Coder] = {
        "preset 0": lambda: sum(
            len(lzma.compress(part.data, preset=0))
            for _ in range(laps)
            for parts in theirs
            for part in parts.values()
        ),
        f"packing {WORTH}": make_coder(WORTH),
        "packing 1": make_coder(1.0),
    }
    yield from _compare(run, "sweep", coders, count * laps, {})


def _clouds(run: Run, clouds: Sequence[bytearray]) -> Iterator[Figure]:
    laps = run.options["laps"]
    layout = CloudLayout.of([decode_cloud(clouds[0])])
    compressor = zstandard.ZstdCompressor(level=1)
    coders: dict[str, Coder] = {
        "message": lambda: sum(len(compressor.compress(c)) for _ in range(laps) for c in clouds),
        "columns": lambda: sum(
            len(layout.pack(decode_cloud(c)).frame) for _ in range(laps) for c in clouds
        ),
    }
    yield Figure("cloud, message size", [len(cloud) / 1e3 for cloud in clouds], "kB")
    packed = [len(layout.pack(decode_cloud(cloud)).frame) for cloud in clouds]
    shares = [size / len(cloud) for size, cloud in zip(packed, clouds, strict=True)]
    yield Figure("cloud, packed share of the message", shares)
    yield from _compare(run, "cloud", coders, len(clouds) * laps, {})


def _compare(
    run: Run, what: str, coders: Mapping[str, Coder], count: int, threads: Mapping[str, int]
) -> Iterator[Figure]:
    """Run every coder in turns; compare all with the first, which is the peer."""
    cpu_ms: dict[str, list[float]] = {name: [] for name in coders}
    size_kb: dict[str, list[float]] = {name: [] for name in coders}
    for _ in run.rounds(0.5):
        for name, code in coders.items():
            cv2.setNumThreads(threads.get(name, 1))
            begin_s = time.process_time()
            size_kb[name].append(code() / count / 1e3)
            cpu_ms[name].append(1e3 * (time.process_time() - begin_s) / count)
    peer, *ours = coders
    for name in ours:
        yield Figure(f"{what}, {name}, CPU ratio", ratios(cpu_ms[name], cpu_ms[peer]))
        yield Figure(f"{what}, {name}, bytes ratio", ratios(size_kb[name], size_kb[peer]))
    for name in coders:
        yield Figure(f"{what}, {name}", cpu_ms[name], "CPU ms")
        yield Figure(f"{what}, {name}, size", size_kb[name], "kB")
