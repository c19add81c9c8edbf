"""Cost of durability: samples of 1 MiB, recorded and acknowledged, compared with a bare loop.

Ours is ``recorder run`` with its default sync interval: one driver process that sends blocks from
memory as fast as they are accepted, the real bus, the real writer, a journal.  Time runs from the
first sent block to the last acknowledgement.  The bare loop is one process that only writes the
same blocks to as many files, and calls fdatasync every 200 ms on each file that has grown.  Time
runs from its first write to the end of its last fdatasync.  Both write the same bytes to the same
file system, in turns (bare, ours, bare, ours, ...), each after a sync of earlier writes.  There are
256 different blocks: a loop over a few blocks would read them from the processor's cache, where a
sensor's data never is.  Bare ZeroMQ sends the same blocks from one process to another, which drops
them: this is the limit of any bus.  Other load on the machine slows four processes more than one.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import zmq

from benchmarks.harness import BenchmarkError, Figure, Option, Run, ratios, run_measured, spawn
from benchmarks.ingest_drivers.blocks import make_blocks, warm_memory
from benchmarks.recording import COMMAND, write_config
from recorder.session.reader import Session

OPTIONS = {
    "gib": Option("float", 4.0, "GiB of one run", minimum=0.1),
    "rounds": Option("int", 7, "rounds of bare loop, recorder and ZeroMQ", minimum=1),
    "files": Option("str", "1,12", "numbers of files"),
}
QUICK = {"gib": 0.5, "rounds": 2}
_INTERVAL_S = 0.2
_PACED_MIB_S = 50.0
_PACED_S = 6.0
_SILENCE_MS = 30_000  # after which the sending process has failed


def measure(run: Run) -> Iterator[Figure]:
    """Measure each number of files in turn."""
    count = round(1024 * run.options["gib"])
    run.data["blocks"] = f"{count} of 1 MiB, random, 256 different ones"
    numbers = [int(word) for word in run.options["files"].split(",")]
    for left, files in zip(range(len(numbers), 0, -1), numbers, strict=True):
        yield from measure_files(run, files, count, 0.9 / left)


def measure_files(run: Run, files: int, count: int, share: float) -> Iterator[Figure]:
    """Measure bare and ours in turns, with ZeroMQ between them; then ours at a moderate rate."""
    name = f"{files} file{'s' if files > 1 else ''}"
    done = run.alternate(
        lambda folder: run_bare(folder, files, count),
        {
            "ours": lambda folder: run_ours(folder, files, count, None),
            "bus": lambda folder: run_zeromq(folder, count),
        },
        share,
    )
    bare, bus = done["theirs"], done["bus"]
    ours, waits = map(list, zip(*done["ours"], strict=True))
    yield Figure(f"ratio, {name}", ratios(ours, bare))
    yield Figure(f"ratio to ZeroMQ, {name}", ratios(ours, bus))
    yield Figure(f"recorder, {name}", ours, "MiB/s")
    yield Figure(f"write + fdatasync, {name}", bare, "MiB/s")
    yield Figure(f"ZeroMQ, {name}", bus, "MiB/s")
    for percent in (50, 99):
        times = [1e3 * float(np.percentile(waited, percent)) for waited in waits]
        yield Figure(f"sent to acknowledged, {name}, p{percent}", times, "ms")
    with run.scratch() as folder:
        paced = min(count, round(_PACED_MIB_S * _PACED_S))
        _, waited = run_ours(folder, files, paced, _PACED_MIB_S)
    for percent in (50, 99):
        value = 1e3 * float(np.percentile(waited, percent))
        yield Figure(f"the same at {_PACED_MIB_S:g} MiB/s, {name}, p{percent}", [value], "ms")


def run_bare(folder: Path, files: int, count: int) -> float:
    """Write and fdatasync blocks; return MiB/s."""
    blocks = [block.data for block in make_blocks()]
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
    fds = [os.open(folder / f"block{k:02}", flags, 0o640) for k in range(files)]
    dirty: set[int] = set()
    warm_memory(count)
    start_s = synced_s = time.monotonic()
    for k in range(count):
        os.write(fds[k % files], blocks[k % len(blocks)])
        dirty.add(fds[k % files])
        if time.monotonic() - synced_s >= _INTERVAL_S:
            for fd in dirty:
                os.fdatasync(fd)
            dirty.clear()
            synced_s = time.monotonic()
    for fd in dirty:
        os.fdatasync(fd)
    seconds = time.monotonic() - start_s
    for fd in fds:
        os.close(fd)
    return count / seconds


def run_ours(
    folder: Path, files: int, count: int, rate: float | None, **more: int
) -> tuple[float, list[float]]:
    """Record; return messages (MiB) per second, and the acknowledgement delays in seconds.

    Args:
        folder: folder of the session; it must exist.
        files: number of streams.
        count: total number of messages, each of one or more blocks.
        rate: messages per second; None: as fast as they are accepted.
        more: options of the driver.

    Raises:
        BenchmarkError: a message was not acknowledged.
    """
    options = {"streams": files, "count": count, "rate": rate or 1000.0, **more}
    sensor = {"driver": "benchmarks.ingest_drivers.blocks", "source": f"file:{folder}", **options}
    sensor["pace"] = "max" if rate is None else "realtime"
    config = write_config(folder / "ingest.yaml", {"ingest": sensor})
    words = ["run", str(config), "--root", str(folder), "--name", "session"]
    done = run_measured([*COMMAND, *words])
    try:
        times = json.loads((folder / "times.json").read_text())
    except (OSError, ValueError):
        raise BenchmarkError(f"recorder run gave no times:\n{done.stderr}") from None
    with Session(folder / "session") as session:
        stored = sum(map(len, session.streams.values()))
    if done.code or stored != count * more.get("batch", 1):
        raise BenchmarkError(f"{stored} samples of {count} messages:\n{done.stderr}")
    seconds = (times["last_ns"] - times["first_ns"]) / 1e9
    return count / seconds, [ns / 1e9 for ns in times["wait_ns"]]


def run_zeromq(folder: Path, count: int) -> float:
    """Send blocks to a process that drops them, over a socket in a folder; return MiB/s."""
    address = f"ipc://{folder}/bare"
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.bind(address)
        socket.rcvtimeo = _SILENCE_MS
        with spawn(send_blocks, address, count) as sending:
            sending.recv()
            start_s = time.monotonic()
            sending.send("go")
            for _ in range(count):
                socket.recv(copy=False)
            return count / (time.monotonic() - start_s)


def send_blocks(address: str, count: int, link: Connection) -> None:
    """Send `count` blocks without copying them; runs in a separate process."""
    blocks = [block.data for block in make_blocks()]
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        link.send("ready")
        link.recv()
        for block in itertools.islice(itertools.cycle(blocks), count):
            socket.send(block, copy=False)
