"""Writer process alone, compared with edgefirst-recorder, which gets the same bytes.

The whole recorder records the rig load, with digests, and with fdatasync and journal five times a
second; only its writer process counts.  edgefirst-recorder (of the package `edgefirst`) writes an
MCAP file without any sync.  A process that does not count publishes our drivers' messages to it on
Zenoh at the same times.  In a second comparison its file is synced once a second from outside, and
that CPU time is added.  Closing the files counts for ours only, which is visible in short runs.
The runs alternate: theirs, ours, theirs, ...
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from mcap.reader import make_reader

from benchmarks.frames import SENSORS, make_rig
from benchmarks.harness import (
    PEERS,
    ROOT,
    BenchmarkError,
    Figure,
    Option,
    Run,
    Unavailable,
    find_port,
    ratios,
    read_line,
    write_line,
)
from benchmarks.measure import cpu_seconds
from benchmarks.recording import record_measured, rig_sensors, wait_until
from benchmarks.rig_drivers._player import make_player
from drivers.kit.encode import Encoder

OPTIONS = {
    "seconds": Option("float", 20.0, "recorded seconds of a run", minimum=1),
    "rounds": Option("int", 5, "runs of ours; theirs has one more", minimum=1),
    "synced": Option("bool", True, "sync their file once a second too"),
}
QUICK = {"seconds": 4.0, "rounds": 1}
SCHEMAS = {
    "camera": "sensor_msgs/msg/CompressedImage",
    "lidar": "sensor_msgs/msg/PointCloud2",
    "radar": "edgefirst_msgs/msg/RadarCube",
    "imu": "sensor_msgs/msg/Imu",
}
"""Schema of each topic: edgefirst-recorder records only schemas that it knows."""
_PATIENCE_S = 30.0
_SETTLE_S = 0.5  # after the last message, for what is still on its way


@dataclass(frozen=True, slots=True)
class Peer:
    """One run of edgefirst-recorder: CPU seconds, resident memory, bytes, received messages."""

    cpu_s: float
    rss_mb: float
    bytes: int
    messages: int


def measure(run: Run) -> Iterator[Figure]:
    """Measure theirs and ours in turns."""
    program = PEERS / "edgefirst-recorder"
    if not program.exists():
        raise Unavailable(
            f"{program.relative_to(ROOT)} is not there; `make .venv-bench/.installed`"
        )
    seconds = run.options["seconds"]
    frames, feed = make_rig(run), run.folder / "feed"
    feed.mkdir()
    sent = {name: write_feed(frames, feed, name, seconds) for name in SENSORS}
    record = partial(record_theirs, program, feed)
    ways: dict[str, Callable[[Path], Any]] = {
        "ours": lambda folder: record_measured(folder, rig_sensors(frames), seconds)
    }
    if run.options["synced"]:
        ways["synced"] = partial(record, synced=True)
    done = run.alternate(record, ways)
    plain, ours, synced = done["theirs"], done["ours"], done.get("synced", [])
    cpu = [recording.cpu["writer"] for recording in ours]
    yield Figure("CPU ratio", ratios(cpu, [peer.cpu_s for peer in plain]))
    if synced:
        yield Figure("CPU ratio, synced once a second", ratios(cpu, [p.cpu_s for p in synced]))
    yield Figure("writer", [value / seconds for value in cpu], "CPU s / s")
    yield Figure("edgefirst-recorder", [p.cpu_s / seconds for p in plain], "CPU s / s")
    if synced:
        name = "edgefirst-recorder, synced once a second"
        yield Figure(name, [p.cpu_s / seconds for p in synced], "CPU s / s")
    yield Figure("writer, memory", [r.memory.max_mb for r in ours], "MB")
    yield Figure("edgefirst-recorder, memory", [p.rss_mb for p in plain], "MB")
    yield Figure("sent", [sum(sum(sizes) for sizes in sent.values()) / seconds / 1e6], "MB/s")
    yield Figure("writer, files", [r.bytes / seconds / 1e6 for r in ours], "MB/s")
    yield Figure("edgefirst-recorder, file", [p.bytes / seconds / 1e6 for p in plain], "MB/s")
    count = sum(len(sizes) for sizes in sent.values())
    lost = [float(count - peer.messages) for peer in plain]
    yield Figure("edgefirst-recorder, messages missing", lost, "messages")
    rates = {name: float(rig.rate_hz) for name, rig in SENSORS.items()}
    yield Figure("writer, samples missing", [float(r.missing(rates)) for r in ours], "samples")


def write_feed(frames: Path, feed: Path, name: str, seconds: float) -> list[int]:
    """Write the messages of a rig load's driver for the feeding process; return their sizes."""
    driver = make_player(frames, name)
    (spec,) = driver.open()
    encoder, sizes = Encoder(spec), []
    rate_hz = SENSORS[name].rate_hz / driver.batch
    with (feed / f"{name}.bin").open("wb") as file:
        for _ in range(round(seconds * rate_hz)):
            parts, _ = encoder.encode(driver.read())
            sizes.append(sum(file.write(part) for part in parts))
    encoder.close()
    driver.close()
    about = {"topic": f"rt/{name}", "schema": SCHEMAS[name], "rate_hz": rate_hz, "sizes": sizes}
    (feed / f"{name}.json").write_text(json.dumps(about))
    return sizes


