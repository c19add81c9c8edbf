"""Packing on a cluster: gain of a second worker, cost of a recorded hour, and planning.

Sessions of the rig load are recorded and uploaded into a folder.  ``recorder finalize --on
local:N`` packs them with one worker and with two, in turns, in processes of one thread each; times
are from the start of the first job to the end of the last one, without the start of Dask.  Then
jobs are planned for a thousand manifests, each of the size of a rig session's manifest.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.frames import make_rig
from benchmarks.harness import Figure, Option, Run, recorder, run_measured, succeed
from benchmarks.packing import record
from recorder.archives.finalize import ArchiveRequest
from recorder.common.clock import SystemClock
from recorder.fleet.packing_jobs import plan_jobs
from recorder.fleet.store import open_store
from recorder.fleet.store.manifest import Manifest

OPTIONS = {
    "seconds": Option("float", 15.0, "length of a session", minimum=4),
    "sessions": Option("int", 12, "number of sessions", minimum=2),
    "rounds": Option("int", 3, "repetitions", minimum=1),
    "to": Option("str", "ncore,mcap", "archives"),
    "planned": Option("int", 1000, "sessions that are planned", minimum=10),
}
QUICK = {"seconds": 6.0, "sessions": 4, "rounds": 1}


def measure(run: Run) -> Iterator[Figure]:
    """Pack with one worker and with two, and plan."""
    frames = make_rig(run)
    url = f"file://{run.folder}/store"
    manifest = _fill(run, frames, url)
    done = run.take_turns({workers: partial(_pack, run, url, workers) for workers in (1, 2)})
    times = {workers: [each["seconds"] for each in runs] for workers, runs in done.items()}
    cpu = [sum(archive["cpu_s"] for archive in each["archives"]) for each in done[1]]
    recorded_s = run.options["seconds"] * run.options["sessions"]
    for workers, seconds in times.items():
        yield Figure(f"speed, {workers} workers", [recorded_s / s for s in seconds], "x real time")
    yield Figure(
        "two workers against one", [a / b for a, b in zip(times[1], times[2], strict=False)]
    )
    yield Figure("CPU of a recorded hour", [s / recorded_s * 3600 for s in cpu], "CPU s")
    yield from _plan(run, manifest)


def _fill(run: Run, frames: Path, url: str) -> Manifest:
    """Upload sessions; return the manifest of one."""
    for number in range(run.options["sessions"]):
        with run.scratch() as root:
            session = record(frames, root, run.options["seconds"])
            header = session / "_recorder/session.json"
            values = json.loads(header.read_text())
            header.write_text(json.dumps(values | {"name": f"rig{number}"}))
            named = session.rename(session.with_name(f"rig{number}"))
            succeed(run_measured(recorder("upload", named, url)))
    return Manifest.decode(open_store(url).read("_manifests/rig0.json"), "rig0")


def _pack(run: Run, url: str, workers: int, out: Path) -> dict[str, Any]:
    words = ["finalize", url, "--on", f"local:{workers}", "--to", run.options["to"]]
    command = recorder(*words, "--out", out / "packed", "--format", "json")
    done: dict[str, Any] = json.loads(succeed(run_measured(command)).stdout)
    if done["failed"] or done["refused"]:
        raise ValueError(f"not packed: {done['failed']}, {done['refused']}")
    return done


def _plan(run: Run, manifest: Manifest) -> Iterator[Figure]:
    """Plan many sessions, and half as many, so that growth of memory is visible."""
    seconds, peaks, kept = [], [], []
    count = run.options["planned"]
    clock = SystemClock()
    for planned in (count // 2, count):
        with run.scratch() as folder:
            store = open_store(f"file://{folder}/store")
            for number in range(planned):
                name = f"drive{number}"
                copy = msgspec.structs.replace(manifest, name=name, folder=name)
                store.put_new(f"_manifests/{name}.json", copy.encode())
            out = f"file://{folder}/out"
            began_ns = clock.monotonic_ns()
            plan = plan_jobs([store.url], [ArchiveRequest("ncore"), ArchiveRequest("mcap")], out)
            seconds.append((clock.monotonic_ns() - began_ns) / 1e9)
            tracemalloc.start()
            plan = plan_jobs([store.url], [ArchiveRequest("ncore"), ArchiveRequest("mcap")], out)
            now, peak = tracemalloc.get_traced_memory()
            kept.append(now / 1e3)
            peaks.append(peak / 1e6)
            tracemalloc.stop()
            if len(plan.jobs) != 2 * planned:
                raise ValueError(f"{len(plan.jobs)} jobs planned for {planned} sessions")
    yield Figure(f"planning {count} sessions", seconds[-1:], "s")
    yield Figure("planning, memory at most", peaks[-1:], "MB")
    more = (kept[1] - kept[0]) / (count - count // 2)
    yield Figure("planning, memory of each further session", [more], "kB")
