"""Cost of digests and the journal: CPU in digest calls, bytes an hour, resumption of a writer.

One `SessionWriter` in this process writes the rig load's streams from frames in memory, with a
commit every 200 ms of the recording.  Then the commits of one second are repeated until the journal
is as long as after ``hours``.  The writer is abandoned as by a kill, and another writer resumes the
session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.harness import Figure, Option, Run
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.journal import digests, state
from recorder.session.layout import JOURNAL, SessionPlan, private
from tests.manual_clock import ManualClock

_SWEEP = ("rng", "rng_far", "rfl", "nir")
CAMERA = StreamSpec("camera", (ChannelSpec("video.avi", "mjpg", "u1", (1080, 1920, 3)),), 30.0)
LIDAR = StreamSpec(
    "lidar",
    (
        *(ChannelSpec(name, "lzmaf", "u2", (128, 1024)) for name in _SWEEP),
        ChannelSpec("t_col", "raw", "u8", (1024,)),
    ),
    10.0,
    device_clock=True,
)
RADAR = StreamSpec(
    "radar",
    (ChannelSpec("iq", "raw", "i2", (64, 3, 4, 512)), ChannelSpec("valid", "raw", "u1")),
    20.0,
)
IMU = StreamSpec(
    "imu", tuple(ChannelSpec(n, "raw", "f4", (3,)) for n in ("acc", "avel", "rot")), 100.0, True
)
LIDAR_IMU = StreamSpec(
    "lidar_imu", tuple(ChannelSpec(n, "raw", "f4", (3,)) for n in ("acc", "avel")), 100.0, True
)
SPECS = (CAMERA, LIDAR, RADAR, IMU, LIDAR_IMU)
FRAMES = {"video.avi": 142_000, "rng": 190_000, "rng_far": 3_000, "rfl": 60_000, "nir": 100_000}
"""Bytes of a frame, as measured with real video and real sweeps (docs/benchmarks.md)."""
TURN_S = 0.2
OPTIONS = {
    "seconds": Option("float", 30.0, "recorded seconds", minimum=1),
    "hours": Option("float", 24.0, "of commits, before the writer resumes", minimum=0.01),
    "rounds": Option("int", 5, "runs", minimum=1),
}
QUICK = {"seconds": 5.0, "hours": 1.0, "rounds": 2}


class LoadGenerator:
    """Load generator that sends the streams to a session's writer."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(5_000_000_000)
        plan = SessionPlan(str(root), "rig", True, "version: 1\n", record_format=["imu"])
        self.writer = SessionWriter.create(PosixDisk(), plan, self.clock)
        self._sent = {spec.name: (0, 0) for spec in SPECS}
        self._payload = np.random.default_rng(1).bytes(2_000_000)
        for spec in SPECS:
            self.writer.declare(spec)

    def turn(self) -> None:
        """Send 200 ms of all streams, and commit."""
        for spec in SPECS:
            for _ in range(round((spec.rate_hz or 0) * TURN_S)):
                self._send(spec)
        self.clock.advance(TURN_S)
        self.writer.commit()

    def _send(self, spec: StreamSpec) -> None:
        number, seq = self._sent[spec.name]
        sizes = [FRAMES.get(c.name, c.sample_bytes) for c in spec.channels]
        t_ns = 5_000_000_000 + round(seq * 1e9 / (spec.rate_hz or 1))
        message = Message(
            Kind.DATA,
            spec.name,
            7,
            number,
            seq,
            1,
            np.array([t_ns], np.int64),
            np.array([t_ns], np.int64) if spec.device_clock else None,
            sizes=tuple(
                np.array([n], np.uint32)
                for n, c in zip(sizes, spec.channels, strict=True)
                if c.variable
            ),
            frames=[memoryview(self._payload)[:n] for n in sizes],
        )
        self._sent[spec.name] = (number + 1, seq + 1)
        self.writer.append(message)


class CallTimer:
    """Meter of this thread's CPU seconds in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = time.thread_time_ns()
            result = function(*args)
            self.seconds += (time.thread_time_ns() - began) / 1e9
            self.calls += 1
            return result

        return call


def _clock_cost() -> float:
    """Return the seconds that measuring a call takes by itself."""
    timed = CallTimer()
    nothing = timed(lambda: None)
    for _ in range(100_000):
        nothing()
    return timed.seconds / timed.calls


def measure(run: Run) -> Iterator[Figure]:
    """Measure all rounds."""
    run.data["samples"] = "random bytes in the sizes of real video and sweeps"
    lengths = run.options["seconds"], run.options["hours"]
    done = run.repeat(lambda folder: measure_once(folder, *lengths))
    for name, unit in done[0]:
        yield Figure(name, [values[name, unit] for values in done], unit)


def measure_once(root: Path, seconds: float, hours: float) -> dict[tuple[str, str], float]:
    """Measure one run; return values by name and unit."""
    load, timed = LoadGenerator(root), CallTimer()
    running = digests.RunningDigest
    with (
        mock.patch.object(running, "update", timed(running.update)),
        mock.patch.object(running, "leaf", timed(running.leaf)),
        mock.patch.object(digests, "digest", timed(digests.digest)),
        mock.patch.object(state, "digest", timed(digests.digest)),
    ):
        load.turn()
        timed.seconds, timed.calls, began = 0.0, 0, time.process_time()
        path = private(load.writer.path, JOURNAL)
        size = path.stat().st_size
        for _ in range(round(seconds / TURN_S)):
            load.turn()
        cpu = time.process_time() - began
        per_hour = (path.stat().st_size - size) / seconds * 3600
    journal = load.writer._session_log.journal
    second: list[dict[str, Any]] = []  # the commits of one, of which one has leaves
    with mock.patch.object(journal, "commit", lambda **values: second.append(values)):
        for _ in range(round(1 / TURN_S)):
            load.turn()
    for _ in range(round(hours * 3600)):
        for values in second:
            journal.commit(**values)
    journal.sync()
    load.turn()
    load.writer.abandon()
    began = time.perf_counter()
    writer = SessionWriter.resume(PosixDisk(), load.writer.path, load.clock)
    resumed = time.perf_counter() - began
    writer.abandon()
    digest_s = timed.seconds - timed.calls * _clock_cost()
    return {
        ("digests", "CPU ms / s"): 1e3 * digest_s / seconds,
        ("digest calls", "1 / s"): timed.calls / seconds,
        ("writer in this process", "CPU ms / s"): 1e3 * cpu / seconds,
        ("journal an hour", "MB"): per_hour / 1e6,
        ("journal when resumed", "MB"): path.stat().st_size / 1e6,
        ("resumed after", "ms"): 1e3 * resumed,
    }
