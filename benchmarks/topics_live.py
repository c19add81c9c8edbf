"""Cost of recording 20 MB/s of clouds from live topics, by rclpy and over Zenoh.

A separate process publishes PointCloud2 of 2 MB at 10 Hz.  With ROS 2 (Fast DDS, UDP on loopback)
they are recorded as they are (``driver: topics``) and as sweeps (``driver: lidar``), beside a bare
subscriber of rclpy that drops what it gets.  Over Zenoh they are recorded as they are, beside
edgefirst-recorder, which gets the same messages and never syncs.  CPU is that of all of the
recorder's processes, with digests, and with fdatasync and journal five times a second.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.clouds import LAYOUTS, make_clouds
from benchmarks.frames import make_rig
from benchmarks.harness import (
    PEERS,
    ROOT,
    BenchmarkError,
    Figure,
    Option,
    Run,
    find_port,
    ratios,
    read_line,
)
from benchmarks.recording import Recording, record_measured
from benchmarks.writer import SCHEMAS, Peer, record_theirs
from drivers.kit.topics.ros2_node import PROFILE, PROFILE_VARIABLES, RECEIVE_BUFFER_BYTES

OPTIONS = {
    "seconds": Option("float", 20.0, "recorded seconds of a run", minimum=2),
    "rounds": Option("int", 5, "runs of each", minimum=1),
    "mb": Option("float", 2.0, "size of a cloud [MB]", minimum=0.01),
    "hz": Option("float", 10.0, "clouds a second", minimum=1),
    "points": Option("str", "xyzirt", "layout of a point", choices=tuple(LAYOUTS)),
    "zenoh": Option("bool", True, "compare with edgefirst-recorder too"),
}
QUICK = {"seconds": 4.0, "rounds": 1}
_TOPIC: Final = "/lidar/points"
_NAME: Final = "lidar"  # of the topic for edgefirst-recorder
_DOMAINS: Final = range(20, 100)
_PEER: Final = ROOT / "benchmarks" / "peers"
_SPARE_S: Final = 60.0  # for the recorder to start and to end


def measure(run: Run) -> Iterator[Figure]:
    """Record in all ways, in turns."""
    frames = make_rig(run)
    layout = LAYOUTS[run.options["points"]]
    points = round(run.options["mb"] * 1e6 / layout.itemsize)
    clouds = make_clouds(frames, layout, points)
    run.data["lidar"] += f", the first {points} points of each, {layout.itemsize} bytes a point"
    files = [run.folder / f"{number}.cdr" for number in range(len(clouds))]
    for file, cloud in zip(files, clouds, strict=True):
        file.write_bytes(cloud)
    yield Figure("sent", [len(clouds[0]) * run.options["hz"] / 1e6], "MB/s")
    zenoh = run.options["zenoh"]
    yield from _compare_ros2(run, files, 0.6 if zenoh else 1.0)
    if zenoh:
        yield from _compare_zenoh(run, clouds)


def _compare_ros2(run: Run, files: list[Path], share: float) -> Iterator[Figure]:
    """Record by rclpy, as messages and as sweeps, beside a bare subscriber."""
    domain = random.choice(_DOMAINS)
    profile = run.folder / "profile.xml"
    profile.write_text(PROFILE.format(size=RECEIVE_BUFFER_BYTES))
    environment = os.environ | {PROFILE_VARIABLES[0]: str(profile)}
    source = f"ros2:{domain}"
    sensors: dict[str, dict[str, Any]] = {
        "raw": {"driver": "topics", "source": source, "topics": [_TOPIC]},
        "lidar": {"driver": "lidar", "source": f"{source}#{_TOPIC}"},
    }
    words = [str(_PEER / "ros2_feed.py"), str(domain), _TOPIC, str(run.options["hz"])]
    with publish([*words, *map(str, files)], environment):
        ways: dict[str, Callable[[Path], Any]] = {
            "bare": partial(_listen, domain, run.options["seconds"], environment)
        }
        ways |= {way: partial(_record, run, way, each) for way, each in sensors.items()}
        done = run.take_turns(ways, share)
    bare = [each["cpu"] for each in done["bare"]]
    yield Figure("rclpy alone", bare, "CPU s / s")
    due = run.options["seconds"] * run.options["hz"]
    missing = [max(0.0, due - each["messages"]) for each in done["bare"]]
    yield Figure("rclpy alone, missing", missing, "messages")
    for way in sensors:
        recordings = done[way]
        cpu = [each.cpu_per_s for each in recordings]
        yield Figure(way, cpu, "CPU s / s")
        more = [ours - theirs for ours, theirs in zip(cpu, bare, strict=True)]
        yield Figure(f"{way}, more than rclpy alone", more, "CPU s / s")
        yield from _describe(run, way, recordings)


def _compare_zenoh(run: Run, clouds: list[bytearray]) -> Iterator[Figure]:
    """Record the same messages over Zenoh as edgefirst-recorder does."""
    program = PEERS / "edgefirst-recorder"
    if not program.exists():
        where = program.relative_to(ROOT)
        run.skip("Zenoh", f"{where} is not there; `make .venv-bench/.installed`")
        return
    seconds, feed = run.options["seconds"], run.folder / "feed"
    theirs = partial(
        record_theirs, program, _write_feed(run, clouds, feed, seconds), topics=[_NAME]
    )
    longer = _write_feed(run, clouds, run.folder / "longer", seconds + _SPARE_S)
    done = run.alternate(theirs, {"ours": partial(_record_zenoh, run, longer)})
    peers: list[Peer] = done["theirs"]
    ours: list[Recording] = done["ours"]
    cpu = [each.cpu_per_s * seconds for each in ours]
    yield Figure("Zenoh, CPU ratio", ratios(cpu, [peer.cpu_s for peer in peers]))
    yield Figure("Zenoh", [each.cpu_per_s for each in ours], "CPU s / s")
    yield Figure("Zenoh, edgefirst-recorder", [p.cpu_s / seconds for p in peers], "CPU s / s")
    lost = [seconds * run.options["hz"] - peer.messages for peer in peers]
    yield Figure("Zenoh, edgefirst-recorder, missing", lost, "messages")
    yield from _describe(run, "Zenoh", ours)


def _describe(run: Run, way: str, recordings: list[Recording]) -> Iterator[Figure]:
    """Yield the costs of each process, losses and memory of a way."""
    for label in sorted(set.intersection(*(set(each.cpu) for each in recordings))):
        values = [each.cpu[label] / each.seconds for each in recordings]
        yield Figure(f"{way}, {label}", values, "CPU s / s")
    streams = [next(s for n, s in r.streams.items() if "lidar" in n) for r in recordings]
    due = round(run.options["seconds"] * run.options["hz"])
    yield Figure(f"{way}, lost", [float(sum(s["lost"].values())) for s in streams], "messages")
    missing = [float(max(0, due - 1 - s["samples"])) for s in streams]  # the first may be before
    yield Figure(f"{way}, missing", missing, "messages")
    yield Figure(f"{way}, session", [r.bytes / r.seconds / 1e6 for r in recordings], "MB/s")
    yield Figure(f"{way}, driver's memory", [r.memory.max_mb for r in recordings], "MB")
    slopes = [r.memory.slope_mb_per_minute for r in recordings]
    known = [slope for slope in slopes if slope is not None]
    if known:
        yield Figure(f"{way}, growth of the driver's memory", known, "MB / minute")


@contextmanager
def publish(words: list[str], environment: dict[str, str]) -> Iterator[None]:
    """Run a publisher of this environment's Python, until the end of its input."""
    process = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        read_line(process, "ready")
        yield
    finally:
        process.kill()
        process.communicate()


