"""A session of six minutes whose writer was killed, with frames as small as frames can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan
from tests.faults.numbers import jpeg, packed, stream
from tests.manual_clock import ManualClock

LIDAR = stream("lidar", 10.0, ("lzmaf",))
CAMERA = stream("camera", 30.0, ("mjpg",))
IMU = StreamSpec("imu", (ChannelSpec("acc", "raw", "f4", (3,)),), rate_hz=100.0)
SAMPLES = {"lidar": 3_600, "camera": 10_800, "imu": 36_000}
TAIL = {"lidar": 2, "camera": 6, "imu": 20}
"""Samples behind the last commit."""
COMMITS = 360


def long_session(root: Path) -> Path:
    """Make it; every sample of a stream has the same content."""
    clock = ManualClock(5_000_000_000)
    plan = SessionPlan(str(root), "long", True, "version: 1\n")
    writer = SessionWriter.create(PosixDisk(), plan, clock)
    frames = {"lidar": packed(1), "camera": jpeg(1), "imu": bytes(12)}
    at = dict.fromkeys(SAMPLES, 0)
    numbers = dict.fromkeys(SAMPLES, 0)

    def append(spec: StreamSpec, count: int) -> None:
        name = spec.name
        frame, first = frames[name], at[name]
        period_ns = round(1e9 / (spec.rate_hz or 1.0))
        sizes = (np.full(count, len(frame), np.uint32),) if spec.channels[0].variable else ()
        writer.append(
            Message(
                Kind.DATA,
                stream=name,
                epoch=7,
                number=numbers[name],
                seq=first,
                count=count,
                t_mono_ns=5_000_000_000 + period_ns * np.arange(first, first + count),
                sizes=sizes,
                frames=[frame * count],
            )
        )
        at[name] += count
        numbers[name] += 1

    for spec in (LIDAR, CAMERA, IMU):
        writer.declare(spec)
        append(spec, SAMPLES[spec.name] // 2)
    clock.advance(180.0)
    writer.commit()
    for _ in range(1, COMMITS):  # as many as there would have been
        writer._session_log.journal.commit(t_ns=clock.monotonic_ns(), **writer._last)
    for spec in (LIDAR, CAMERA, IMU):
        append(spec, SAMPLES[spec.name] - SAMPLES[spec.name] // 2)
    clock.advance(180.0)
    writer.commit()
    for spec in (LIDAR, CAMERA, IMU):
        append(spec, TAIL[spec.name])
    writer.abandon()
    return writer.path
