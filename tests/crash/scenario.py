"""A small session with everything in it, recorded on a simulated disk.

All that a session meets: video in several AVI segments, H.264, sweeps of points, xz frame by frame
and together, raw samples in batches, states, losses, ends, a stream that is declared late, one of a
single sample, drivers that start again, writers that are killed anywhere and resumed, commits at
any time and samples that arrive in the middle of one.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from recorder.bus.wire import Kind, Message
from recorder.codecs.h264 import START_CODE
from recorder.codecs.points import Column, pack_points, points_dtype
from recorder.codecs.shuffling import pack_image
from recorder.codecs.storage import mjpg
from recorder.codecs.storage.avi import AviLayout, AviWriter
from recorder.codecs.streams import ChannelSpec, StreamSpec, points_channel
from recorder.common.files import Disk
from recorder.recording.writer import session_writer
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.layout import SessionPlan
from tests.crash.simdisk import KilledError, Op, SimulatedDisk, Tree
from tests.h264 import encode
from tests.manual_clock import ManualClock

SESSION = "data/sessions/drive"
SEGMENT_BYTES = 3000
SUPER_ENTRIES = 40

CAMERA = StreamSpec("camera", (ChannelSpec("video.avi", "mjpg", "u1", (8, 16, 3)),), 30.0)
VIDEO = StreamSpec("video", (ChannelSpec("video.h264", "h264", "u1", (16, 16, 3)),), 30.0)
DATAGRAMS = StreamSpec(
    "datagrams",
    (ChannelSpec("payload", "bytes", "u1", (64,)), ChannelSpec("port", "raw", "u2")),
    900.0,
)
SWEEP = (Column("xyz", "f4", (3,)), Column("ring", "u2"))
SWEEPS = StreamSpec("sweeps", (points_channel(SWEEP, "points"),), 10.0, device_clock=True)
LIDAR = StreamSpec(
    "lidar",
    (
        ChannelSpec("rng", "lzmaf", "u2", (4, 16)),
        ChannelSpec("nir", "lzmaf", "u2", (4, 16)),
        ChannelSpec("rfl", "zstdf", "u1", (4, 16)),
        ChannelSpec("t_col", "raw", "u8", (16,)),
    ),
    10.0,
    device_clock=True,
    files={
        "lidar.json": json.dumps(
            {
                "beam_intrinsics": {"beam_altitude_angles": [3, 1, -1, -3]},
                "lidar_data_format": {"columns_per_frame": 16},
            }
        )
    },
)
RADAR = StreamSpec(
    "radar",
    (ChannelSpec("cube", "lzma", "i2", (4, 2)), ChannelSpec("adc", "raw", "u1", (700,))),
    20.0,
)
IMU = StreamSpec(
    "imu",
    (ChannelSpec("acc", "raw", "f4", (3,)), ChannelSpec("avel", "raw", "f4", (3,))),
    100.0,
    device_clock=True,
)
SINGLE = StreamSpec("single", (ChannelSpec("value", "raw", "f8"),))
LATE = StreamSpec("late", (ChannelSpec("count", "raw", "u4", (5,)),), 50.0)
SPECS = {
    spec.name: spec for spec in (CAMERA, VIDEO, DATAGRAMS, LIDAR, SWEEPS, RADAR, IMU, SINGLE, LATE)
}

History = dict[str, list[Message]]
"""By stream, the messages that the writer took, in order."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the writer had promised by the time of an operation.

    Attributes:
        at: operations done before.
        promised: by stream, how many messages of its history may have been acknowledged.
        life: the writer's number; names the histories.
        closed: the session had been closed.
    """

    at: int
    promised: dict[str, int]
    life: int
    closed: bool = False


@dataclass(slots=True)
class Recording:
    """A scenario as it went.

    Attributes:
        seed: names it.
        base: what the disk held at first.
        ops: what was done to the disk.
        marks: what was promised when.
        histories: what was sent, by the life of the writer that took it.
        lives: operations done before each life.
    """

    seed: int
    base: Tree
    ops: list[Op]
    marks: list[Mark]
    histories: list[History]
    lives: list[int]


class SmallAvi(AviWriter):
    """Closes its segments after a few frames."""

    @classmethod
    def create(
        cls, path: Path, disk: Disk, layout: AviLayout, segment_bytes: int = SEGMENT_BYTES
    ) -> AviWriter:
        return super().create(path, disk, layout, segment_bytes)

    @classmethod
    def resume(
        cls,
        path: Path,
        disk: Disk,
        length: int,
        layout: AviLayout,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> AviWriter:
        return super().resume(path, disk, length, layout, segment_bytes)


def small_layout(spec: ChannelSpec, rate_hz: float | None) -> AviLayout:
    """The layout of a video with a short super index."""
    return AviLayout.of(spec.shape[1], spec.shape[0], rate_hz, SUPER_ENTRIES)


@contextmanager
def small_videos() -> Iterator[None]:
    """Videos get short segments and headers, so that few frames make several of them."""
    with (
        mock.patch.object(mjpg, "AviWriter", SmallAvi),
        mock.patch.object(mjpg, "_make_layout", small_layout),
    ):
        yield


class Scenario:
    """Runs one; see `record`."""

    writer_class: type[SessionWriter] = SessionWriter

    def __init__(self, folder: Path, seed: int, disk_class: type[SimulatedDisk]) -> None:
        self.random = Random(seed)
        (folder / "data").mkdir(parents=True)
        self.base = Tree.of(folder)
        gather = self.random.choice((1, 700, 5000, 256 * 1024))
        self.disk = disk_class(folder, gather, self.base)
        self.clock = ManualClock(monotonic_ns=50_000_000_000)
        self.marks: list[Mark] = []
        self.histories: list[History] = [{}]
        self.lives = [0]
        self._folder = folder
        self._source = _Source(self.random, self.clock)
        self._ahead: dict[str, list[Message]] = {}
        self._declared = set(SPECS) - {"late"}
        self._committing = False
        self._lock_fd = -1
        self.disk.before_sync = self._before_sync

    @property
    def history(self) -> History:
        return self.histories[-1]

    def run(self, steps: int) -> None:
        """Record a session from its start to its end, or to where its last writer was killed."""
        plan = SessionPlan(
            str(self._folder / Path(SESSION).parent),
            Path(SESSION).name,
            True,
            config_text="version: 1\nsensors: {}\n",
            calibration_text="sensors: {}\n",
            record_format=sorted(SPECS),
        )
        self._writer = self._observed(self.writer_class).create(self.disk, plan, self.clock)
        lives = self.random.choice((1, 2, 2, 3))
        for life in range(lives):
            last = life == lives - 1
            if not last:
                self.disk.kill_at = len(self.disk.ops) + self.random.randrange(1, 6 * steps)
            with suppress(KilledError):
                self._live(steps // lives, last)
            if last:
                break
            self._kill_and_resume()

    def _live(self, steps: int, last: bool) -> None:
        for name in sorted(self._declared):
            self._writer.declare(SPECS[name])
        for _ in range(steps):
            self.clock.advance(self.random.choice((0.001, 0.02, 0.3)))
            if self.random.random() < 0.2:
                self._commit()
            if "late" not in self._declared and self.random.random() < 0.05:
                self._writer.declare(LATE)
                self._declared.add("late")
            if self.random.random() < 0.03:
                self._writer.event("driver", "imu", "restarted", detail="campaign")
            self._append()
        if not last or self.random.random() < 0.2:
            return
        for name in sorted(self._declared):
            if self.random.random() < 0.7 and self._source.epochs.get(name):
                for message in [*self._ahead.pop(name, []), self._source.end(name)]:
                    self._take(message)
        for name, state in self._writer.positions().items():
            if state["ended"] is None:
                self._writer.lose_tail(name)
        self._writer.close("clean")
        promised = {name: len(messages) for name, messages in self.history.items()}
        life = len(self.histories) - 1
        self.marks.append(Mark(len(self.disk.ops), promised, life, closed=True))

    def _kill_and_resume(self) -> None:
        while True:
            self.disk.kill()
            self._unlock()
            if self.random.random() < 0.2:
                self.disk.kill_at = len(self.disk.ops) + self.random.randrange(1, 30)
            self.lives.append(len(self.disk.ops))
            # What the journal does not have, drivers send again, or are gone with it.
            self.histories.append({name: list(m) for name, m in self.history.items()})
            writer_class = self._observed(self.writer_class)
            try:
                path = self._folder / SESSION
                self._writer = writer_class.resume(self.disk, path, self.clock)
            except KilledError:
                continue
            break
        self.disk.kill_at = None
        for name, messages in self.history.items():
            kept = self._count(name, self._writer.durable.get(name, (0, 0)))
            self._ahead[name] = messages[kept:] + self._ahead.get(name, [])
            del messages[kept:]
            if self._ahead[name] and self.random.random() < 0.3:
                self._ahead[name].clear()
                self._source.restart(name)

    def _observed(self, writer_class: type[SessionWriter]) -> type[SessionWriter]:
        scenario = self

        class Observed(writer_class):  # type: ignore[misc, valid-type]
            def __setattr__(self, name: str, value: Any) -> None:
                super().__setattr__(name, value)
                if name == "durable" and value:
                    scenario._promise(value)

            def abandon(self) -> None:
                super().abandon()
                scenario._lock_fd = -1

        return Observed

    def _lock(self, path: Path) -> int:
        self._lock_fd = os.open(os.devnull, os.O_RDONLY)
        return self._lock_fd

    def _unlock(self) -> None:
        if self._lock_fd >= 0:
            with suppress(OSError):  # closed by what handled the exception
                os.close(self._lock_fd)
            self._lock_fd = -1

    def _promise(self, durable: dict[str, tuple[int, int]]) -> None:
        promised = {name: self._count(name, position) for name, position in durable.items()}
        self.marks.append(Mark(len(self.disk.ops), promised, len(self.histories) - 1))

    def _count(self, name: str, position: tuple[int, int]) -> int:
        """Messages of the stream's history before a position."""
        epoch, number = position
        for index, message in enumerate(self.history.get(name, ())):
            if (message.epoch, message.number) == (epoch, number - 1):
                return index + 1
        assert number == 0, f"{name}: a position that never was: {position}"
        return 0

    def _commit(self) -> None:
        self._committing = True
        try:
            self._writer.commit()
        finally:
            self._committing = False

    def _before_sync(self) -> None:
        """The append thread goes on while the sync thread waits for the disk."""
        if self._committing and not self._writer.lock.locked() and self.random.random() < 0.2:
            self._append()

    def _append(self) -> None:
        name = self.random.choice(sorted(self._declared))
        if self._ahead.get(name):
            self._take(self._ahead[name].pop(0))
        elif (message := self._source.next(name)) is not None:
            self._take(message)

    def _take(self, message: Message) -> None:
        self.history.setdefault(message.stream, []).append(message)
        self._writer.append(message)


