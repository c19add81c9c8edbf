"""Writing of a clip with the recording code, from recorded bytes that are not encoded again.

In channels whose samples were compressed together (``lzma``), only the blocks at the edges of the
clip are compressed again.
"""

from __future__ import annotations

import contextlib
import heapq
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import UNSET, structs

from recorder.bus.messages import SessionPlan
from recorder.bus.wire import Kind, Message
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, StorageError, UsageError
from recorder.common.files import PosixDisk
from recorder.config.names import MAX_NAME, PART, check_name
from recorder.integrity.vehicle_key import VehicleKey
from recorder.recording.clip.proving import OriginProver
from recorder.recording.clip.recorded import (
    Incident,
    State,
    StreamFeed,
    get_time_ns,
    read_incidents,
    read_states,
)
from recorder.recording.clip.session_copy import ClipClock, ClipSessionWriter
from recorder.recording.clip.sources import (
    describe_origins,
    find_overlapping_events,
    offset_ns,
    open_sources,
    read_calibration,
)
from recorder.session import layout
from recorder.session.checksums import write_checksums
from recorder.session.incidents import END
from recorder.session.lock import lock_is_held
from recorder.session.loss_accounts import group_lost_events
from recorder.session.part import Part
from recorder.session.playback import Chunk, play, recorded_spec
from recorder.session.reader import Session
from recorder.session.replay import create_message
from recorder.session.session_part import SessionPart
from recorder.session.stream import Stream

_COMMIT_NS = 1_000_000_000
_KEPT = ("driver", "source", "max_incomplete")
"""Keys of a sensor's entry in ``session.json`` that a clip keeps."""
Progress = Callable[[float], None]
"""Callback that receives the written share of the clip, 0 to 1."""


@dataclass(frozen=True)
class Clip:
    """A finished clip.

    Attributes:
        session: the clip's folder.
        start_ns, end_ns: epoch ns.
        samples: sample counts by stream.
        bytes: total size of the files.
        notes: remarks about the content, such as streams that are not in the clip.
    """

    session: Path
    start_ns: int
    end_ns: int
    samples: Mapping[str, int]
    bytes: int
    notes: Sequence[str]


def write_clip(
    paths: Sequence[Path],
    part: Part,
    out: Path,
    name: str | None = None,
    progress: Progress = lambda _: None,
    signing_key: Path | None = None,
) -> Clip:
    """Cut sessions into a new session, which appears only when it is complete.

    Args:
        paths: closed sessions; several must be parts of one recording or follow each other.
        part: the interval and the streams; a part without limits merges the sessions.
        out: folder in which the clip is created; created if it is missing.
        name: name of the clip; None: built from the session's name and the interval, with a number
            if the name exists.
        progress: see `Progress`.
        signing_key: file of the key that signs the clip; None: the clip is not signed.

    Raises:
        UsageError: the name exists or is not valid, a session is given twice, the key cannot be
            used.
        SessionError: the sessions cannot be cut, or do not fit together; see `open_sources`.
        FormatError: a channel's bytes do not fit its format.
        StorageError: the clip cannot be written; nothing of it is left.
    """
    sources = open_sources(paths, part)
    with contextlib.ExitStack() as stack:
        for source in sources:
            stack.callback(source.close)
        origins = describe_origins(sources, paths)
        if name is None:
            name = _find_free_name(out, _default_name(sources, part))
        elif (out / check_name(name)).exists():
            raise UsageError(f"{out / name}: exists")
        staging = out / f".{name}.clip"
        try:
            _clear(staging)
            plan = _plan(sources, origins, part, staging, name)
            if signing_key is not None:
                VehicleKey(signing_key)
                plan = structs.replace(plan, signing_key=str(signing_key.resolve()))
            made = _Cutter(sources, origins, plan, progress).run()
            write_checksums(made.session)
            PosixDisk().rename(made.session, out / name)
            staging.rmdir()
        except OSError as error:
            shutil.rmtree(staging, ignore_errors=True)
            reason = f"{error.filename or out}: {error.strerror or error}"
            raise StorageError(f"{reason}; nothing of the clip is left") from error
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    return Clip(out / name, made.start_ns, made.end_ns, made.samples, made.bytes, made.notes)


def _default_name(sources: Sequence[SessionPart], part: Part) -> str:
    name = sources[0].name
    if len(sources) > 1:
        name = PART.sub("", name)
    if not part.is_whole:
        name = f"{name[: MAX_NAME // 2]}_{part.folder}"
    return name[: MAX_NAME - 4]


def _clear(staging: Path) -> None:
    """Remove the files of a killed clip; raise StorageError while another process writes them."""
    for folder in staging.glob("*"):
        if lock_is_held(layout.private(folder, layout.LOCK)):
            raise StorageError(f"{folder}: is being written by another command")
    if staging.exists():
        shutil.rmtree(staging)


def _find_free_name(out: Path, name: str) -> str:
    """Return the first free name of NAME, NAME_2, ...."""
    number, free = 1, name
    while (out / free).exists():
        number += 1
        free = f"{name[: MAX_NAME - 6]}_{number}"
    return free


