"""The rig load: what it costs to record four sensors, beside red-rover's way of doing it.

``python -m benchmarks.rig [--seconds 60] [--json FILE]``, from a clone.  1080p at 30 Hz with
encoding, lidar of 128x1024 at 10 Hz, radar of 15.7 MB/s at 20 Hz, IMU at 100 Hz; both record the
same frames from memory, one after the other: half of theirs, all of ours, the other half of
theirs.  CPU time is what the kernel counts for the processes between the beginning of a capture
and the moment when all is written and closed.  See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.frames import RECORDINGS, SENSORS, make_frames
from benchmarks.measure import Memory, ProcessTree, cpu_seconds, file_bytes
from benchmarks.report import text_report

ROOT = Path(__file__).resolve().parents[1]
TARGET_RATIO = 0.6
TARGET_RSS_MB = 150.0
_START_S = 60.0
_LEAD_S = 0.5  # from "ready" to the first frame
_EAGER_S = 1.0  # so long before the end readings become frequent


@dataclass(slots=True)
class OurRun:
    """One run of the recorder."""

    seconds: float
    cpu: dict[str, float]
    checksums_cpu: float
    memory: Memory
    bytes: int
    samples: dict[str, int]
    lost: dict[str, Any]
    exit_code: int


@dataclass(slots=True)
class TheirRun:
    """One capture in red-rover's way."""

    seconds: float
    cpu: dict[str, float]
    bytes: int
    samples: dict[str, int]
    opencv_threads: int


class BenchmarkError(Exception):
    """A run could not be measured."""


def run_ours(frames: Path, root: Path, seconds: float) -> OurRun:
    """Record with ``recorder run`` for so long and measure it from outside."""
    config = root / "rig.yaml"
    lines = [
        f"  {n}: {{driver: benchmarks.rig_drivers.{n}, source: 'file:{frames}'}}" for n in SENSORS
    ]
    config.write_text("\n".join(["version: 1", "sensors:", *lines, "storage: {min_free_gb: 1}\n"]))
    command = [sys.executable, "-c", "import sys, recorder.cli as c; sys.exit(c.main())"]
    command += ["run", str(config), "--root", str(root), "--duration", str(seconds)]
    with (root / "stderr.txt").open("wb") as log, (root / "stdout.txt").open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=log)
    try:
        session = _wait_for_session(process, root)
        tree = ProcessTree(process.pid)
        before, start_s = tree.cpu_seconds(), time.monotonic()
        memory = Memory()
        after = before
        while not _closed(session) and process.poll() is None:
            elapsed = time.monotonic() - start_s
            if elapsed >= len(memory.seconds):
                memory.add(elapsed, tree.rss_bytes("writer") or 0)
            time.sleep(0.02 if elapsed > seconds - _EAGER_S else 0.1)
            if elapsed > seconds - _EAGER_S:
                after = tree.cpu_seconds()
        last = after = tree.cpu_seconds()
        while process.poll() is None:
            last = tree.cpu_seconds()
            time.sleep(0.02)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    info = _info(session)
    streams = info["streams"]
    cpu = {k: after[k] - before.get(k, 0.0) for k in after if k not in ("checksums", "other")}
    return OurRun(
        seconds,
        cpu,
        last.get("checksums", 0.0),
        memory,
        file_bytes(session),
        {name: streams[name]["samples"] for name in SENSORS},
        {
            n: streams[n]["lost"]
            for n in SENSORS
            if streams[n]["lost"] or streams[n]["lost_intervals"]
        },
        process.returncode,
    )


def run_theirs(frames: Path, root: Path, seconds: float) -> TheirRun:
    """Capture in red-rover's way for so long and measure it from outside."""
    out = root / "baseline"
    processes = {
        name: subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.baseline",
                name,
                str(frames),
                str(out),
                str(seconds),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in SENSORS
    }
    try:
        for name in processes:
            _read_line(processes[name], "ready")
        watched = {name: psutil.Process(p.pid) for name, p in processes.items()}
        before = {name: cpu_seconds(p) for name, p in watched.items()}
        start_ns = time.monotonic_ns() + round(_LEAD_S * 1e9)
        for process in processes.values():
            _tell(process, str(start_ns))
        done = {name: json.loads(_read_line(p, "{")) for name, p in processes.items()}
        cpu = {name: cpu_seconds(p) - before[name] for name, p in watched.items()}
        for process in processes.values():
            _tell(process, "end")
            process.wait()
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
    return TheirRun(
        seconds,
        cpu,
        file_bytes(out),
        {name: d["samples"] for name, d in done.items()},
        done["camera"]["opencv_threads"],
    )


