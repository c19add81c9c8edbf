"""A vehicle with a key, and small sessions that it records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from drivers.kit.driver import Sample
from drivers.kit.encode import Encoder
from recorder.bus.wire import Kind, Message
from recorder.codecs import STORED
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.files import PosixDisk
from recorder.integrity.proof import Proof, Trust
from recorder.integrity.vehicle_key import Signed, make_key
from recorder.integrity.verify import verify
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.checksums import write_checksums
from recorder.session.journal.journal import digest_first_record, walk_journal
from recorder.session.layout import SessionPlan
from tests.manual_clock import ManualClock
from tests.session.build import camera_spec, content, imu_spec

START_NS = 1_717_236_000_000_000_000
SCAN = StreamSpec(
    "scan",
    (
        ChannelSpec("near", "lzmaf", "u2", (4, 64), delta=True),
        ChannelSpec("t_col", "raw", "u8", (64,)),
        ChannelSpec("valid", "lzma", "u1", (2,)),
    ),
    rate_hz=10.0,
    settings={STORED: ["near"]},
)
STREAMS = {spec.name: spec for spec in (camera_spec(), imu_spec(), SCAN)}
COUNT = 4


@dataclass
class Vehicle:
    """Records sessions into a root, signed by its key.

    Attributes:
        root: of the sessions.
        key: the file of its key; None: nothing is signed.
    """

    root: Path
    key: Path | None

    @classmethod
    def make(cls, folder: Path) -> Vehicle:
        return cls(folder / "sessions", make_key(folder / "keys"))

    @property
    def public(self) -> str:
        assert self.key is not None
        return str(self.key.with_suffix(".pub"))

    def begin(
        self, name: str, seed: int = 1, left_out: int | None = None, count: int = COUNT
    ) -> tuple[SessionWriter, ManualClock]:
        """A session with `COUNT` samples of each stream, with leaves, which is still open.

        Args:
            name: of the session.
            seed: of its data and times.
            left_out: a sample of each stream that it does not get.
            count: samples of each stream.
        """
        clock = ManualClock(5_000_000_000 + seed * 60_000_000_000)
        signing = UNSET if self.key is None else str(self.key)
        plan = SessionPlan(
            str(self.root), name, True, "version: 1\n", "sensors: {}\n", min_free_gb=0.001,
            record_format=["imu"], source_start_ns=START_NS + seed * 60_000_000_000,
            signing_key=signing,
        )  # fmt: skip
        writer = SessionWriter.create(PosixDisk(), plan, clock)
        data = {name: _values(spec, seed) for name, spec in STREAMS.items()}
        for spec in STREAMS.values():
            writer.declare(spec)
        at = 0
        for number in range(count):
            clock.advance(0.7)
            if number == left_out:
                continue
            for spec in STREAMS.values():
                t_ns = np.array([clock.monotonic_ns()], np.int64)
                encoder = Encoder(spec)
                sample = {
                    key: values[number : number + 1] for key, values in data[spec.name].items()
                }
                t_dev = t_ns if spec.device_clock else None
                frames, sizes = encoder.encode(Sample(spec.name, t_ns, sample, t_dev_ns=t_dev))
                encoder.close()
                item = Message(Kind.DATA, stream=spec.name, count=1, t_mono_ns=t_ns, sizes=sizes)
                item.t_dev_ns = t_dev
                item.frames, item.epoch, item.number, item.seq = frames, 7, at, number
                writer.append(item)
            writer.commit()
            at += 1
        return writer, clock

    def record(self, name: str, seed: int = 1, left_out: int | None = None) -> Path:
        """A session that was closed."""
        writer, clock = self.begin(name, seed, left_out)
        return self.end(writer, clock, COUNT - (left_out is not None))

    def record_parts(self, *names: str, empty: str | None = None) -> list[Path]:
        """Sessions of which each continues the one before it; `empty` has no sample."""
        paths: list[Path] = []
        before: tuple[SessionWriter, ManualClock, int] | None = None
        for seed, name in enumerate(names, 1):
            count = 0 if name == empty else COUNT
            writer, clock = self.begin(name, seed, count=count)
            if before is not None:
                before[0].record_next(name, digest_first_record(journal(writer.path)))
                paths.append(self.end(*before))
            before = writer, clock, count
        assert before is not None
        return [*paths, self.end(*before)]

    def end(self, writer: SessionWriter, clock: ManualClock, count: int = COUNT) -> Path:
        """Close a session with so many samples of each stream."""
        for spec in STREAMS.values():
            end = Message(Kind.END, spec.name, 7, count, count)
            end.t_mono_ns, end.values = clock.monotonic_ns(), {"reason": "stopped"}
            writer.append(end)
        writer.close("clean")
        write_checksums(writer.path)
        return writer.path


def journal(session: Path) -> Path:
    return session / "_recorder/commits"


def signatures(session: Path) -> list[Signed]:
    found = walk_journal(journal(session))
    return [Signed.from_record(content) for frame, content, _ in found if frame.kind == "sign"]


def faults(vehicle: Vehicle, path: Path | None = None) -> list[str]:
    def of(proof: Proof) -> list[str]:
        return [*proof.faults, *(fault for part in proof.parts for fault in of(part))]

    return of(verify(path or vehicle.root, Trust([vehicle.public])))


def _values(spec: StreamSpec, seed: int) -> dict[str, Any]:
    values = content(spec, COUNT, seed)
    if spec is SCAN:  # what packing makes smaller
        values["near"] = np.sort(values["near"] % 5000, axis=2)
    return values
