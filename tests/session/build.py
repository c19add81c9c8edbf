"""Builds whole sessions on disk, as the writer leaves them, with known content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Sample
from drivers.kit.encode import Encoder
from recorder.codecs.points import Column, pack_points, points_dtype
from recorder.codecs.raw_pixels import RawPixels
from recorder.codecs.storage import create_writer
from recorder.codecs.streams import ChannelSpec, StreamSpec, points_channel
from recorder.common.files import PosixDisk
from recorder.session.events import make_event
from recorder.session.journal.journal import JournalWriter, walk_journal
from tests import h264

START_NS = 1_717_236_000_123_456_789
START_MONO_NS = 5_000_000_000_001
HEIGHT, WIDTH = 24, 32
BEAMS, COLUMNS = 8, 64

RADAR_JSON = json.dumps({"range_resolution": 0.04, "doppler_resolution": 0.06, "iq_order": "iiqq"})
LIDAR_JSON = json.dumps(
    {
        "beam_intrinsics": {"beam_altitude_angles": list(range(BEAMS))},
        "lidar_data_format": {"columns_per_frame": COLUMNS},
    }
)

Array = npt.NDArray[Any]


def camera_spec(name: str = "camera") -> StreamSpec:
    channel = ChannelSpec("video.avi", "mjpg", "u1", (HEIGHT, WIDTH, 3), "RGB image")
    return StreamSpec(name, (channel,), rate_hz=30.0, bytes_per_sample=900)


def video_camera_spec(name: str = "camera") -> StreamSpec:
    """A camera of `tests.h264`, whose access units are its data."""
    width, height = h264.SIZE
    channel = ChannelSpec("video.h264", "h264", "u1", (height, width, 3), "video")
    return StreamSpec(name, (channel,), rate_hz=20.0, bytes_per_sample=900)


def raw_camera_spec(name: str = "camera", pixels: RawPixels | None = None) -> StreamSpec:
    pixels = pixels or RawPixels(10, "RGGB")
    channel = ChannelSpec(pixels.channel, "raw", pixels.dtype, (HEIGHT, WIDTH), "values")
    levels = {"black_level": 16, "white_level": 200, "white_balance": [1.9, 1.5]}
    return StreamSpec(name, (channel,), rate_hz=30.0, settings={"jpeg_quality": 90, **levels})


def lidar_spec(name: str = "lidar") -> StreamSpec:
    shape = (BEAMS, COLUMNS)
    channels = (
        ChannelSpec("rng", "lzmaf", "u2", shape, "range", "mm", delta=True),
        ChannelSpec("rng_far", "lzmaf", "u4", shape, "range minus rng", "mm"),
        ChannelSpec("rfl", "lzmaf", "u1", shape, "reflectivity"),
        ChannelSpec("nir", "lzmaf", "u2", shape, "ambient light"),
        ChannelSpec("t_col", "lzmaf", "u8", (COLUMNS,), "column times", "ns", device_time=True),
    )
    files = {"lidar.json": LIDAR_JSON}
    return StreamSpec(name, channels, rate_hz=10.0, device_clock=True, files=files)


def radar_spec(name: str = "radar") -> StreamSpec:
    channels = (
        ChannelSpec("iq", "raw", "i2", (8, 2, 4, 128), "raw IQ"),
        ChannelSpec("valid", "lzma", "u1", (), "1: no packet was lost"),
    )
    return StreamSpec(name, channels, rate_hz=20.0, files={"radar.json": RADAR_JSON})


SWEEP_COLUMNS = (
    Column("xyz", "f4", (3,), "m"),
    Column("intensity", "f4"),
    Column("ring", "u2"),
    Column("t_offset", "u4", unit="ns"),
)
POINT = points_dtype(SWEEP_COLUMNS)


def sweeps_spec(name: str = "lidar") -> StreamSpec:
    """A lidar whose sweeps differ in their number of points."""
    channel = points_channel(SWEEP_COLUMNS, "points of a sweep")
    return StreamSpec(name, (channel,), rate_hz=10.0, bytes_per_sample=4000)


def sweeps(count: int, seed: int = 1) -> list[npt.NDArray[Any]]:
    """Sweeps of 0 to 300 points, each an array [points]."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        points = np.zeros(0 if number % 7 == 3 else rng.integers(1, 300), POINT)
        points["xyz"] = rng.normal(size=(len(points), 3), scale=20)
        points["intensity"] = rng.integers(0, 256, len(points))
        points["ring"] = np.arange(len(points)) % 16
        points["t_offset"] = np.arange(len(points)) * 300_000
        found.append(points)
    return found


