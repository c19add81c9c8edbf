"""What must hold of a session that was recovered from a crash state."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from recorder.bus.wire import Kind
from recorder.codecs.streams import ChannelSpec
from recorder.common.files import AppendFile, Buffer, buffer_size
from recorder.formats.vrs import LayoutBlock, RecordType, StreamId, VrsReader
from recorder.recording.writer.recovery import RECOVERY
from recorder.session.layout import RECOVERED
from recorder.session.validation import validate
from recorder.session.vrs.files import map_vrs_streams, open_vrs
from recorder.session.vrs.records import StateData
from tests.crash.scenario import (
    SEGMENT_BYTES,
    SPECS,
    History,
    Mark,
    Recording,
    SmallAvi,
    small_layout,
)
from tests.crash.simdisk import Tree

PRIVATE = "_recorder/"


class CrashError(AssertionError):
    """A crash state that does not recover to what was promised."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a recovered session holds.

    Attributes:
        samples: by stream.
        states: by stream, `made` of each state in the log, in order.
        lost: by stream, samples that events count as lost.
    """

    samples: dict[str, int]
    states: dict[str, list[int]]
    lost: dict[str, int]


class Oracle:
    """Holds recovered sessions against what was sent and promised in a recording."""

    def __init__(self, recording: Recording) -> None:
        self._histories = recording.histories
        self._sound: set[bytes] = set()
        self._sent: dict[tuple[int, str], _Sent] = {}
        self._vrs_states: dict[str, list[int]] = {}  # by stream, of the session looked at last

    def look(self, folder: Path, session: Tree, life: int, force: bool = False) -> Found:
        """Read a session; all that is in it must have been sent, in order, and be sound.

        Args:
            folder: the session's.
            session: what is in it.
            life: number of the writer that lived when the crash came.
            force: validate also what was found sound before.
        """
        files = {path: data for path, data in session.walk() if data is not None}
        self._vrs_states.clear()
        events = [json.loads(line) for line in files[PRIVATE + "events.jsonl"].splitlines()]
        self._validate(folder, files, events, force)
        recovered = json.loads(files[PRIVATE + "session.json"])["state"] == RECOVERED
        reported = sum(event["type"] == RECOVERY for event in events)
        if reported != recovered:
            raise CrashError(f"{reported} events tell of the recovery")
        self._vrs(folder, events)
        samples = {}
        for name in SPECS:
            mine = {p.partition("/")[2]: d for p, d in files.items() if p.startswith(name + "/")}
            samples[name] = self._match(name, mine, life) if mine else 0
        states: dict[str, list[int]] = {name: [] for name in SPECS}
        for line in files[PRIVATE + "log.jsonl"].splitlines():
            entry = json.loads(line)
            states[entry["stream"]].append(entry["state"]["made"])
        lost: Counter[str] = Counter()
        for event in events:
            if event["type"] == "lost" and event["count"] is not None:
                lost[event["stream"]] += event["count"]
        return Found(samples, states, dict(lost))

    def _vrs(self, folder: Path, events: list[dict[str, Any]]) -> None:
        """``session.vrs`` tells what the streams' files, the log and the event log tell.

        That its data records are as many as the samples, validation checks.
        """
        with open_vrs(folder) as vrs:
            names = map_vrs_streams({s: v.tags for s, v in vrs.streams.items()})
            reported: Counter[tuple[str, str]] = Counter()
            for name, stream in names.items():
                made, last_s = [], -np.inf
                for record in vrs.records(stream):
                    if record.record_type is RecordType.STATE:
                        state = record.layout(StateData)
                        reported[name, state.kind] += 1
                        if state.kind == "state":
                            made.append(json.loads(state.values)["made"])
                    elif record.record_type is RecordType.CONFIGURATION:
                        last_s = record.timestamp_s
                    elif last_s == -np.inf:
                        raise CrashError(f"session.vrs: {name}: data before its configuration")
                if name in SPECS:
                    self._vrs_data(folder / name, vrs, stream)
                    self._vrs_states[name] = made
        for event in events:
            if not reported[event["stream"] or "", event["type"]] + reported["", event["type"]]:
                raise CrashError(f"session.vrs: no record of {event}")

    def _vrs_data(self, folder: Path, vrs: VrsReader, stream: StreamId) -> None:
        """Every record's number, times and first small channel are the sample's."""
        layouts = [r.blocks()[0] for r in vrs.records(stream, RecordType.DATA)]
        for name, dtype in (("seq", "<u8"), ("t_mono_ns", "<i8")):
            path = folder / name.removesuffix("_ns")
            stored = np.fromfile(path, dtype).tolist() if path.exists() else []
            found = [block[name] for block in layouts if isinstance(block, LayoutBlock)]
            if found[: len(stored)] != stored:
                raise CrashError(f"session.vrs: {folder.name}: {name} {found}, stored: {stored}")

    def hold(self, found: Found, mark: Mark) -> None:
        """Everything that was promised must be there."""
        history = self._histories[mark.life]
        for name, count in mark.promised.items():
            promised = history.get(name, [])[:count]
            samples = sum(m.count or 0 for m in promised if m.kind is Kind.DATA)
            if found.samples[name] < samples:
                raise CrashError(
                    f"{name}: {found.samples[name]} samples, {samples} were acknowledged"
                )
            states = [m.values["made"] for m in promised if m.kind is Kind.STATE]
            if found.states[name][: len(states)] != states:
                raise CrashError(
                    f"{name}: states {found.states[name]} in the log, {states} acknowledged"
                )
            if self._vrs_states.get(name, [])[: len(states)] != states:
                raise CrashError(f"session.vrs: {name}: {self._vrs_states.get(name)}, not {states}")
            lost = sum(m.count or 0 for m in promised if m.kind is Kind.LOST)
            if found.lost.get(name, 0) < lost:
                raise CrashError(
                    f"{name}: events count {found.lost.get(name, 0)} losses, {lost} acknowledged"
                )

    def _validate(
        self, folder: Path, files: dict[str, bytes], events: list[dict[str, Any]], force: bool
    ) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for path, data in files.items():
            if path.startswith(PRIVATE) and not path.endswith("session.json"):
                continue
            digest.update(f"{path}\0{len(data)}\0".encode() + data)
        known = [e for e in events if e["type"] != RECOVERY]
        digest.update(json.dumps(known).encode())
        if digest.digest() in self._sound and not force:
            return
        report = validate(folder, deep=True)
        if not report.sound:
            faults = [p.message for p in report.problems if p.severity == "error"]
            raise CrashError("not sound: " + "; ".join(faults[:3]))
        self._sound.add(digest.digest())

    def _match(self, name: str, files: dict[str, bytes], life: int) -> int:
        """Samples in a stream's files, which must be those of a history, byte for byte."""
        faults = []
        for number in (life, life - 1):  # while one resumes, the one before still shows
            if number < 0:
                continue
            key = (number, name)
            if key not in self._sent:
                self._sent[key] = _Sent(name, self._histories[number])
            fault = self._sent[key].fault(files)
            if fault is None:
                return len(files["ts"]) // 8
            faults.append(fault)
        raise CrashError(f"{name}: {faults[0]}")


