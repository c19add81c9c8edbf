"""What it costs to pack a session of the rig load as each archive.

``python -m benchmarks.packing [--seconds 120] [--archives ncore,l5kit] [--json FILE]``.

Sessions of the rig load (1080p at 30 Hz, 128x1024 sweeps at 10 Hz, 15.7 MB/s of radar, IMU at
100 Hz) are recorded as fast as the disk takes it, one of the length and one of a quarter of it:
memory that grows with a session shows in the pair.  Each is given a calibration, the trajectory and
the boxes of the simulated drive.  Then ``recorder finalize`` packs it in a process of its own,
archive after archive.  Times are wall times with and without looking over the session first, and
CPU times, since finalizing gives way to all else on the machine.  See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frames import PCAP, RECORDINGS, SENSORS, make_frames
from drivers._kit.driver import SensorConfig
from drivers.ouster import OusterDriver
from drivers.sim import truth
from drivers.sim.world import World
from recorder.archives.base import available
from recorder.contract.config.options import check_options
from recorder.contract.streams import StreamSpec
from recorder.session.reader import Session

ROOT = Path(__file__).resolve().parents[1]
TARGET_SPEED = 10.0
"""How many times faster than real time packing should be."""
_POSE_NS = 10_000_000
WAYS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "mcap": {
        "mcap": (),
        "mcap ros2": ("mcap.profile=ros2",),
        "mcap without points": ("mcap.lidar=none",),
        "mcap ros2 without points": ("mcap.profile=ros2", "mcap.lidar=none"),
    }
}
"""Archives that are packed in several ways: options by the name of the way."""
SPEEDS = {
    "mcap": 5.0,
    "mcap ros2": 5.0,
    "mcap without points": 20.0,
    "mcap ros2 without points": 20.0,
}
"""How many times faster than real time packing should be, where that is not `TARGET_SPEED`."""
_COMMAND = (sys.executable, "-c", "import sys, recorder.cli as c; sys.exit(c.main())")
# What the kernel tells of a child's memory begins with its parent's: the child has to say.
_MEASURED = (
    sys.executable,
    "-c",
    "import sys, recorder.cli as c; code = c.main();"
    "sys.stderr.write(open('/proc/self/status').read()); sys.exit(code)",
)


@dataclass(frozen=True)
class Packing:
    """One archive of one session.

    Attributes:
        archive: its kind, or the way of `WAYS`.
        session_s: length of the session.
        session_mb, archive_mb: sizes.
        pack_s: that packing took.
        all_s: that the command took, with verifying the session.
        cpu_s: CPU time of the command, user and system.
        peak_mb: the most memory that it had resident.
        error: why there is no archive; empty where there is one.
    """

    archive: str
    session_s: float
    session_mb: float
    archive_mb: float = 0.0
    pack_s: float = 0.0
    all_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    error: str = ""

    @property
    def speed(self) -> float:
        """How many times faster than real time, verifying and all."""
        return self.session_s / self.all_s if self.all_s else 0.0

    @property
    def speed_on_two_cores(self) -> float:
        """The most that two cores could reach which have nothing else to do, by the CPU time."""
        return 2 * self.session_s / self.cpu_s if self.cpu_s else 0.0

    def __str__(self) -> str:
        head = f"{self.archive:25}{self.session_s:6.0f} s{self.session_mb:8.0f} MB"
        if self.error:
            return f"{head}  {self.error}"
        return (
            f"{head} ->{self.archive_mb:8.1f} MB{self.all_s:8.2f} s ({self.pack_s:.2f} s packing)"
            f"{self.speed:7.1f} x real time  CPU {self.cpu_s:.2f} s,"
            f" {self.cpu_s / self.session_s:.3f} per s, so {self.speed_on_two_cores:.1f} x on"
            f" two idle cores  peak {self.peak_mb:.1f} MB"
        )


def record(frames: Path, root: Path, seconds: float, metadata: str) -> Path:
    """A session of the rig load, of so many seconds, with labels and poses.

    Args:
        frames: what `make_frames` made.
        root: where to.
        seconds: how long.
        metadata: ``lidar.json`` of the sweeps.
    """
    config, name = root / "rig.yaml", f"rig{seconds:g}"
    sensors = [
        f"  {n}: {{driver: benchmarks.rig_drivers.{n}, source: 'file:{frames}', pace: max}}"
        for n in SENSORS
    ]
    calibration = f"calibration: {ROOT / 'configs/demo_calibration.yaml'}"
    storage = "storage: {min_free_gb: 1}"
    config.write_text("\n".join(["version: 1", calibration, storage, "sensors:", *sensors]) + "\n")
    command = [*_COMMAND, "run", str(config), "--root", str(root / "sessions"), "--name", name]
    command += ["--duration", str(seconds), "--no-finalize"]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    session = root / "sessions" / name
    (session / "lidar/lidar.json").write_text(metadata)
    annotate(session)
    return session


def annotate(path: Path) -> None:
    """The trajectory and the boxes of the simulated drive, as if it had been recorded."""
    world = World("drive", 0)
    with Session(path) as session:
        stamps = session.streams["lidar"].times()
        start_ns, last_ns = session.start_ns, max(int(s.t_ns[-1]) for s in session.streams.values())
    assert start_ns is not None
    lines = truth.cuboids(world, stamps - start_ns, stamps.tolist())
    header = {"format": "recorder-cuboids", "version": 1, "source": "simulated"}
    (path / "_cuboids").mkdir()
    with (path / "_cuboids/truth.jsonl").open("w") as file:
        file.write(json.dumps(header | {"times_of": "lidar"}) + "\n")
        file.writelines(line + "\n" for line in lines)
    t_ns = np.arange(0, last_ns - start_ns + _POSE_NS, _POSE_NS)
    (path / "_pose").mkdir()
    meta = {}
    for name, array in {"ts": (t_ns + start_ns) / 1e9, **truth.poses(world, t_ns)}.items():
        array.astype("<f8").tofile(path / "_pose" / name)
        meta[name] = {"format": "raw", "type": "f8", "shape": list(array.shape[1:]), "desc": ""}
    (path / "_pose/meta.json").write_text(json.dumps(meta))


def lidar_metadata(recordings: Path | None) -> str:
    """``lidar.json`` of the sweeps that `make_frames` takes."""
    given: dict[str, Any] = {"imu": False}
    pcap = recordings and recordings / PCAP
    scheme, address = "sim", ""
    if pcap is not None and pcap.is_file():
        scheme, address = "pcap", str(pcap)
        given["metadata"] = str(pcap.parent / "OS-1-128_v2.3.0_1024x10.json")
    options = check_options(OusterDriver.options, given)
    driver = OusterDriver(SensorConfig("lidar", scheme, address, options))
    try:
        specs: Sequence[StreamSpec] = driver.open()
        return next(spec.files["lidar.json"] for spec in specs if "lidar.json" in spec.files)
    finally:
        driver.close()


def pack(
    session: Path,
    archive: str,
    seconds: float,
    out: Path,
    way: str = "",
    options: Sequence[str] = (),
) -> Packing:
    """Finalize a session in a process of its own, and measure that.

    Python keeps what it compiled beside `out`, as it does where the package is installed.
    """
    bytecode = {"PYTHONPYCACHEPREFIX": str(out.with_name("bytecode"))}
    environment = os.environ | bytecode
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [*_MEASURED, "finalize", str(session), "--to", archive, "--out", str(out)]
    command += [word for option in options for word in ("--option", option)]
    way = way or archive
    size_mb = sum(p.stat().st_size for p in session.rglob("*") if p.is_file()) / 1e6
    with tempfile.TemporaryFile() as reported, tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            [*command, "--format", "json"],
            cwd=ROOT,
            env=environment,
            stdout=reported,
            stderr=errors,
        )
        _, status, used = os.wait4(process.pid, 0)
        all_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        reported.seek(0)
        errors.seek(0)
        said = errors.read().decode()
        if process.returncode:
            reason = said.partition("\nName:")[0].strip().rpartition("\n")[2]
            return Packing(way, seconds, size_mb, error=reason)
        (result,) = json.loads(reported.read())["archives"]
    for note in result["notes"]:
        print(f"  note: {note}", file=sys.stderr)
    return Packing(
        way,
        seconds,
        size_mb,
        result["bytes"] / 1e6,
        result["seconds"],
        all_s,
        used.ru_utime + used.ru_stime,
        int(re.findall(r"VmHWM:\s*(\d+) kB", said)[-1]) * 1024 / 1e6,
    )


def measure(
    root: Path, seconds: float, archives: list[str], recordings: Path | None
) -> Iterator[Packing]:
    """Record both sessions and pack them."""
    frames = root / "frames"
    frames.mkdir()
    for name, origin in make_frames(frames, recordings).items():
        print(f"{name:10}{origin}")
    metadata = lidar_metadata(recordings)
    for length in (seconds / 4, seconds):
        session = record(frames, root, length, metadata)
        for archive in archives:
            for way, options in WAYS.get(archive, {archive: ()}).items():
                out = root / "out"
                yield pack(session, archive, length, out, way, options)
                shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(session)


def main() -> int:
    """0, or 1 where packing the longer session is slower than it should be, or fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="length of the session (120)")
    parser.add_argument("--archives", default="", metavar="NAMES", help="only these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--root", type=Path, metavar="DIR", help="record below DIR")
    parser.add_argument(
        "--simulated", action="store_true", help="simulated frames even where real ones are there"
    )
    args = parser.parse_args()
    archives = args.archives.split(",") if args.archives else available()
    root = Path(tempfile.mkdtemp(prefix="packing-benchmark-", dir=args.root))
    packings = []
    try:
        recordings = None if args.simulated else RECORDINGS
        for packing in measure(root, args.seconds, archives, recordings):
            packings.append(packing)
            print(packing, flush=True)
    finally:
        shutil.rmtree(root)
    if args.json is not None:
        figures = [
            asdict(p) | {"speed": p.speed, "speed_on_two_cores": p.speed_on_two_cores}
            for p in packings
        ]
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    # Of the short session much is starting Python.
    longest = [p for p in packings if p.session_s == args.seconds]
    return 0 if all(p.speed >= SPEEDS.get(p.archive, TARGET_SPEED) for p in longest) else 1


if __name__ == "__main__":
    sys.exit(main())