def imu_spec(name: str = "imu", rate_hz: float = 100.0) -> StreamSpec:
    channels = (
        ChannelSpec("acc", "raw", "f4", (3,), "acceleration", "m/s^2"),
        ChannelSpec("avel", "raw", "f4", (3,), "angular velocity", "rad/s"),
        ChannelSpec("rot", "raw", "f4", (3,), "Euler angles", "rad"),
    )
    return StreamSpec(name, channels, rate_hz=rate_hz, device_clock=True)


def content(spec: StreamSpec, count: int, seed: int = 1) -> dict[str, Any]:
    """Random but compressible values; images are smooth, so that JPEG keeps them nearly."""
    rng = np.random.default_rng(seed)
    data: dict[str, Any] = {}
    for channel in spec.channels:
        shape = (count, *channel.shape)
        if channel.format == "points":
            data[channel.name] = [pack_points(points) for points in sweeps(count, seed)]
        elif channel.format == "h264":
            data[channel.name] = h264.encode(count)
        elif channel.format == "mjpg":
            ramp = np.add.outer(np.arange(HEIGHT), np.arange(WIDTH)) * 2
            image = np.stack([ramp, ramp[::-1], 255 - ramp], axis=-1)
            steps = np.arange(count).reshape(-1, 1, 1, 1)
            data[channel.name] = ((image[None] + steps * 3) % 256).astype(np.uint8)
        elif channel.np_dtype.kind == "f":
            data[channel.name] = rng.normal(size=shape).astype(channel.np_dtype)
        else:
            top = min(int(np.iinfo(channel.np_dtype).max), 100_000)
            top = top if channel.pixels is None else 1 << channel.pixels.bits
            data[channel.name] = rng.integers(0, top, shape).astype(channel.np_dtype)
    return data


@dataclass
class Recorded:
    """What was put into a stream."""

    spec: StreamSpec
    t_ns: npt.NDArray[np.int64]
    seq: npt.NDArray[np.int64]
    t_dev_ns: npt.NDArray[np.int64] | None
    data: Mapping[str, Any]


