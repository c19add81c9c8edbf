"""A session of any length, made by the session's own writer within seconds.

Every camera, lidar and radar sample that a report may look at is a simulated one; the others are as
small as samples can be, so that an hour takes some hundred megabytes instead of 75 GB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from drivers.kit.driver import Sample
from drivers.kit.encode import Encoder
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan
from tests.manual_clock import ManualClock
from tests.viewers.live.views.sensors import play

START_NS = 5_000_000_000
EVERY = 100
"""One of so many pictures and sweeps is a simulated one."""
COMMIT_S = 0.2

Frames = list[tuple[list[bytes], int]]
"""Encoded channels of one sample each."""


def long_session(
    root: Path,
    seconds: int,
    *,
    camera: tuple[int, int] = (1920, 1080),
    mode: str = "1024x10",
    killed: bool = False,
) -> Path:
    """Record a session of the rig's length, without waiting for it.

    Args:
        root: folder of sessions.
        seconds: its length.
        camera: width and height of the pictures.
        mode: of the lidar.
        killed: leave the session as a writer that is killed leaves it; else it is clean.
    """
    clock = ManualClock(START_NS)
    beams = 128 if mode == "1024x10" else 32
    sensors = [
        _Sensor("camera", width=camera[0], height=camera[1]),
        _Sensor("lidar", beams=beams, mode=mode, imu=False),
        _Sensor("radar"),
        _Sensor("imu"),
    ]
    header = {s.spec.name: {"driver": "sim", "source": "sim", "streams": [s.spec.name],
                            "live": True, "min_rate": None} for s in sensors}  # fmt: skip
    plan = SessionPlan(
        str(root), "hour", True, "version: 1\n", sensors=header, record_format=["imu"],
        metadata={"vehicle": "rig-1"},
    )  # fmt: skip
    writer = SessionWriter.create(PosixDisk(), plan, clock)
    for sensor in sensors:
        writer.declare(sensor.spec, sensor.spec.name)
    step_s = 10
    for at in range(0, seconds, step_s):
        for sensor in sensors:
            for message in sensor.messages(at, min(at + step_s, seconds)):
                writer.append(message)
        clock.advance(step_s)
        if at == seconds // 2 // step_s * step_s:
            writer.event("mark", cause="halfway", text="halfway")
        writer.commit()
        for _ in range(round(step_s / COMMIT_S) - 1):  # as many as there would have been
            writer._session_log.journal.commit(t_ns=clock.monotonic_ns(), **writer._last)
    if killed:
        writer.abandon()
        return writer.path
    for sensor in sensors:
        writer.append(sensor.end())
    writer.commit(final=True)
    writer.event("end", cause="stop")
    writer.close("clean")
    return writer.path


class _Sensor:
    """Makes the messages of one stream."""

    def __init__(self, name: str, **options: Any) -> None:
        self._seq = self._number = 0
        spec, sample, _ = next(play(name, 1, **options))
        if name == "radar":
            spec, sample = _smaller(spec, sample)
        self.spec = spec
        real = {key: value[:1] for key, value in sample.data.items()}  # encoded, or an array
        plain = {c.name: _plain(c) for c in spec.channels}
        if name == "imu":
            plain = real
        self._frames = [_encoded(spec, values) for values in (real, plain)]

    def messages(self, begin_s: int, end_s: int) -> Iterator[Message]:
        """The samples of an interval, in messages of at most `EVERY` samples."""
        rate = self.spec.rate_hz or 1.0
        stop = round(end_s * rate)
        while self._seq < stop:
            count = min(EVERY - self._seq % EVERY, stop - self._seq)
            yield self._message(count)

    def _message(self, count: int) -> Message:
        first = self._seq
        kinds = [0 if (first + k) % EVERY == 0 else 1 for k in range(count)]
        frames = []
        sizes = []
        for c, channel in enumerate(self.spec.channels):
            parts = [self._frames[kind][c] for kind in kinds]
            frames.append(b"".join(parts))
            if channel.variable:
                sizes.append(np.array([len(part) for part in parts], np.uint32))
        period_ns = 1e9 / (self.spec.rate_hz or 1.0)
        numbers = np.arange(first, first + count)
        stamps = START_NS + np.rint(numbers * period_ns).astype(np.int64) + 1_000_000
        made = Message(
            Kind.DATA, self.spec.name, epoch=7, number=self._number, seq=first, count=count,
            t_mono_ns=stamps, t_dev_ns=stamps - 77 if self.spec.device_clock else None,
            sizes=tuple(sizes), frames=frames,
        )  # fmt: skip
        self._seq += count
        self._number += 1
        return made

    def end(self) -> Message:
        """The message that ends the stream."""
        return Message(
            Kind.END, self.spec.name, epoch=7, number=self._number, seq=self._seq,
            values={"reason": "stopped"},
        )  # fmt: skip


def _plain(channel: ChannelSpec) -> Any:
    """A sample of zeros."""
    values = np.full((1, *channel.shape), channel.name == "valid", channel.np_dtype)
    if channel.format != "mjpg":
        return values
    return [cv2.imencode(".jpg", values[0], [cv2.IMWRITE_JPEG_OPTIMIZE, 1])[1].tobytes()]


def _encoded(spec: StreamSpec, values: dict[str, Any]) -> Sequence[bytes]:
    encoder = Encoder(spec)
    device = np.zeros(1, np.int64) if spec.device_clock else None
    frames, _ = encoder.encode(Sample(spec.name, np.zeros(1, np.int64), values, device))
    encoder.close()
    return [bytes(frame) for frame in frames]


def _smaller(spec: StreamSpec, sample: Sample) -> tuple[StreamSpec, Sample]:
    """The radar's frame with an eighth of its chirps and one antenna: 8 kB instead of 786 kB."""
    import json

    iq = np.ascontiguousarray(np.asarray(sample.data["iq"])[:, :8, :1, :1])
    document = json.loads(spec.files["radar.json"])
    document["raw_shape"] = list(iq.shape[1:])
    document["shape"] = [8, 1, 1, iq.shape[-1] // 2]
    document.pop("antennas", None)
    channels = tuple(replace(c, shape=iq.shape[1:]) if c.name == "iq" else c for c in spec.channels)
    files = {"radar.json": json.dumps(document)}
    data = {**sample.data, "iq": iq}
    return replace(spec, channels=channels, files=files), replace(sample, data=data)