class _Source:
    """The drivers."""

    def __init__(self, random: Random, clock: ManualClock) -> None:
        self.epochs: dict[str, int] = {}
        self._random = random
        self._clock = clock
        self._numbers: dict[str, int] = {}
        self._seqs: dict[str, int] = {}
        self._times: dict[str, int] = {}
        self._ended: set[str] = set()
        self._made = 0

    def restart(self, name: str) -> None:
        self.epochs[name] = self._random.getrandbits(60) + 1
        self._numbers[name] = self._seqs[name] = 0
        self._ended.discard(name)

    def end(self, name: str) -> Message:
        if name in self._ended:
            self.restart(name)
        self._ended.add(name)
        return self._message(Kind.END, name, values={"reason": "stopped"})

    def next(self, name: str) -> Message | None:
        """The stream's next message; None where it has ended."""
        if name not in self.epochs:
            self.restart(name)
        chance = self._random.random()
        if chance < 0.03 and name != "single":
            self.restart(name)
        if name in self._ended:
            return None
        if name == "single" and self._seqs[name] == 1:
            return self.end(name)
        if chance < 0.1 and name != "single":
            lost = {"cause": self._random.choice(("radar", "buffer"))}
            return self._message(
                Kind.LOST, name, count=self._random.choice((1, 5, None)), values=lost
            )
        if chance < 0.15:
            self._made += 1
            return self._message(Kind.STATE, name, values={"made": self._made})
        if chance < 0.17 and name != "single":
            return self.end(name)
        return self._data(name)

    def _message(self, kind: Kind, name: str, count: int | None = 0, **more: Any) -> Message:
        message = Message(
            kind,
            name,
            self.epochs[name],
            self._numbers[name],
            self._seqs[name],
            count,
            self._clock.monotonic_ns(),
            **more,
        )
        self._numbers[name] += 1
        self._seqs[name] += count or 0
        return message

    def _data(self, name: str) -> Message:
        spec = SPECS[name]
        batches = {"imu": 12, "radar": 4, "late": 3, "camera": 2, "video": 2, "datagrams": 9}
        batch = (batches | {"sweeps": 2}).get(name, 1)
        count = self._random.randrange(1, batch + 1)
        start = max(self._clock.monotonic_ns(), self._times.get(name, 0) + 1_000_000)
        times = start + np.arange(count, dtype=np.int64) * 1_000_000
        self._times[name] = int(times[-1])
        frames, sizes = [], []
        for channel in spec.channels:
            encoded = [self._encoded(channel) for _ in range(count)]
            frame = b"".join(encoded)
            if channel.format == "lzma":
                frame = lzma.compress(frame, preset=0)
            frames.append(frame)
            if channel.variable:
                sizes.append(np.array([len(e) for e in encoded], np.uint32))
        message = self._message(Kind.DATA, name, count=count)
        message.t_mono_ns = times
        message.t_dev_ns = times - 7 if spec.device_clock else None
        message.frames, message.sizes = frames, tuple(sizes)
        return message

    def _encoded(self, channel: ChannelSpec) -> bytes:
        self._made += 1
        if channel.format == "mjpg":
            text = b"%d" % self._made + b"." * self._random.randrange(3)
            return jpeg()[:2] + b"\xff\xfe" + (2 + len(text)).to_bytes(2, "big") + text + jpeg()[2:]
        if channel.format == "bytes":
            return b"%d" % self._made + b"." * self._random.choice((0, 1, 40))
        if channel.format == "points":
            points = np.zeros(self._random.choice((0, 1, 40)), points_dtype(channel.columns))
            points["ring"] = self._made % 65536
            return pack_points(points)
        if channel.format == "zstdf":
            return pack_image((self._made * np.arange(64)).astype("u1").reshape(4, 16))
        if channel.format == "h264":
            text = b"%d" % self._made + b"." * self._random.randrange(3)
            message = b"\6\5" + bytes((16 + len(text),)) + b"written by tests" + text + b"\x80"
            return START_CODE + message + encode(1, (16, 16))[0]
        values = np.arange(self._made, self._made + 4096).astype(channel.np_dtype).tobytes()
        sample = values[: channel.sample_bytes]
        return lzma.compress(sample, preset=0) if channel.format == "lzmaf" else sample


@functools.cache
def jpeg() -> bytes:
    """A small picture; a comment after its first marker makes each one another."""
    import cv2

    rows = np.linspace(0, 255, 8, dtype=np.uint8)
    image = np.broadcast_to(rows[:, None, None], (8, 16, 3))
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 60])[1])


def record(
    folder: Path,
    seed: int,
    steps: int = 60,
    disk_class: type[SimulatedDisk] = SimulatedDisk,
    writer_class: type[SessionWriter] = SessionWriter,
) -> Recording:
    """Record the session of a seed.

    Args:
        folder: where the files are for real; made here.
        seed: names the scenario.
        steps: about how many messages.
        disk_class, writer_class: what to record with; broken ones must be found out.
    """
    folder.mkdir()
    scenario = Scenario(folder, seed, disk_class)
    scenario.writer_class = writer_class
    # A lock would outlive a writer that is not really killed.
    with small_videos(), mock.patch.object(session_writer, "lock_session", scenario._lock):
        scenario.run(steps)
        scenario.disk.kill()
        scenario._unlock()
    return Recording(
        seed, scenario.base, scenario.disk.ops, scenario.marks, scenario.histories, scenario.lives
    )