def _plan(
    sources: Sequence[SessionPart],
    origins: Mapping[Path, dict[str, Any]],
    part: Part,
    root: Path,
    name: str,
) -> SessionPlan:
    """Build the clip's plan: settings of the first session, and the origin."""
    first = sources[0]
    header, streams = first.header or {}, _streams(sources)
    calibrations = [text for source in sources if (text := read_calibration(source)) is not None]
    sensors: dict[str, dict[str, Any]] = {}
    for source in sources:
        for sensor, entry in ((source.header or {}).get("sensors") or {}).items():
            chosen = [stream for stream in entry.get("streams") or () if stream in streams]
            if chosen:  # without `live`: the recorded events show silent and slow sensors
                kept = {key: entry[key] for key in _KEPT if key in entry}
                before = sensors.get(sensor, {}).get("streams", [])
                sensors[sensor] = {**kept, "streams": sorted({*before, *chosen})}
    vrs = header.get("record_format")
    wanted = streams if part.streams is None else part.streams
    is_whole = streams == _streams([source.whole for source in sources])
    begin_ns, end_ns = _interval(sources)
    return SessionPlan(
        root=str(root),
        name=name,
        exact_name=True,
        config_text=(first.path / "config.yaml").read_text("utf-8"),
        calibration_text=calibrations[0] if calibrations else None,
        metadata=dict(header.get("metadata") or {}),
        sensors=sensors,
        record_format=None if vrs is None else [s for s in vrs["streams"] if s in streams],
        record_compression=(vrs or {}).get("compression", UNSET),
        origin={
            "kind": "merge" if part.is_whole else "clip",
            "from_ns": begin_ns,
            "until_ns": end_ns,
            "streams": None if is_whole else [name for name in wanted if name in streams],
            "lead_in": {name: n for source in sources for name, n in source.lead_ins.items()},
            "sessions": list(origins.values()),
            "events": find_overlapping_events(sources),
        },
    )


def _interval(sources: Sequence[SessionPart]) -> tuple[int | None, int | None]:
    """Return the interval of a clip, epoch ns; None for an end outside the sessions."""
    begin_ns, end_ns = sources[0].interval_ns
    starts = [source.whole.start_ns for source in sources]
    ends = [source.whole.end_ns for source in sources]
    if begin_ns is not None and all(start is not None and begin_ns < start for start in starts):
        begin_ns = None
    if end_ns is not None and all(end is not None and end < end_ns for end in ends):
        end_ns = None
    return begin_ns, end_ns


def _streams(sessions: Sequence[Session]) -> list[str]:
    """Return the sorted names of recorded streams with samples in sessions or parts."""
    names = {n for s in sessions for n, stream in s.streams.items() if _has_samples(stream)}
    return sorted(name for name in names if not name.startswith("_"))


def _has_samples(stream: Stream) -> bool:
    """Return whether a stream has samples; assume so for a damaged one."""
    try:
        return len(stream) > 0
    except FormatError:
        return True