@dataclass
class Builder:
    """A session in the making.

    ::

        builder = Builder(tmp_path / "rig")
        builder.add(imu_spec(), seconds=2.0)
        builder.lose("imu", first_seq=10, last_seq=12)
        builder.close()
    """

    path: Path
    plain: bool = False
    streams: dict[str, Recorded] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    sensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    epochs: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        (self.path / "config.yaml").write_text("version: 1\nsensors: {}\n")
        if not self.plain:
            (self.path / "_recorder" / "salvage").mkdir(parents=True)
            (self.path / "_recorder" / "lock").touch()
            self.write_header("recording", None)

    def add(
        self,
        spec: StreamSpec,
        seconds: float = 1.0,
        *,
        seq: Sequence[int] | None = None,
        epochs: Sequence[tuple[int, int]] = ((11, 0),),
        offset_ns: int = 0,
        sensor: str | None = None,
        seed: int = 1,
        count: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Recorded:
        """Record a stream: `seconds` at its nominal rate, each stamp a little off its place.

        Its data are arrays [n, *shape] by channel; None: `content`.
        """
        assert spec.rate_hz is not None
        n = count if count is not None else round(seconds * spec.rate_hz)
        numbers = np.arange(n, dtype=np.int64) if seq is None else np.array(seq, np.int64)
        n = len(numbers)
        jitter = np.random.default_rng(seed).integers(0, 50_000, n)
        places = np.arange(n, dtype=np.int64) * round(1e9 / spec.rate_hz)
        t_ns = START_NS + 1_000_000 + offset_ns + places + jitter
        t_dev = (places + 777).astype(np.int64) if spec.device_clock else None
        made = Recorded(spec, t_ns, numbers, t_dev, data or content(spec, n, seed))
        self.streams[spec.name] = made
        self.epochs[spec.name] = [{"epoch": e, "first_sample": i} for e, i in epochs]
        owner = sensor or spec.name
        entry = self.sensors.setdefault(owner, {"driver": "camera", "streams": []})
        entry["streams"].append(spec.name)
        self._write(made)
        return made

    def _write(self, made: Recorded) -> None:
        spec, folder, disk = made.spec, self.path / made.spec.name, PosixDisk()
        folder.mkdir()
        metas = spec.meta_files()
        if self.plain:
            for name in ("seq", "t_mono", "t_dev"):
                metas["meta.json"].pop(name, None)
        for name, meta in metas.items():
            (folder / name).write_text(json.dumps(meta))
        for name, text in spec.files.items():
            (folder / name).write_text(text)
        (made.t_ns / 1e9).astype("<f8").tofile(folder / "ts")
        if not self.plain:
            made.seq.astype("<u8").tofile(folder / "seq")
            (made.t_ns - START_NS + START_MONO_NS).astype("<u8").tofile(folder / "t_mono")
            if made.t_dev_ns is not None:
                made.t_dev_ns.astype("<u8").tofile(folder / "t_dev")
        encoder = Encoder(spec)
        n = len(made.t_ns)
        frames, sizes = (
            ([b""] * len(spec.channels), ())
            if not n
            else encoder.encode(Sample(spec.name, made.t_ns, made.data, made.t_dev_ns))
        )
        encoder.close()
        left = iter(sizes)
        for channel, frame in zip(spec.channels, frames, strict=True):
            writer = create_writer(folder, channel, disk, spec.rate_hz)
            if n:
                writer.append(frame, n, next(left) if channel.variable else None)
            writer.finish()
            for file in writer.files:
                file.close()

    def lose(
        self,
        stream: str,
        first_seq: int,
        last_seq: int | None,
        cause: str = "buffer",
        *,
        count: int | None = -1,
        epoch: int = 11,
        t_ns: int = START_NS + 500_000_000,
        **more: Any,
    ) -> None:
        """A lost event; its count is that of its numbers unless given."""
        if count == -1:
            assert last_seq is not None
            count = last_seq - first_seq + 1
        self.events.append(
            make_event("lost", t_ns, stream, cause, first_seq=first_seq, last_seq=last_seq,
                       count=count, epoch=epoch, **more)
        )  # fmt: skip

    def close(self, state: str = "clean") -> Path:
        """Write the events and the final ``session.json``."""
        if not self.plain:
            lines = "".join(json.dumps(event) + "\n" for event in self.events)
            (self.path / "_recorder" / "events.jsonl").write_text(lines)
            ends = [int(s.t_ns[-1]) for s in self.streams.values() if len(s.t_ns)]
            end_ns = max(ends, default=START_NS) + 1_000_000
            self.write_header(state, None if state == "recording" else end_ns)
            self.write_journal(state)
        return self.path

    def settled(self, stream: str) -> list[dict[str, Any]]:
        """The stream's epochs with what was sent: all that is stored, or told to be lost."""
        made, lost = self.streams[stream], [e for e in self.events if e["stream"] == stream]
        lost = [e for e in lost if e["type"] == "lost"]
        entries: list[dict[str, Any]] = list(self.epochs[stream])
        known = {entry["epoch"] for entry in entries}
        more = sorted({e["epoch"] for e in lost} - known)
        entries += [{"epoch": e, "first_sample": len(made.seq)} for e in more]
        settled = []
        stops = [*(entry["first_sample"] for entry in entries[1:]), len(made.seq)]
        for entry, stop in zip(entries, stops, strict=True):
            mine = [e for e in lost if e["epoch"] == entry["epoch"]]
            last = made.seq[entry["first_sample"] : stop].tolist()[-1:]
            last += [e["last_seq"] for e in mine if e["last_seq"] is not None]
            gone = any(e["count"] is None for e in mine)
            sent = None if gone else self.sent.get(entry["epoch"], max(last, default=-1) + 1)
            settled.append({**entry, "sent": sent, "ended": "gone" if gone else "stopped"})
        return settled

    def write_journal(self, state: str) -> None:
        """The journal as it stands after the session was closed, or before."""
        path = self.path / "_recorder" / "commits"
        path.unlink(missing_ok=True)
        journal = JournalWriter(PosixDisk().create(path))
        journal.append("open", boot_id="b", start_mono_ns=START_MONO_NS, start_ns=START_NS)
        files = {"_recorder/events.jsonl": (self.path / "_recorder/events.jsonl").stat().st_size}
        positions = {}
        for name, made in self.streams.items():
            journal.append("stream", spec=made.spec.to_wire())
            settled = self.settled(name)
            for entry in settled:
                sample, sent = entry["first_sample"], entry["sent"]
                journal.append("epoch", stream=name, epoch=entry["epoch"], sample=sample)
                journal.append("end", stream=name, epoch=entry["epoch"], sent=sent, reason="")
            position = {"epoch": settled[-1]["epoch"], "samples": len(made.seq)}
            positions[name] = position | {"number": 0, "ended": settled[-1]["ended"], "past": []}
            for file in (self.path / name).iterdir():
                if file.name not in ("meta.json", *made.spec.files):
                    files[f"{name}/{file.name}"] = file.stat().st_size
        journal.commit(t_ns=START_MONO_NS, files=files, streams=positions, events=[])
        if state in ("clean", "recovered"):
            journal.append("close", state=state)
        journal.close()

    def write_header(self, state: str, end_ns: int | None) -> None:
        header = {
            "version": 1,
            "name": self.path.name,
            "state": state,
            "start_ns": START_NS,
            "end_ns": end_ns,
            "start_mono_ns": START_MONO_NS,
            "boot_id": "b",
            "hostname": "rig-1",
            "recorder_version": "0.1.0",
            "metadata": {"vehicle": "rig-1"},
            "sensors": self.sensors,
            "streams": {n: s.spec.to_wire() for n, s in self.streams.items()},
        }
        if state in ("clean", "recovered"):
            header["epochs"] = {n: self.settled(n) for n in self.epochs}
        (self.path / "_recorder" / "session.json").write_text(json.dumps(header))


def gnss_spec(name: str = "gnss") -> StreamSpec:
    channel = ChannelSpec("pos", "raw", "f8", (3,), "latitude, longitude, height", "deg, m")
    return StreamSpec(name, (channel,), rate_hz=10.0)


def build_session(
    path: Path, *specs: StreamSpec, state: str = "clean", plain: bool = False, **how: Any
) -> Builder:
    """Record streams with the same arguments of `Builder.add`, and close the session."""
    builder = Builder(path, plain=plain)
    for spec in specs:
        builder.add(spec, **how)
    builder.close(state)
    return builder


def rewrite_header(session: Path, **values: Any) -> None:
    """Change keys of a session's header."""
    path = session / "_recorder" / "session.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def imu_session(path: Path, seconds: float = 1.0, **more: Any) -> Builder:
    """A session in the making that has an IMU; `more` goes to `Builder.add`."""
    builder = Builder(path)
    builder.add(imu_spec(), seconds, **more)
    return builder


def full_session(path: Path, seconds: float = 1.0, *, plain: bool = False) -> Builder:
    """A clean session of camera, lidar with its IMU, radar and IMU."""
    builder = Builder(path, plain=plain)
    builder.add(camera_spec(), seconds)
    builder.add(lidar_spec(), seconds, offset_ns=3_000_000)
    lidar_imu = replace(imu_spec("lidar_imu"), channels=imu_spec().channels[:2])
    builder.add(lidar_imu, seconds, offset_ns=4_000_000, sensor="lidar", seed=2)
    builder.add(radar_spec(), seconds, offset_ns=5_000_000)
    builder.add(imu_spec(), seconds)
    builder.close()
    return builder


def frames(journal: Path) -> list[bytes]:
    """The bytes of each record of a journal."""
    data = journal.read_bytes()
    return [data[frame.start : frame.end] for frame, _, _ in walk_journal(journal)]
