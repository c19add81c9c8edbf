"""Rig load: cost of recording four sensors, compared with red-rover's way.

The sensors are 1080p at 30 Hz with encoding, a lidar of 128x1024 at 10 Hz, a radar of 15.7 MB/s at
20 Hz and an IMU at 100 Hz.  Both sides take the same frames from memory, in turns: theirs, ours,
theirs, ..., theirs.  CPU time is the kernel's count for the processes from the beginning of a
capture until all files are written and closed.  Theirs is `benchmarks.baseline`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.frames import SENSORS, load_frames, make_rig
from benchmarks.harness import (
    ROOT,
    BenchmarkError,
    Figure,
    Option,
    Run,
    ratios,
    read_line,
    run_measured,
    write_line,
)
from benchmarks.measure import cpu_seconds, file_bytes
from benchmarks.pictures import equal_quality, jpeg_psnr_db, video_psnr_db
from benchmarks.recording import Recording, record_measured, rig_sensors

OPTIONS = {
    "seconds": Option("float", 20.0, "recorded seconds of a run", minimum=1),
    "rounds": Option("int", 5, "runs of ours; theirs has one more", minimum=1),
}
QUICK = {"seconds": 4.0, "rounds": 1}
RATES = {name: float(rig.rate_hz) for name, rig in SENSORS.items()}
_LEAD_S = 0.5  # from "ready" to the first frame


@dataclass(slots=True)
class Capture:
    """One capture in red-rover's way: CPU seconds and file bytes by sensor."""

    cpu: dict[str, float]
    bytes: dict[str, int]
    video: Path


def measure(run: Run) -> Iterator[Figure]:
    """Measure theirs and ours in turns, then ours at the quality with their PSNR."""
    seconds = run.options["seconds"]
    frames = make_rig(run)
    pictures = load_frames(frames, "camera")["image"]

    def record(folder: Path, **options: Mapping[str, Any]) -> Recording:
        return record_measured(folder, rig_sensors(frames, **options), seconds)

    def record_later(folder: Path) -> tuple[Recording, tuple[float, int]]:
        later = record(folder, lidar={"packing": "later"})
        return later, _pack_later(later.path)

    def capture_first(folder: Path) -> Capture:
        captured = capture(frames, folder, seconds)
        if not psnr_db:
            psnr_db.append(video_psnr_db(captured.video, pictures[:, :, :, ::-1]))
        return captured

    psnr_db: list[float] = []
    done = run.alternate(capture_first, {"ours": record, "later": record_later}, 0.8)
    theirs, (their_psnr_db,) = done["theirs"], psnr_db
    yield from _shares(done["ours"], theirs, seconds)
    later, packed = map(list, zip(*done["later"], strict=True))
    yield from _later(later, packed, theirs, seconds)
    quality = equal_quality(pictures, their_psnr_db)
    yield Figure("picture, red-rover's way", [their_psnr_db], "dB")
    yield Figure("picture, quality 90", [jpeg_psnr_db(pictures, 90)], "dB")
    yield Figure("quality of equal PSNR", [quality], "JPEG quality")
    with run.scratch() as folder:
        small = record(folder, camera={"quality": quality}, lidar={"packing": "later"})
        small_bytes = _pack_later(small.path)[1]
    with run.scratch() as folder:
        equal = record(folder, camera={"quality": quality})
    their_bytes = statistics.median(sum(t.bytes.values()) for t in theirs)
    yield Figure("bytes ratio at equal PSNR", [equal.bytes / their_bytes])
    yield Figure("bytes ratio at equal PSNR, packed", [small_bytes / their_bytes])
    their_cpu = statistics.median(sum(t.cpu.values()) for t in theirs) / seconds
    yield Figure("CPU ratio at equal PSNR", [equal.cpu_per_s / their_cpu])


