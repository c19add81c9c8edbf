"""Targets of the figures in one table; `verdicts` compares them with results."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.figures import Figure, Result

_HOLDS = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Target:
    """Limit of a figure.

    Attributes:
        work: the measured work.
        against: the comparison.
        benchmark, figure: names of the benchmark and the figure, whose median counts.
        sign, limit: comparison with which the target is met.
    """

    work: str
    against: str
    benchmark: str
    figure: str
    sign: Literal["<=", ">="]
    limit: float

    def holds(self, figure: Figure) -> bool:
        """Return whether a figure's median is within the limit."""
        return bool(_HOLDS[self.sign](figure.median, self.limit))


_RIG, _BARE = "red-rover's way", "write + fdatasync"
TARGETS: Final = (
    Target("rig load, live packing, CPU", _RIG, "rig", "CPU ratio", "<=", 0.46),
    Target("rig load, `packing: later`, CPU", _RIG, "rig", "CPU ratio, later", "<=", 0.28),
    Target("the same with its later packing, CPU", _RIG, "rig", "CPU ratio, packed", "<=", 0.95),
    Target("bytes after packing, quality 90", _RIG, "rig", "bytes ratio, packed", "<=", 1.12),
    Target(
        "bytes after packing, equal PSNR",
        _RIG,
        "rig",
        "bytes ratio at equal PSNR, packed",
        "<=",
        1.0,
    ),
    Target("samples lost or missing", "none", "rig", "samples missing", "<=", 0),
    Target("memory of the writer, MB", "", "rig", "writer, resident at most", "<=", 60),
    Target(
        "writer alone, synced five times a second, digests on, CPU",
        "edgefirst-recorder, unsynced",
        "writer",
        "CPU ratio",
        "<=",
        1.2,
    ),
    Target("durable ingest, one file", _BARE, "durable_ingest", "ratio, 1 file", ">=", 0.95),
    Target("durable ingest, twelve files", _BARE, "durable_ingest", "ratio, 12 files", ">=", 0.9),
    Target(
        "small samples, durable",
        "Python `mcap` writer, unsynced",
        "small_samples",
        "ratio to mcap",
        ">=",
        2.0,
    ),
    Target("NCore packing", "real time", "packing", "ncore, speed", ">=", 5.0),
    Target("EdgeFirst packing", "real time", "packing", "edgefirst, speed", ">=", 9.0),
    Target("MCAP without points", "real time", "packing", "mcap without points, speed", ">=", 20.0),
    Target("MCAP with points", "real time", "packing", "mcap, speed", ">=", 5.0),
    Target("memory of packing MCAP with points, MB", "", "packing", "mcap, memory", "<=", 250),
    Target("the same, `ros2`, MB", "", "packing", "mcap ros2, memory", "<=", 250),
    Target("all archives together, time", "their sum", "packing", "together, ratio", "<=", 0.75),
    Target(
        "memory of packing an archive, MB", "", "packing", "peak memory, one archive", "<=", 300
    ),
    Target("all archives at once, MB", "", "packing", "peak memory, all together", "<=", 300),
    Target("NCore writers, time", "nvidia-ncore", "ncore_writer", "time ratio, worst", "<=", 0.35),
    Target("NCore writers, CPU", "nvidia-ncore", "ncore_writer", "CPU ratio, worst", "<=", 0.45),
    Target(
        "128x2048 at 20 Hz, two returns, with camera, radar, IMU: samples missing",
        "none",
        "dense_lidar",
        "samples missing",
        "<=",
        0,
    ),
    Target(
        "`run` to the first sample, s",
        "clock",
        "start",
        "demo, warm: to the first sample",
        "<=",
        2.0,
    ),
    Target(
        "`run` from the last sample to the prompt, s",
        "clock",
        "start",
        "demo, warm: from the last sample",
        "<=",
        1.0,
    ),
    Target("steepest growth, exponent", "its work", "growth", "steepest exponent", "<=", 1.15),
    Target("one viewer, CPU s / s more", "", "live", "one viewer, more CPU", "<=", 0.25),
    Target("one viewer, p99 to the socket, ms", "", "live", "one viewer, p99", "<=", 100),
    Target("five clients, memory of live, MB", "", "live", "five clients, memory", "<=", 150),
    Target("no viewer, CPU", "the rig's", "live", "no viewer, share", "<=", 0.02),
    Target(
        "driver of 1080p30 H.264 of 8 Mbit/s as it is, CPU s / s",
        "",
        "compressed_camera",
        "driver",
        "<=",
        0.03,
    ),
    Target(
        "8000 CAN frames a second, CPU s / s of the driver",
        "",
        "can_live",
        "frames and all signals, CPU of the driver",
        "<=",
        0.10,
    ),
    Target("CAN frames lost or missing", "none", "can_live", "frames lost or missing", "<=", 0),
    Target("packing on two workers", "one", "cluster", "two workers against one", ">=", 1.7),
    Target("planning 1000 sessions, s", "", "cluster", "planning 1000 sessions", "<=", 10),
    Target("ten triggers, CPU s / s", "", "triggers", "triggers", "<=", 0.01),
    Target("capture to the screen, ms", "", "screen", "median", "<=", 300),
)


@dataclass(frozen=True)
class Verdict:
    """A target and its measured figure; the figure is None if it was not measured."""

    target: Target
    figure: Figure | None

    @property
    def word(self) -> str:
        """Verdict as a word: ``met``, ``MISSED`` or ``not run``."""
        if self.figure is None:
            return "not run"
        return "met" if self.target.holds(self.figure) else "MISSED"


def verdicts(results: Iterable[Result]) -> list[Verdict]:
    """Return each target of the benchmarks that were run, with its figure."""
    by_name = {result.benchmark: result for result in results}
    return [
        Verdict(target, by_name[target.benchmark].figure(target.figure))
        for target in TARGETS
        if target.benchmark in by_name
    ]
