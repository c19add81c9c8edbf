"""The price of durability: samples of 1 MiB, recorded and acknowledged, beside a bare loop.

``python -m benchmarks.durable_ingest [--mib 2048] [--rounds 5] [--json FILE]``, from a clone.

Ours is ``recorder run`` with its default sync interval: one driver process that hands out blocks
from memory as fast as they are taken, the real bus, the real writer, a journal; time runs from
the first block that is sent to the last acknowledgement.  The bare loop is one process that
writes the same blocks to as many files with nothing around it and calls fdatasync on each file
that has grown every 200 ms; time runs from its first write to the end of its last fdatasync.
Both write the same bytes to the same file system, in turns (bare, ours, bare, ours, ...), each
after a sync of all that others have written.  The blocks are 256 different ones: a loop over a
few would read them from the processor's cache, where a sensor's data never is.  The ratio of a
round is ours to the mean of the bare loops before and after it, and the median over the rounds is
what counts.  Other load on the machine costs four processes more than one: give it a quiet one.
See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ingest_drivers.blocks import make_blocks, warm_memory

ROOT = Path(__file__).resolve().parents[1]
INTERVAL_S = 0.2
TARGET_RATIO = 0.85
FILES = (1, 12)
PACED_MIB_S = 50.0
_RUN = [sys.executable, "-c", "import sys, recorder.cli as c; sys.exit(c.main())"]


class BenchmarkError(Exception):
    """A run could not be measured."""


def run_bare(folder: Path, files: int, count: int) -> float:
    """Write and fdatasync; MiB/s."""
    blocks = [block.data for block in make_blocks()]
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
    fds = [os.open(folder / f"block{k:02}", flags, 0o640) for k in range(files)]
    dirty: set[int] = set()
    warm_memory(count)
    start = synced = time.monotonic()
    for k in range(count):
        os.write(fds[k % files], blocks[k % len(blocks)])
        dirty.add(fds[k % files])
        if time.monotonic() - synced >= INTERVAL_S:
            for fd in dirty:
                os.fdatasync(fd)
            dirty.clear()
            synced = time.monotonic()
    for fd in dirty:
        os.fdatasync(fd)
    seconds = time.monotonic() - start
    for fd in fds:
        os.close(fd)
    return count / seconds


def run_ours(folder: Path, files: int, count: int, rate: float | None) -> tuple[float, list[float]]:
    """Record; MiB/s, and seconds from arrival to acknowledgement of each block.

    Args:
        folder: where to; it must exist.
        files: streams.
        count: blocks in all.
        rate: blocks per second; None: as fast as they are taken.
    """
    options = {"streams": files, "count": count, "rate": rate or 1000.0}
    sensor = {"driver": "benchmarks.ingest_drivers.blocks", "source": f"file:{folder}", **options}
    sensor["pace"] = "max" if rate is None else "realtime"
    config = folder / "ingest.yaml"
    config.write_text(
        json.dumps({"version": 1, "sensors": {"ingest": sensor}, "storage": {"min_free_gb": 1}})
    )
    command = [*_RUN, "run", str(config), "--root", str(folder), "--name", "session"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        times = json.loads((folder / "times.json").read_text())
    except (OSError, ValueError):
        raise BenchmarkError(f"recorder run gave no times:\n{done.stderr}") from None
    if done.returncode or len(times["wait_ns"]) != count:
        raise BenchmarkError(f"{len(times['wait_ns'])} of {count} blocks:\n{done.stderr}")
    seconds = (times["last_ns"] - times["first_ns"]) / 1e9
    return count / seconds, [ns / 1e9 for ns in times["wait_ns"]]


def measure(root: Path, files: int, count: int, rounds: int) -> dict[str, Any]:
    """Bare and ours in turns; what the report is made from."""
    bare: list[float] = []
    ours: list[float] = []
    waits: list[float] = []
    for turn in range(2 * rounds + 1):
        folder = _folder(root)
        if turn % 2:
            speed, waited = run_ours(folder, files, count, None)
            ours.append(speed)
            waits += waited
        else:
            bare.append(run_bare(folder, files, count))
        shutil.rmtree(folder)
        _note(
            f"{files} files, ours: {ours[-1]:.0f} MiB/s"
            if turn % 2
            else f"{files} files, bare: {bare[-1]:.0f} MiB/s"
        )
    folder = _folder(root)
    _, paced = run_ours(folder, files, min(count, round(PACED_MIB_S * 6)), PACED_MIB_S)
    shutil.rmtree(folder)
    ratios = [2 * mine / (bare[k] + bare[k + 1]) for k, mine in enumerate(ours)]
    return {
        "files": files,
        "bare_mib_s": bare,
        "ours_mib_s": ours,
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "durable_s": _quantiles(waits),
        "durable_paced_s": _quantiles(paced),
        "holds": statistics.median(ratios) >= TARGET_RATIO,
    }


def _folder(root: Path) -> Path:
    """A fresh folder, on a disk that owes nothing to whoever wrote before."""
    os.sync()
    return Path(tempfile.mkdtemp(dir=root))


def _quantiles(seconds: list[float]) -> dict[str, float]:
    return {f"p{q}": float(np.percentile(seconds, q)) for q in (50, 99)}


def _text(result: dict[str, Any]) -> str:
    lines = [f"{'files':>5}{'bare MiB/s':>12}{'ours MiB/s':>12}{'ratio':>8}"
             f"{'durable after p50/p99':>24}{f'at {PACED_MIB_S:g} MiB/s':>18}"]  # fmt: skip
    for run in result["runs"]:
        waits = [
            f"{1000 * run[key]['p50']:.0f}/{1000 * run[key]['p99']:.0f} ms"
            for key in ("durable_s", "durable_paced_s")
        ]
        bare, ours = statistics.median(run["bare_mib_s"]), statistics.median(run["ours_mib_s"])
        lines.append(
            f"{run['files']:5}{bare:12.0f}{ours:12.0f}{run['ratio']:8.2f}{waits[0]:>24}{waits[1]:>18}"
        )
        spread = ", ".join(f"{ratio:.2f}" for ratio in sorted(run["ratios"]))
        lines.append(f"      ratios of the rounds: {spread}")
    return "\n".join(lines)


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """0, or 1 where the target was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.durable_ingest", description=__doc__
    )
    parser.add_argument("--mib", type=int, default=2048, help="MiB of one run (2048)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of bare and ours (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--root", type=Path, metavar="DIR", help="write below DIR")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ingest-benchmark-", dir=args.root))
    try:
        runs = [measure(root, files, args.mib, args.rounds) for files in FILES]
    finally:
        shutil.rmtree(root)
    result = {"mib": args.mib, "interval_s": INTERVAL_S, "runs": runs}
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    print(_text(result))
    return 0 if all(run["holds"] for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