def _shares(ours: list[Recording], theirs: list[Capture], seconds: float) -> Iterator[Figure]:
    their_cpu = [sum(t.cpu.values()) / seconds for t in theirs]
    yield Figure("CPU ratio", ratios([r.cpu_per_s for r in ours], their_cpu))
    with_sums = [r.cpu_per_s + r.checksums_cpu / seconds for r in ours]
    yield Figure("CPU ratio with checksums afterwards", ratios(with_sums, their_cpu))
    their_bytes = [float(sum(t.bytes.values())) for t in theirs]
    yield Figure("bytes ratio", ratios([float(r.bytes) for r in ours], their_bytes))
    missing = [float(r.missing(RATES)) for r in ours]
    yield Figure("samples missing", missing, "samples")
    yield Figure("ours, all", [r.cpu_per_s for r in ours], "CPU s / s")
    for name in ours[0].cpu:
        yield Figure(f"ours, {name}", [r.cpu[name] / seconds for r in ours], "CPU s / s")
    yield Figure("theirs, all", their_cpu, "CPU s / s")
    for name in SENSORS:
        yield Figure(f"theirs, {name}", [t.cpu[name] / seconds for t in theirs], "CPU s / s")
    yield Figure("ours", [r.bytes / seconds / 1e6 for r in ours], "MB/s")
    yield Figure("theirs", [value / seconds / 1e6 for value in their_bytes], "MB/s")
    for name in SENSORS:
        sizes = [r.streams[name]["bytes"] / seconds / 1e6 for r in ours]
        yield Figure(f"ours, {name}", sizes, "MB/s")
        sizes = [t.bytes[name] / seconds / 1e6 for t in theirs]
        yield Figure(f"theirs, {name}", sizes, "MB/s")
    yield Figure("writer, resident at most", [r.memory.max_mb for r in ours], "MB")
    slopes = [r.memory.slope_mb_per_minute for r in ours]
    if all(slope is not None for slope in slopes):
        yield Figure("writer, growth in the later half", [s or 0.0 for s in slopes], "MB / minute")


def _pack_later(session: Path) -> tuple[float, int]:
    """Pack a session's stored rows; return CPU seconds, and the session's bytes afterwards."""
    words = [sys.executable, "-P", "-m", "recorder.integrity.deferred_compression", str(session)]
    done = run_measured(words)
    return done.cpu_s, file_bytes(session)


def _later(
    later: list[Recording],
    packed: list[tuple[float, int]],
    theirs: list[Capture],
    seconds: float,
) -> Iterator[Figure]:
    their_cpu = [sum(t.cpu.values()) / seconds for t in theirs]
    their_bytes = [float(sum(t.bytes.values())) for t in theirs]
    yield Figure("CPU ratio, later", ratios([r.cpu_per_s for r in later], their_cpu))
    both = [r.cpu_per_s + p[0] / seconds for r, p in zip(later, packed, strict=True)]
    yield Figure("CPU ratio, packed", ratios(both, their_cpu))
    yield Figure("bytes ratio, later", ratios([float(r.bytes) for r in later], their_bytes))
    yield Figure("bytes ratio, packed", ratios([float(p[1]) for p in packed], their_bytes))
    yield Figure("samples missing, later", [float(r.missing(RATES)) for r in later], "samples")
    for name in later[0].cpu:
        yield Figure(f"later, {name}", [r.cpu[name] / seconds for r in later], "CPU s / s")
    yield Figure("packing afterwards", [p[0] / seconds for p in packed], "CPU s / s")


def capture(frames: Path, root: Path, seconds: float) -> Capture:
    """Capture in red-rover's way for `seconds`, and measure it from outside."""
    out = root / "baseline"
    words = [sys.executable, "-m", "benchmarks.baseline"]
    processes = {
        name: subprocess.Popen(
            [*words, name, str(frames), str(out), str(seconds)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in SENSORS
    }
    try:
        for process in processes.values():
            read_line(process, "ready")
        watched = {name: psutil.Process(p.pid) for name, p in processes.items()}
        before = {name: cpu_seconds(p) for name, p in watched.items()}
        start_ns = time.monotonic_ns() + round(_LEAD_S * 1e9)
        for process in processes.values():
            write_line(process, str(start_ns))
        done: dict[str, Any] = {n: json.loads(read_line(p, "{")) for n, p in processes.items()}
        cpu = {name: cpu_seconds(p) - before[name] for name, p in watched.items()}
        for process in processes.values():
            write_line(process, "end")
            process.wait()
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
    due = {name: round(seconds * rate) for name, rate in RATES.items()}
    if due != (got := {name: d["samples"] for name, d in done.items()}):
        raise BenchmarkError(f"theirs captured {got} samples of {due}")
    return Capture(
        cpu, {name: file_bytes(out / name) for name in SENSORS}, out / "camera/video.avi"
    )