def _listen(domain: int, seconds: float, environment: dict[str, str], _: Path) -> dict[str, Any]:
    words = [sys.executable, str(_PEER / "ros2_listen.py"), str(domain), _TOPIC, str(seconds)]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=seconds + _SPARE_S
    )
    if done.returncode:
        raise BenchmarkError(f"ros2_listen.py: {done.stderr[-500:]}")
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def _record(run: Run, way: str, sensor: dict[str, Any], folder: Path) -> Recording:
    label = sensor["driver"]
    made = record_measured(
        folder, {way: sensor}, run.options["seconds"], ("--no-finalize",), watched=label
    )
    if made.exit_code:
        raise BenchmarkError(f"{way}: exit code {made.exit_code}: {made.streams}")
    return made


def _write_feed(run: Run, clouds: list[bytearray], folder: Path, seconds: float) -> Path:
    """Write what `benchmarks/peers/zenoh_feed.py` publishes; return the folder."""
    folder.mkdir()
    (folder / f"{_NAME}.bin").write_bytes(b"".join(clouds))
    rate_hz = run.options["hz"]
    about = {"topic": f"rt/{_NAME}", "schema": SCHEMAS[_NAME], "rate_hz": rate_hz}
    about |= {"sizes": list(map(len, clouds)), "count": round(seconds * rate_hz)}
    (folder / f"{_NAME}.json").write_text(json.dumps(about))
    return folder


def _record_zenoh(run: Run, feed: Path, folder: Path) -> Recording:
    endpoint = f"tcp/127.0.0.1:{find_port(socket.SOCK_STREAM)}"
    words = [str(PEERS / "python"), str(_PEER / "zenoh_feed.py"), endpoint, str(feed), "listen"]
    feeding = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        read_line(feeding, "ready")
        assert feeding.stdin is not None
        feeding.stdin.write("begin\n")
        feeding.stdin.flush()
        sensor = {"driver": "topics", "source": f"zenoh:{endpoint}"}
        return _record(run, "raw", sensor, folder)
    finally:
        feeding.kill()
        feeding.communicate()
