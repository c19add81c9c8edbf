"""A small session with ``session.vrs``, written message by message."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np

from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import Disk, PosixDisk
from recorder.formats.vrs import RecordType, StreamId, VrsReader
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan
from recorder.session.vrs.files import map_vrs_streams, open_vrs
from tests.crash.scenario import jpeg
from tests.manual_clock import ManualClock

CAMERA = StreamSpec("camera", (ChannelSpec("video.avi", "mjpg", "u1", (8, 16, 3)),), 30.0)
IMU = StreamSpec(
    "imu",
    (
        ChannelSpec("acc", "raw", "f4", (3,), "acceleration", "m/s^2"),
        ChannelSpec("gain", "raw", "f2"),
        ChannelSpec("phase", "raw", "c8", (2,)),
        ChannelSpec("turn", "raw", "f8", (3, 3)),
    ),
    100.0,
    device_clock=True,
    settings={"range": 16},
)
LIDAR = StreamSpec(
    "lidar",
    (
        ChannelSpec("rng", "lzmaf", "u2", (4, 16)),
        ChannelSpec("valid", "lzma", "u1", (16,)),
        ChannelSpec("t_col", "raw", "u8", (1024,)),
        ChannelSpec("nir", "raw", "u2", (64, 128)),
    ),
    10.0,
    files={"lidar.json": '{"beam_intrinsics": {"beam_altitude_angles": [3, 1, -1, -3]}}'},
)
SPECS = {spec.name: spec for spec in (CAMERA, IMU, LIDAR)}
EPOCH = 77


class Recording:
    """A session that is written; every message is kept in `sent`."""

    def __init__(
        self, root: Path, record_format: list[str] | None, disk: Disk | None = None, **plan: Any
    ) -> None:
        self.clock = ManualClock(5_000_000_000)
        self.disk = disk or PosixDisk()
        sensors = {name: {"driver": f"the_{name}", "streams": [name]} for name in SPECS}
        made = SessionPlan(
            str(root),
            "s",
            True,
            "version: 1\n",
            sensors=sensors,
            record_format=record_format,
            **plan,
        )
        self.writer = SessionWriter.create(self.disk, made, self.clock)
        self.path = self.writer.path
        self.sent: dict[str, list[Message]] = {name: [] for name in SPECS}
        self.epochs = dict.fromkeys(SPECS, EPOCH)
        self._seq: dict[str, int] = dict.fromkeys(SPECS, 0)
        self._number: dict[str, int] = dict.fromkeys(SPECS, 0)
        self._random = np.random.default_rng(3)

    def declare(self, *names: str) -> None:
        for name in names or SPECS:
            self.writer.declare(SPECS[name])

    def restart(self, name: str) -> None:
        """The stream's driver starts anew."""
        self.epochs[name] += 1
        self._seq[name] = self._number[name] = 0

    def data(self, name: str, count: int = 1, late_s: float = 0.0) -> Message:
        """Samples a millisecond apart, the last one `late_s` ago."""
        spec = SPECS[name]
        self.clock.advance(0.02)
        end = self.clock.monotonic_ns() - round(late_s * 1e9)
        times = end - np.arange(count - 1, -1, -1, dtype=np.int64) * 1_000_000
        frames, sizes = [], []
        for channel in spec.channels:
            values = self._random.integers(0, 255, (count, channel.sample_bytes), np.uint8)
            parts = [row.tobytes() for row in values]
            if channel.format == "mjpg":
                parts = [_picture(p[: 20 + i]) for i, p in enumerate(parts)]
            if channel.format == "lzmaf":
                parts = [lzma.compress(p, preset=0) for p in parts]
            if channel.variable:
                sizes.append(np.array([len(p) for p in parts], np.uint32))
            data = b"".join(parts)
            frames.append(lzma.compress(data, preset=0) if channel.format == "lzma" else data)
        message = self._take(Kind.DATA, name, count)
        message.t_mono_ns, message.frames, message.sizes = times, frames, tuple(sizes)
        message.t_dev_ns = times + 5 if spec.device_clock else None
        self.writer.append(message)
        self.sent[name].append(message)
        return message

    def tell(self, kind: Kind, name: str, count: int | None = 0, **values: Any) -> None:
        message = self._take(kind, name, count)
        message.t_mono_ns, message.values = self.clock.monotonic_ns(), values
        self.writer.append(message)

    def _take(self, kind: Kind, name: str, count: int | None) -> Message:
        seq, number = self._seq[name], self._number[name]
        self._seq[name] += count or 0
        self._number[name] += 1
        return Message(kind, name, self.epochs[name], number, seq, count)

    def end(self) -> Path:
        for name in SPECS:
            if self.sent[name]:
                self.tell(Kind.END, name, reason="eof")
        self.writer.close("clean")
        return self.path


def _picture(comment: bytes) -> bytes:
    """A JPEG with a comment (T.81, B.2.4.5), which makes each one another."""
    return jpeg()[:2] + b"\xff\xfe" + (2 + len(comment)).to_bytes(2, "big") + comment + jpeg()[2:]


def data_of(path: Path, name: str) -> list[list[Any]]:
    """The blocks of a stream's data records."""
    with open_vrs(path) as vrs:
        return [r.blocks() for r in vrs.records(stream_of(vrs, name), RecordType.DATA)]


def stream_of(vrs: VrsReader, name: str) -> StreamId:
    return map_vrs_streams({s: v.tags for s, v in vrs.streams.items()})[name]
