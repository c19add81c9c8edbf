"""Growth of costs with session length and numbers of streams, cameras, bytes and sessions.

Each cost is measured at three sizes.  The two largest, where start-up weighs least, give an
exponent: 1 if the cost grows in proportion to the work.  Costs per stream and per byte and memory
should have 0.  The steepest growth is that of CPU time and memory.

- verbs: ``info``, ``validate``, ``recover``, ``report`` of sessions that the session's own writer
  made, with all samples and commits of a recording and small payloads;
- list: ``list`` and ``recover`` over folders of sessions;
- finalize: archives of recorded sessions of the rig load, and ``validate --deep``;
- memory: the writer's memory, when it appends and commits all samples except the radar's, with
  small payloads;
- streams: sensors of 100 samples a second each; bytes: blocks of 1 MiB of one stream;
- cameras: 4K at a few pictures a second each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from unittest import mock

import psutil

from benchmarks import journal, packing
from benchmarks.figures import fit_exponent
from benchmarks.frames import make_rig
from benchmarks.harness import (
    Figure,
    FinishedProcess,
    Option,
    Run,
    recorder,
    run_measured,
    spawn,
    succeed,
)
from benchmarks.recording import record_measured
from recorder.archives.base import available
from tests.viewers.report.hour import long_session

OPTIONS = {
    "rounds": Option("int", 3, "repetitions of each", minimum=1),
    "base": Option(
        "float", 60.0, "seconds of the shortest session of verbs and memory", minimum=10
    ),
    "pack": Option("float", 4.0, "seconds of the shortest session that is packed", minimum=2),
    "run": Option("float", 8.0, "seconds of a recording", minimum=2),
    "fps": Option("float", 5.0, "pictures of 4K a second of each camera", minimum=1),
    "folders": Option("str", "10,100,1000", "numbers of sessions in a folder"),
    "archives": Option("str", "", "names of the archives; all where empty"),
    "parts": Option("str", "", "parts to measure; all where empty"),
}
QUICK = {"rounds": 1, "base": 10.0, "pack": 2.0, "run": 3.0, "folders": "3,10,30",
         "archives": "l5kit,vrs"}  # fmt: skip
TIMES: Final = (1, 4, 16)
STEEP: Final = 1.15
"""Least exponent that is reported; noise and start-up cause smaller ones."""


def measure(run: Run) -> Iterator[Figure]:
    """Measure each part, and the steepest growth of all."""
    wanted = run.options["parts"].split(",") if run.options["parts"] else list(PARTS)
    exponents: dict[str, float] = {}
    for name in wanted:
        if run.late:
            run.skip(name, "the time is up")
            continue
        series: dict[str, list[Figure]] = {}
        for figure in PARTS[name](run):
            series.setdefault(figure.series, []).append(figure)
            yield figure
        for title, figures in series.items():
            exponent = fit_exponent(figures)
            # Times depend on what else the machine does.
            if exponent is not None and figures[0].unit != "s":
                exponents[title] = exponent
    for title, exponent in exponents.items():
        if exponent > STEEP:
            run.note(f"{title}: grows as size^{exponent:.2f}, faster than its work")
    if exponents:
        yield Figure("steepest exponent", [max(exponents.values())], "exponent")


def _verbs(run: Run) -> Iterator[Figure]:
    run.data["verbs"] = "sessions of tests.viewers.report.hour"
    for times in TIMES:
        seconds = round(run.options["base"]) * times
        with run.scratch() as folder:
            clean = long_session(folder / "clean", seconds)
            killed = long_session(folder / "killed", seconds, killed=True)
            words = {
                "info": ["info", clean],
                "validate": ["validate", clean],
                "report": ["report", clean],
                "recover --dry-run": ["recover", killed, "--dry-run"],
            }
            yield from _commands(run, words, seconds, "seconds of the session")
            # This one is possible only once.
            yield from _commands(
                run, {"recover": ["recover", killed]}, seconds, "seconds", rounds=1
            )


def _commands(
    run: Run, words: Mapping[str, Sequence[Any]], size: float, of: str, rounds: int | None = None
) -> Iterator[Figure]:
    for name, command in words.items():
        numbers = run.rounds(0.05) if rounds is None else range(rounds)
        codes = (0, 3) if name.startswith("recover") else (0,)  # 3: it reports what was lost
        done = [succeed(run_measured(recorder(*command)), codes) for _ in numbers]
        yield from _costs(name, done, of, size)


def _costs(
    name: str, done: Sequence[FinishedProcess | packing.Packing], of: str, size: float
) -> Iterator[Figure]:
    rows = [
        ("time", "s", [measured.wall_s for measured in done]),
        ("CPU", "CPU s", [measured.cpu_s for measured in done]),
        ("memory", "MB", [measured.peak_mb for measured in done]),
    ]
    yield from _series([(f"{name}, {what}", unit, values) for what, unit, values in rows], of, size)


def _series(rows: Sequence[tuple[str, str, list[float]]], of: str, size: float) -> Iterator[Figure]:
    for what, unit, values in rows:
        series = f"{what} by {of}"
        yield Figure(f"{series}, {size:g}", values, unit, series, size)


def _folders(run: Run) -> Iterator[Figure]:
    run.data["list"] = "copies of a session of ten seconds"
    with run.scratch() as folder:
        session = long_session(folder / "one", 10)
        root, made = folder / "root", 0
        root.mkdir()
        for count in map(int, run.options["folders"].split(",")):
            while made < count:
                shutil.copytree(session, root / f"session_{made:04}", copy_function=os.link)
                made += 1
            words = {"list": ["list", root], "recover ROOT": ["recover", root, "--dry-run"]}
            yield from _commands(run, words, count, "sessions")


def _finalize(run: Run) -> Iterator[Figure]:
    frames = make_rig(run)
    names = run.options["archives"].split(",") if run.options["archives"] else available()
    for times in TIMES:
        seconds = run.options["pack"] * times
        session = packing.record(frames, run.folder, seconds)
        words = {"validate --deep": ["validate", session, "--deep"]}
        yield from _commands(run, words, seconds, "seconds")
        for name in names:
            if run.late:
                run.skip(f"finalize --to {name}, {seconds:g} s", "the time is up")
                continue
            done = [packing.pack(run, session, [name], ()) for _ in run.rounds(0.1)]
            yield from _costs(name, done, "seconds", seconds)
        shutil.rmtree(session)


def _memory(run: Run) -> Iterator[Figure]:
    run.data["memory"] = "samples of benchmarks.journal, a hundredth of their size"
    for times in TIMES:
        seconds = run.options["base"] * times

        def append(folder: Path, seconds: float = seconds) -> tuple[float, float]:
            with spawn(append_all, folder, seconds) as process:
                memory_mb, cpu_s = process.recv()
                return memory_mb, cpu_s

        memory, cpu = map(list, zip(*run.repeat(append, 0.1), strict=True))
        rows = [("writer, memory", "MB", memory), ("writer, CPU", "CPU s", cpu)]
        yield from _series(rows, "seconds of the session", seconds)


def append_all(folder: Path, seconds: float, link: Connection) -> None:
    """Write the rig's samples; send resident MB and CPU seconds; runs in a separate process."""
    small = {name: max(100, size // 100) for name, size in journal.FRAMES.items()}
    with mock.patch.object(journal, "FRAMES", small), mock.patch.object(journal, "SPECS", _SMALL):
        load = journal.LoadGenerator(folder)
        process = psutil.Process()
        before_s = sum(process.cpu_times()[:2])
        for _ in range(round(seconds / journal.TURN_S)):
            load.turn()
        cpu_s = sum(process.cpu_times()[:2]) - before_s
    load.writer.abandon()
    link.send((process.memory_info().rss / 1e6, cpu_s))


_SMALL = tuple(spec for spec in journal.SPECS if spec is not journal.RADAR)


def _streams(run: Run) -> Iterator[Figure]:
    frames = make_rig(run)

    def sensors(count: int) -> dict[str, Any]:
        entry = {"driver": "benchmarks.rig_drivers.imu", "source": f"file:{frames}"}
        return {f"imu{number}": entry for number in range(count)}

    yield from _record_sizes(run, TIMES, sensors, "streams", lambda _: 100.0)


def _bytes(run: Run) -> Iterator[Figure]:
    run.data["bytes"] = "blocks of 1 MiB, random, 256 different ones"

    def sensors(rate: int) -> dict[str, Any]:
        count = round(rate * run.options["run"])
        options = {"streams": 1, "count": count, "rate": float(rate), "warm": False}
        source = f"file:{run.folder}"
        return {
            "blocks": {"driver": "benchmarks.ingest_drivers.blocks", "source": source, **options}
        }

    yield from _record_sizes(run, (12, 48, 192), sensors, "MiB/s", lambda rate: rate)


def _cameras(run: Run) -> Iterator[Figure]:
    frames = make_rig(run)
    fps = run.options["fps"]

    def sensors(count: int) -> dict[str, Any]:
        driver = "benchmarks.rig_drivers.camera"
        entry = {"driver": driver, "source": f"file:{frames}", "scale": 2, "fps": fps}
        return {f"camera{number}": entry for number in range(count)}

    yield from _record_sizes(run, (1, 2, 4), sensors, "cameras of 4K", lambda _: fps)


def _record_sizes(
    run: Run,
    sizes: Sequence[int],
    sensors: Callable[[int], dict[str, Any]],
    of: str,
    rate_hz: Callable[[int], float],
) -> Iterator[Figure]:
    """Record at several sizes; yield CPU of each kind of process, memory, start and end."""
    for size in sizes:
        record = partial(record_measured, sensors=sensors(size), seconds=run.options["run"])
        done = run.repeat(record, 0.1)
        rows = [
            ("writer, memory", "MB", [r.memory.max_mb for r in done]),
            ("start", "s", [r.start_s for r in done]),
            ("end", "s", [r.stop_s for r in done]),
        ]
        for label in sorted({label for r in done for label in r.cpu}):
            values = [r.cpu.get(label, 0.0) / r.seconds for r in done]
            rows.append((f"{label}, CPU", "CPU s / s", values))
        each = [r.cpu["writer"] / r.seconds / size * 1e3 for r in done]
        rows.append((f"writer, CPU for each of the {of}", "CPU ms / s", each))
        yield from _series(rows, of, size)
        rates = dict.fromkeys(sensors(size), rate_hz(size))
        missing = [float(recording.missing(rates)) for recording in done]
        yield Figure(f"samples missing, {size} {of}", missing, "samples")


PARTS: Final[Mapping[str, Callable[[Run], Iterator[Figure]]]] = {
    "verbs": _verbs,
    "list": _folders,
    "finalize": _finalize,
    "memory": _memory,
    "streams": _streams,
    "bytes": _bytes,
    "cameras": _cameras,
}