def record_theirs(
    program: Path,
    feed: Path,
    folder: Path,
    synced: bool = False,
    topics: Sequence[str] = tuple(SCHEMAS),
) -> Peer:
    """Run edgefirst-recorder once, for topics that the feed publishes.

    Raises:
        BenchmarkError: the program did not begin, or left no readable file.
    """
    endpoint = f"tcp/127.0.0.1:{find_port(socket.SOCK_STREAM)}"
    words = [str(program), "--listen", endpoint, "--no-multicast-scouting", *topics]
    log = folder / "log"
    with log.open("wb") as errors:
        theirs = subprocess.Popen(
            words, env=os.environ | {"STORAGE": str(folder)}, stdout=errors, stderr=errors
        )
    words = [str(PEERS / "python"), str(ROOT / "benchmarks/peers/zenoh_feed.py")]
    time.sleep(_SETTLE_S)  # until it listens: the feed does not try again
    feeding = subprocess.Popen(
        [*words, endpoint, str(feed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert feeding.stdin is not None
    over, extra_s = threading.Event(), list[float]()
    try:
        read_line(feeding, "ready")
        path = _wait_for_file(folder, log, theirs)
        syncing = threading.Thread(target=_sync, args=(path, over, extra_s))
        if synced:
            syncing.start()
        process = psutil.Process(theirs.pid)
        before_s = cpu_seconds(process)
        write_line(feeding, "begin")
        read_line(feeding, "done")
        time.sleep(_SETTLE_S)
        cpu_s = cpu_seconds(process) - before_s
        rss_mb = process.memory_info().rss / 1e6
        over.set()
        if synced:
            syncing.join()
        theirs.send_signal(signal.SIGINT)
        theirs.wait(_PATIENCE_S)
        feeding.stdin.close()
        feeding.wait(_PATIENCE_S)
    finally:
        over.set()
        for child in (feeding, theirs):
            if child.poll() is None:
                child.kill()
            child.wait()
    with path.open("rb") as file:
        messages = sum(len(m.data) > 1 for _, _, m in make_reader(file).iter_messages())
    return Peer(cpu_s + sum(extra_s), rss_mb, path.stat().st_size, messages)


def _wait_for_file(folder: Path, log: Path, process: subprocess.Popen[bytes]) -> Path:
    def find_file() -> Path | None:
        if process.poll() is not None:
            raise BenchmarkError(f"edgefirst-recorder did not begin: {log.read_text()[-500:]}")
        return next(folder.glob("*.mcap"), None)

    path: Path = wait_until(find_file, "edgefirst-recorder did not begin")
    time.sleep(_SETTLE_S)  # its threads subscribe now
    return path


def _sync(path: Path, over: threading.Event, cpu_s: list[float]) -> None:
    """Sync a file once a second until `over` is set; append the CPU seconds to `cpu_s`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        while not over.wait(1.0):
            os.fdatasync(fd)
    finally:
        os.close(fd)
        cpu_s.append(time.thread_time())
