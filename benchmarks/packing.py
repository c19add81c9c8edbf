"""Cost of packing a session of the rig load as each archive, and as all archives together.

Two sessions of the rig load (1080p at 30 Hz, 128x1024 sweeps at 10 Hz, 15.7 MB/s of radar, IMU at
100 Hz) are recorded as fast as the disk allows: one of the full length and one of a quarter of it,
so that memory that grows with a session is visible.  Each session gets a calibration, and the
trajectory and the boxes of the simulated drive.  Then ``recorder finalize`` packs it in a separate
process, archive after archive, and once all archives with one command.  Speeds are multiples of
real time and include start and verification.  CPU times and memory are those of all processes of
the command, memory as proportional set sizes (PSS).
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frames import make_rig
from benchmarks.harness import (
    ROOT,
    Figure,
    Option,
    Run,
    recorder,
    run_measured,
    succeed,
)
from benchmarks.measure import file_bytes
from benchmarks.recording import COMMAND, rig_sensors, write_config
from drivers.sim import truth
from drivers.world import World
from recorder.archives.base import available
from recorder.session.reader import Session

OPTIONS = {
    "seconds": Option("float", 120.0, "length of the session", minimum=4),
    "rounds": Option("int", 3, "times that each is packed", minimum=1),
    "archives": Option("str", "", "names of the archives; all where empty"),
    "together": Option("bool", True, "pack all archives with one command too"),
    "short": Option("bool", True, "pack a session of a quarter of the length first"),
}
QUICK = {"seconds": 12.0, "rounds": 1}
WAYS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "mcap": {
        "mcap": (),
        "mcap ros2": ("mcap.profile=ros2",),
        "mcap without points": ("mcap.lidar=none",),
        "mcap ros2 without points": ("mcap.profile=ros2", "mcap.lidar=none"),
    },
    "edgefirst": {
        "edgefirst": (),
        "edgefirst accompany=all": ("edgefirst.accompany=all",),
        "edgefirst png_level=0": ("edgefirst.png_level=0",),
    },
}
"""Archives that are packed in several ways: options by the name of the way."""
_POSE_NS = 10_000_000


@dataclass(frozen=True)
class Packing:
    """Cost of packing a session once: seconds, CPU seconds, peak memory, bytes."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    size_mb: float


def measure(run: Run) -> Iterator[Figure]:
    """Record both sessions, and pack them."""
    frames = make_rig(run)
    archives = run.options["archives"].split(",") if run.options["archives"] else available()
    longest = run.options["seconds"]
    lengths = [longest / 4, longest] if run.options["short"] else [longest]
    peaks: dict[bool, list[float]] = {False: [], True: []}
    for seconds in lengths:
        session = record(frames, run.folder, seconds)
        yield Figure(f"session of {seconds:g} s", [file_bytes(session) / 1e6], "MB")
        for figure in _pack_all(run, session, seconds, archives, seconds == longest):
            if figure.unit == "MB, PSS":
                peaks[figure.name.startswith("together")].append(figure.median)
            yield figure
    yield Figure("peak memory, one archive", [max(peaks[False])], "MB")
    if peaks[True]:
        yield Figure("peak memory, all together", [max(peaks[True])], "MB")


def _pack_all(
    run: Run, session: Path, seconds: float, archives: Sequence[str], longest: bool
) -> Iterator[Figure]:
    """Yield the figures of every archive; the shorter session's figures include its length."""
    end = "" if longest else f", {seconds:g} s"
    ways: dict[str, tuple[list[str], Sequence[str]]] = {
        way: ([archive], options)
        for archive in archives
        for way, options in WAYS.get(archive, {archive: ()}).items()
    }
    together = longest and run.options["together"] and len(archives) > 1
    if together:
        ways["together"] = list(archives), ()
    packed: dict[str, list[Packing]] = {}
    for turn in run.rounds():
        for way, (names, options) in ways.items():
            if turn and way not in packed:
                continue  # it cannot be packed, which has been noted
            try:
                packed.setdefault(way, []).append(pack(run, session, names, options))
            except Exception as error:  # noqa: BLE001 - the other archives go on
                packed.pop(way, None)
                run.skip(f"{way}{end}", str(error))
    for way, each in packed.items():
        yield Figure(f"{way}, speed{end}", [seconds / p.wall_s for p in each], "x real time")
        yield Figure(f"{way}, CPU{end}", [p.cpu_s / seconds for p in each], "CPU s / s")
        yield Figure(f"{way}, memory{end}", [p.peak_mb for p in each], "MB, PSS")
        yield Figure(f"{way}, size{end}", [p.size_mb / seconds for p in each], "MB / s")
        recorded_mb = file_bytes(session) / 1e6
        yield Figure(f"{way}, size of the session's{end}", [p.size_mb / recorded_mb for p in each])
    if "together" in packed:
        apart = [packed[archive] for archive in archives if archive in packed]
        sums = [sum(p.wall_s for p in each) for each in zip(*apart, strict=False)]
        shares = [p.wall_s / s for p, s in zip(packed["together"], sums, strict=False)]
        yield Figure("together, ratio", shares)
        cpu = statistics.median(p.cpu_s for p in packed["together"])
        alone = sum(statistics.median(p.cpu_s for p in each) for each in apart)
        yield Figure("together, CPU ratio", [cpu / alone])


def record(frames: Path, root: Path, seconds: float) -> Path:
    """Record a session of the rig load with labels and poses.

    Args:
        frames: the folder of `make_rig`.
        root: folder of the session.
        seconds: length of the session.
    """
    sensors = {name: entry | {"pace": "max"} for name, entry in rig_sensors(frames).items()}
    calibration = str(ROOT / "configs/demo_calibration.yaml")
    config = write_config(root / "rig.yaml", sensors, calibration=calibration)
    name = f"rig{seconds:g}"
    words = ["run", str(config), "--root", str(root / "sessions"), "--name", name]
    words += ["--duration", str(seconds), "--no-finalize"]
    subprocess.run([*COMMAND, *words], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    annotate(root / "sessions" / name)
    return root / "sessions" / name


def annotate(path: Path) -> None:
    """Add the trajectory and the boxes of the simulated drive to a session."""
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


def pack(run: Run, session: Path, archives: Sequence[str], options: Sequence[str]) -> Packing:
    """Finalize a session in a separate process, and measure it."""
    with run.scratch() as out:
        words: list[Any] = ["finalize", session, "--to", ",".join(archives), "--out", out]
        words += [word for option in options for word in ("--option", option)]
        command = recorder(*words, "--format", "json")
        done = succeed(run_measured(command, bytecode=run.folder / "bytecode", tree=True))
    packed = json.loads(done.stdout)["archives"]
    if len(packed) != len(archives):
        raise ValueError(f"{len(packed)} archives of {', '.join(archives)}: {done.stderr}")
    for archive in packed:
        for note in archive["notes"]:
            if re.sub(r"\d+", "N", note) not in {re.sub(r"\d+", "N", n) for n in run.notes}:
                run.note(note)
    size = sum(archive["bytes"] for archive in packed)
    return Packing(done.wall_s, done.cpu_s, done.tree_mb, size / 1e6)