class _Sent:
    """A stream as it was sent: the files that any number of its samples make."""

    def __init__(self, name: str, history: History) -> None:
        self._spec = SPECS[name]
        self._messages = [m for m in history.get(name, ()) if m.kind is Kind.DATA]
        counts = [m.count or 0 for m in self._messages]
        self._ends = np.cumsum([0, *counts])

    def fault(self, files: dict[str, bytes]) -> str | None:
        """What is wrong with a stream's files; None where nothing is."""
        if "ts" not in files or len(files["ts"]) % 8:
            return f"ts has {len(files.get('ts', b''))} bytes"
        samples = len(files["ts"]) // 8
        if samples > self._ends[-1]:
            return f"{samples} samples, {self._ends[-1]} were sent"
        if any(np.diff(np.frombuffer(files["ts"], "<f8")) <= 0):
            return "ts does not increase"
        expected = self._files(samples)
        if expected.keys() != files.keys() - {"ts"}:
            return f"files {sorted(files)}, not {sorted(expected)}"
        for file, data in expected.items():
            if files[file] != data:
                return f"{file} is not what was sent ({len(files[file])} bytes, {len(data)} sent)"
        return None

    @functools.cache  # noqa: B019 (as long as the recording lives)
    def _files(self, samples: int) -> dict[str, bytes]:
        spec = self._spec
        declared = spec.meta_files().items()
        files = {name: json.dumps(entries, indent=1).encode() for name, entries in declared}
        files |= {name: text.encode() for name, text in spec.files.items()}
        taken = [m for m, start in zip(self._messages, self._ends, strict=False) if start < samples]
        seqs = [np.arange(m.seq, m.next_seq, dtype="<u8") for m in taken]
        files["seq"] = b"".join(s.tobytes() for s in seqs)[: 8 * samples]
        files["t_mono"] = _times([m.t_mono_ns for m in taken], samples)
        if spec.device_clock:
            files["t_dev"] = _times([m.t_dev_ns for m in taken], samples)
        sizes_at = 0
        for number, channel in enumerate(spec.channels):
            data = b"".join(bytes(m.frames[number]) for m in taken)
            if not channel.variable:
                whole = channel.format == "lzma" or len(data) == samples * channel.sample_bytes
                files[channel.name] = data if whole else data[: samples * channel.sample_bytes]
                if channel.format == "lzma" and samples not in self._ends:
                    files[channel.name] = b"not cut at a message"
                continue
            sizes = np.concatenate([m.sizes[sizes_at] for m in taken] or [np.zeros(0, "<u4")])
            sizes_at += 1
            sizes = sizes[:samples]
            data = data[: int(sizes.sum())]
            if channel.format == "mjpg":
                files[channel.name] = self._video(channel, data, sizes)
            elif channel.format == "h264":
                files[channel.name] = data
                ends = np.cumsum(sizes)
                rows = np.stack([ends - sizes, sizes, np.ones(len(sizes))], axis=-1)  # all are keys
                files[channel.name + "_i"] = rows.astype("<u8").tobytes()
            elif channel.format == "points":
                files[channel.name] = data
                ends = np.cumsum(sizes).tolist()
                counts = [
                    zstandard.get_frame_parameters(data[end - size : end]).content_size
                    // channel.shape[1]
                    for end, size in zip(ends, sizes.tolist(), strict=True)
                ]
                rows = np.stack([ends - sizes, np.array(counts, "<u8")], axis=-1)
                files["points_i"] = rows.astype("<u8").tobytes()
            elif channel.format in ("bytes", "zstdf"):
                files[channel.name] = data
                rows = np.stack([np.cumsum(sizes) - sizes, sizes], axis=-1)
                files[channel.name + "_i"] = rows.astype("<u8").tobytes()
            else:
                files[channel.name] = data
                ends = np.concatenate([[0], np.cumsum(sizes)]).astype("<u8")
                files[channel.name + "_i"] = ends.tobytes()
        return files

    def _video(self, channel: ChannelSpec, data: bytes, sizes: Any) -> bytes:
        file = _Memory()
        layout = small_layout(channel, self._spec.rate_hz)
        file.append(layout.header())
        writer = SmallAvi(file, layout, SEGMENT_BYTES)
        writer.append(data, len(sizes), sizes)
        writer.finish()
        return bytes(file.data)


def _times(times: list[Any], samples: int) -> bytes:
    return b"".join(t.astype("<u8").tobytes() for t in times)[: 8 * samples]


class _Memory(AppendFile):
    """An `AppendFile` in memory."""

    def __init__(self) -> None:
        self.path = Path("video.avi")
        self.data = bytearray()
        self.length = 0
        self.dirty = False

    def append(self, data: Buffer) -> None:
        self.data += data
        self.length += buffer_size(data)

    def flush(self) -> None:
        pass

    def patchable(self, offset: int, size: int) -> None:
        return

    def verify_in_place(self) -> None:
        return

    def patch(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass
