"""Small samples, recorded and acknowledged as durable, compared with Python's unsynced `mcap`.

Ours is ``recorder run`` with its default sync interval: one driver process that sends samples of
100 bytes on four streams from memory, in batches, as fast as they are accepted, over the real bus
to the real writer.  Time runs from the first sent message to the last acknowledgement.  Theirs is
one process that writes the same samples, one by one, with `mcap.writer.Writer` without
compression.  Time runs from the first message to the end of `finish`, and nothing is synced.  The
runs alternate: theirs, ours, theirs, ...
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from mcap.writer import CompressionType, Writer

from benchmarks.durable_ingest import run_ours
from benchmarks.harness import ROOT, Figure, Option, Run, ratios
from benchmarks.ingest_drivers.blocks import BLOCKS, make_blocks

OPTIONS = {
    "samples": Option("int", 1_000_000, "samples of a run", minimum=1000),
    "rounds": Option("int", 7, "runs of ours; theirs has one more", minimum=1),
    "streams": Option("int", 4, "streams", minimum=1),
    "bytes": Option("int", 100, "of a sample", minimum=1),
    "batches": Option("str", "256,64,1", "samples that a driver gives at once; the first counts"),
}
QUICK = {"samples": 20_000, "rounds": 2}
_FEWER: int = 10  # of the samples, where a driver gives one by one


def measure(run: Run) -> Iterator[Figure]:
    """Measure each size of a batch in turn."""
    streams, size = run.options["streams"], run.options["bytes"]
    run.data["samples"] = f"{size} bytes, random, on {streams} streams"
    batches = [int(word) for word in run.options["batches"].split(",")]
    for left, batch in zip(range(len(batches), 0, -1), batches, strict=True):
        samples = run.options["samples"] // (1 if batch > 1 else _FEWER)
        end = "" if batch == batches[0] else f", {batch} at once"
        given = {"count": samples // batch, "rate": None, "bytes": size, "batch": batch}
        done = run.alternate(
            partial(run_mcap, streams=streams, samples=samples, size=size),
            {"ours": partial(run_ours, files=streams, **given)},
            0.9 / left,
        )
        theirs, ours = done["theirs"], [speed * batch for speed, _ in done["ours"]]
        yield Figure(f"ratio to mcap{end}", ratios(ours, theirs))
        yield Figure(f"recorder{end}", ours, "samples/s")
        yield Figure(f"mcap{end}", theirs, "samples/s")


def run_mcap(folder: Path, streams: int, samples: int, size: int) -> float:
    """Write with `mcap` in a separate process; return samples per second."""
    words = [sys.executable, "-m", __name__, str(folder), *map(str, (streams, samples, size))]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def write_mcap(path: Path, streams: int, samples: int, size: int) -> float:
    """Write samples with `mcap`; return samples per second."""
    blocks = [block.tobytes() for block in make_blocks(size)]
    times = np.arange(samples) * 1000
    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.NONE)
        writer.start()
        channels = [writer.register_channel(f"/s{k}", "", 0) for k in range(streams)]
        start_s = time.monotonic()
        for k, t_ns in enumerate(times.tolist()):
            writer.add_message(channels[k % streams], t_ns, blocks[k % BLOCKS], t_ns)
        writer.finish()  # type: ignore[no-untyped-call]
        seconds = time.monotonic() - start_s
    return samples / seconds


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    print(write_mcap(Path(where) / "samples.mcap", *map(int, numbers)))