class _Cutter:
    """Writer of one clip's session."""

    def __init__(
        self,
        sources: Sequence[SessionPart],
        origins: Mapping[Path, dict[str, Any]],
        plan: SessionPlan,
        progress: Progress,
    ) -> None:
        self._sources, self._origins = sources, origins
        self._plan, self._progress = plan, progress
        self._offset_ns = offset_ns(sources[0])
        starts = [source.start_ns for source in sources if source.start_ns is not None]
        ends = [source.end_ns for source in sources if source.end_ns is not None]
        self._start_ns, self._end_ns = min(starts), max(ends)
        self._clock = ClipClock(self._start_ns - self._offset_ns, self._offset_ns)
        self._number: dict[str, int] = {}
        self._samples: dict[str, int] = {}
        self._firsts: list[dict[str, int]] = []  # by source, the samples of each stream before it
        self._epochs: dict[str, int] = {}  # latest epoch of each stream of the clip
        self._commit_ns = 0

    def run(self) -> Clip:
        streams, notes = _streams(self._sources), []
        provers = self._make_provers()
        for source in self._sources:
            notes += [f"{n}: has no sample in {source.name}" for n in source.empty]
        notes += [
            f"{name}: begins {count} pictures before the clip, with a keyframe"
            for source in self._sources
            for name, count in source.lead_ins.items()
        ]
        processed = {n for s in self._sources for n in s.streams if n.startswith("_")}
        notes += [f"{n}: was created after the recording and is not cut" for n in sorted(processed)]
        writer = ClipSessionWriter.create(PosixDisk(), self._plan, self._clock)
        try:
            for name in streams:
                stream = next(s.streams[name] for s in self._sources if name in s.streams)
                writer.declare(recorded_spec(stream), self._find_sensor(name))
            for source in self._sources:
                self._copy(writer, source)
            self._prove(writer, provers)
            self._clock.advance(self._end_ns - self._offset_ns)
            writer.event(END, cause="clip")
            writer.close(layout.CLEAN, self._end_ns)
        except BaseException:
            with contextlib.suppress(OSError):
                writer.abandon()
            raise
        size = sum(path.stat().st_size for path in writer.path.rglob("*") if path.is_file())
        return Clip(writer.path, self._start_ns, self._end_ns, self._samples, size, notes)

    def _make_provers(self) -> dict[str, tuple[int, OriginProver]]:
        """Return the source number and the prover of each provable source, by proof file name."""
        found, names = {}, _streams(self._sources)
        for number, source in enumerate(self._sources):
            origin = self._origins[source.path]
            prover = OriginProver.create(source, names, origin["signed"], self._offset_ns)
            if prover is not None:
                origin["proof"] = f"origin-{number + 1}.proof"
                found[origin["proof"]] = number, prover
        return found

    def _prove(
        self, writer: ClipSessionWriter, provers: Mapping[str, tuple[int, OriginProver]]
    ) -> None:
        """Write the proof of each source's samples."""
        files = {name: writer.attach(name) for name in provers}
        writer.commit()
        for name, (number, prover) in provers.items():
            prover.write(writer.path, files[name], self._firsts[number])

    def _find_sensor(self, stream: str) -> str:
        for sensor, entry in self._plan.sensors.items():
            if stream in entry["streams"]:
                return sensor
        return stream

    def _copy(self, writer: ClipSessionWriter, source: SessionPart) -> None:
        """Append the samples, states and events of a session's interval, in order of time."""
        self._firsts.append(dict(self._samples))
        names = [n for n in _streams([source]) if n in source.streams]
        lost = group_lost_events(source.whole.events())
        feeds = {n: StreamFeed(n, source, lost.get(n, []), source.interval_of(n)) for n in names}
        specs = {n: recorded_spec(source.streams[n]) for n in names}
        for feed in feeds.values():
            feed.shift = max(0, self._epochs.get(feed.name, 0) + 1 - feed.first_epoch)
        losses = [
            Incident(int(event["t_ns"]), event | {"epoch": cut.epoch + feed.shift})
            for feed in feeds.values()
            for cut in feed.cuts
            for event in cut.losses
        ]
        self._commit_ns = self._clock.monotonic_ns()
        for item in heapq.merge(
            read_incidents(source, set(names), self._start_ns),
            sorted(losses, key=get_time_ns),
            play(source, names),
            read_states(source, set(names)),
            key=get_time_ns,
        ):
            match item:
                case Incident(event={"type": "lost", "stream": str(stream)}):
                    writer.repeat_loss(stream, item.event)
                case Incident():
                    writer.record_event(item.event)
                case Chunk():
                    self._copy_samples(writer, feeds[item.stream], item, specs[item.stream])
                case State():
                    feeds[item.stream].waiting.append(item)
                    self._copy_states(writer, feeds[item.stream])
        for feed in feeds.values():
            feed.end(writer)
            self._epochs[feed.name] = feed.epoch
        writer.commit()

    def _copy_samples(
        self, writer: ClipSessionWriter, feed: StreamFeed, chunk: Chunk, spec: StreamSpec
    ) -> None:
        at = feed.stream.first + chunk.start
        feed.begin(writer, at)
        message = create_message(_restore_blocks(feed.stream, chunk), spec)
        times = feed.stream.whole.channels["t_mono"].read(at, at + len(chunk.t_ns))
        message.t_mono_ns = times.astype("<i8")
        self._samples[feed.name] = self._samples.get(feed.name, 0) + len(times)
        self._append(writer, feed, message, int(times[-1]))
        self._copy_states(writer, feed)

    def _copy_states(self, writer: ClipSessionWriter, feed: StreamFeed) -> None:
        """Append the waiting states once the stream has an epoch."""
        while feed.is_open and feed.waiting:
            state = feed.waiting.pop(0)
            mono_ns = state.t_ns - self._offset_ns
            message = Message(Kind.STATE, stream=feed.name, t_mono_ns=mono_ns, values=state.values)
            self._append(writer, feed, message, mono_ns)

    def _append(
        self, writer: ClipSessionWriter, feed: StreamFeed, message: Message, mono_ns: int
    ) -> None:
        message.epoch = feed.epoch
        message.number = self._number.get(feed.name, 0)
        self._number[feed.name] = message.number + 1
        writer.append(message)
        self._clock.advance(mono_ns)
        if (now_ns := self._clock.monotonic_ns()) - self._commit_ns >= _COMMIT_NS:
            writer.commit()
            self._commit_ns = now_ns
            done_ns = now_ns + self._offset_ns - self._start_ns
            self._progress(min(1.0, done_ns / max(1, self._end_ns - self._start_ns)))


def _restore_blocks(stream: Stream, chunk: Chunk) -> Chunk:
    """Return the chunk with the recorded blocks of channels that were compressed in blocks."""
    span = chunk.start, chunk.start + len(chunk.t_ns)
    found = {name: stream.channels[name].block(*span) for name in chunk.data}
    blocks = {name: [block] for name, block in found.items() if block is not None}
    return replace(chunk, data={**chunk.data, **blocks})