def _wait_for_session(process: subprocess.Popen[bytes], root: Path) -> Path:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        log = (root / "stderr.txt").read_text()
        if found := re.search(r"recording (.+); live views", log):
            return Path(found[1])
        time.sleep(0.005)
    raise BenchmarkError("recorder run did not begin:\n" + (root / "stderr.txt").read_text())


def _closed(session: Path) -> bool:
    state = json.loads((session / "_recorder" / "session.json").read_bytes())["state"]
    return bool(state != "recording")


def _info(session: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", "import sys, recorder.cli as c; sys.exit(c.main())"]
    command += ["info", str(session), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    try:
        info: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise BenchmarkError(f"{session}: `recorder info` says nothing of use") from None
    return info


def _read_line(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(beginning):
        raise BenchmarkError(f"{process.args!r}: said {line!r} instead of {beginning!r}")
    return line


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def measure(frames: Path, root: Path, seconds: float) -> dict[str, Any]:
    """Half of theirs, ours, the other half of theirs; what the report is made from."""
    ours: OurRun | None = None
    theirs: list[TheirRun] = []
    for turn in range(3):
        folder = root / f"run{turn}"
        folder.mkdir()
        _note(f"{'ours' if turn == 1 else 'theirs'} ...")
        if turn == 1:
            ours = run_ours(frames, folder, seconds)
        else:
            theirs.append(run_theirs(frames, folder, seconds / 2))
        shutil.rmtree(folder)
    assert ours is not None
    return _result(ours, theirs)


def _result(ours: OurRun, theirs: list[TheirRun]) -> dict[str, Any]:
    seconds = sum(t.seconds for t in theirs)
    their_cpu = {n: sum(t.cpu[n] for t in theirs) / seconds for n in SENSORS}
    our_cpu = {name: value / ours.seconds for name, value in ours.cpu.items()}
    our_total, their_total = sum(our_cpu.values()), sum(their_cpu.values())
    due = {name: round(ours.seconds * rig.rate_hz) for name, rig in SENSORS.items()}
    return {
        "seconds": ours.seconds,
        "ours": {
            "cpu": our_total,
            "cpu_by_process": our_cpu,
            "checksums_cpu": ours.checksums_cpu / ours.seconds,
            "mb_per_s": ours.bytes / ours.seconds / 1e6,
            "samples": ours.samples,
            "samples_due": due,
            "lost": ours.lost,
            "exit_code": ours.exit_code,
            "writer_rss_max_mb": ours.memory.max_mb,
            "writer_rss_slope_mb_per_minute": ours.memory.slope_mb_per_minute,
            "writer_rss_mb": [round(b / 1e6, 1) for b in ours.memory.rss_bytes],
        },
        "theirs": {
            "cpu": their_total,
            "cpu_by_process": their_cpu,
            "mb_per_s": sum(t.bytes for t in theirs) / seconds / 1e6,
            "samples": {n: sum(t.samples[n] for t in theirs) for n in SENSORS},
            "opencv_threads": theirs[0].opencv_threads,
        },
        "ratio": our_total / their_total,
        "ratio_with_checksums": (our_total + ours.checksums_cpu / ours.seconds) / their_total,
        "holds": {
            f"ratio at most {TARGET_RATIO}": our_total / their_total <= TARGET_RATIO,
            "nothing lost": ours.samples == due and not ours.lost and ours.exit_code == 0,
            f"writer below {TARGET_RSS_MB:g} MB": ours.memory.max_mb < TARGET_RSS_MB,
        },
    }


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    packages = ("numpy", "opencv-python-headless", "pyzmq", "msgpack", "ouster-sdk")
    return {
        "cpus": psutil.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
    }


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """0, or 1 where a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rig", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of our run (60)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--root", type=Path, metavar="DIR", help="record below DIR")
    parser.add_argument(
        "--simulated", action="store_true", help="simulated frames even where real ones are there"
    )
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="rig-benchmark-", dir=args.root))
    try:
        frames = root / "frames"
        frames.mkdir()
        origins = make_frames(frames, None if args.simulated else RECORDINGS)
        result = {"machine": machine(), "frames": origins, **measure(frames, root, args.seconds)}
    finally:
        shutil.rmtree(root)
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    print(text_report(result))
    return 0 if all(result["holds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
