"""Attachments, metadata records, events, poses and labels of a session in an MCAP file."""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import recorder
from recorder.archives.context import PackingContext
from recorder.archives.mcap.topics import EVENTS, LOSSES, MARKS, Entry, Feed, Profile, Topic
from recorder.archives.shared_options import UnplacedKeys
from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.config.yaml_lines import shareable_text
from recorder.formats.mcap import Schema
from recorder.formats.mcap.writer import McapWriter
from recorder.perception.calibration import Calibration
from recorder.perception.labels import LabelFile, Lines
from recorder.perception.poses import Block, Identity, PoseSource, find_poses
from recorder.session.event_clips import KeptEvent
from recorder.session.playback import recorded_spec
from recorder.session.vrs.records import TIME_DOMAIN, as_json, as_text, map_drivers

PUBLISH_TIME = (
    "epoch ns at which the sample was durable on the recorder's disk (commit of the session's "
    "journal); the log time where that is unknown"
)
_PACKAGES = ("mcap", "foxglove-sdk", "ouster-sdk", "numpy", "zstandard")
_TYPES = {".yaml": "application/yaml", ".json": "application/json"}
_NUMBER, _TEXT = {"type": ["integer", "null"]}, {"type": ["string", "null"]}


def _schema(name: str, title: str, **properties: Mapping[str, Any]) -> Schema:
    known = {"t_ns": {"type": "integer", "description": "epoch ns"}, **properties}
    schema = {"title": name, "description": title, "type": "object", "properties": known}
    return Schema(name, "jsonschema", as_json(schema).encode())


LOSS = _schema(
    "recorder.Loss",
    "Samples that were lost; without a count, an interval in which samples may be lost.",
    stream=_TEXT,
    cause=_TEXT,
    first_seq=_NUMBER,
    last_seq=_NUMBER,
    count=_NUMBER,
    estimate=_NUMBER,
    duration_ns=_NUMBER,
)
MARK = _schema("recorder.Mark", "A mark that a person set while recording.", text=_TEXT)

KEPT_EVENT = _schema(
    "recorder.Event",
    "A moment of which some seconds before and after are kept.",
    id={"type": "string"},
    text={"type": "string"},
    trigger=_TEXT,
    from_ns={"type": "integer", "description": "start of the promised window, epoch ns"},
    until_ns={"type": "integer", "description": "end of the promised window, epoch ns"},
    state={"enum": ["open", "kept", "short"]},
    parts={"type": "array", "items": {"type": "string"}},
    shortfalls={
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "from_ns": {"type": "integer"},
                "until_ns": {"type": "integer"},
                "stream": _TEXT,
                "cause": {"type": "string"},
            },
        },
    },
)


def attach_files(context: PackingContext, writer: McapWriter, log_ns: int) -> list[str]:
    """Attach the configuration, the calibration and the intrinsics; return the names.

    Args:
        context: the session's context.
        writer: writer of the file.
        log_ns: start of the session, epoch ns.
    """
    files: dict[str, bytes] = {}
    path = context.session.path
    if (path / "config.yaml").is_file():
        text = _read(path / "config.yaml").decode("utf-8", "surrogateescape")
        files["config.yaml"] = shareable_text(text).encode("utf-8", "surrogateescape")
    if context.calibration.path is not None:
        files["calibration.yaml"] = _read(Path(context.calibration.path))
    for stream in context.streams:
        with context.locate_errors(stream.name):
            for name, text in recorded_spec(stream).files.items():
                files[f"{stream.name}/{name}"] = text.encode("utf-8", "replace")
    for name, data in files.items():
        kind = _TYPES.get(Path(name).suffix, "application/octet-stream")
        writer.attach(name, kind, data, log_ns, 0)
    return list(files)


def metadata_records(
    context: PackingContext, profile: str, lost: Mapping[str, Any], events: Sequence[KeptEvent] = ()
) -> dict[str, dict[str, str]]:
    """Return the metadata records by name.

    ``foxglove`` has ``deviceName``, which Foxglove's upload service needs; ``recorder`` describes
    the session.  Both contain texts only; other values are stored as JSON.

    Args:
        context: the session's context.
        profile: name of the profile.
        lost: losses by stream, as `SessionNotes.add_losses` returns them.
        events: the events that are packed.
    """
    session = context.session
    header = session.header or {}
    device = session.metadata.get("vehicle") or header.get("hostname") or session.name
    values: dict[str, Any] = {
        "session": session.name,
        "state": session.state,
        "profile": profile,
        "start_ns": session.start_ns,
        "end_ns": session.end_ns,
        "hostname": header.get("hostname") or "",
        "recorder_version": header.get("recorder_version") or "",
        "packed_by": f"recorder {recorder.__version__}",
        "packed_with": {"python": platform.python_version(), **_versions()},
        "metadata": dict(session.metadata),
        "drivers": map_drivers(header.get("sensors") or {}),
        "losses": dict(lost),
        "clocks": _clock_states(context),
        "time_domain": TIME_DOMAIN,
        "publish_time": PUBLISH_TIME,
        **_calibration(context.calibration),
    }
    if context.redaction:
        values["redaction"] = dict(context.redaction)
    if events:
        values["events"] = msgspec.to_builtins(events)
    if not session.part.is_whole:
        values["part"] = str(session.part)
    return {"foxglove": _texts({"deviceName": str(device)}), "recorder": _texts(values)}


def event_feed(context: PackingContext, profile: Profile) -> Feed:
    """Return the feed of the session's events; losses and marks are also in their own topics.

    Raises:
        FormatError: the events cannot be read; within `PackingContext.locate_errors`.
    """
    losses, marks = profile.json_topic(LOSSES, LOSS), profile.json_topic(MARKS, MARK)
    with context.locate_errors("events"):
        # The log is only nearly in order: an event is logged when no other can be merged into it.
        events = sorted(
            (event["t_ns"], as_json(event))
            for event in context.session.events()
            if isinstance(event.get("t_ns"), int) and event["t_ns"] >= 0
        )

    def entries() -> Generator[Entry]:
        counts = {LOSSES: 0, MARKS: 0}
        for number, (t_ns, text) in enumerate(events):
            event = json.loads(text)
            made = profile.event(event)
            yield Entry(made.topic, t_ns, t_ns, number, made.parts)
            topic = {"lost": LOSSES, "mark": MARKS}.get(str(event.get("type")))
            if topic is not None:
                yield Entry(topic, t_ns, t_ns, counts[topic], profile.json_parts(text))
                counts[topic] += 1

    topics: list[Topic] = [profile.log, losses, marks]
    return Feed("", topics, entries, "events")


def kept_events(context: PackingContext) -> list[KeptEvent]:
    """Return the events whose windows overlap the packed part, by time.

    Raises:
        FormatError: their file cannot be read; within `PackingContext.locate_errors`.
    """
    begin_ns, end_ns = _packed_ns(context)
    with context.locate_errors("events"):
        return [
            event
            for event in context.session.kept_events()
            if event.until_ns >= begin_ns and (end_ns is None or event.from_ns <= end_ns)
        ]


def kept_event_feed(profile: Profile, context: PackingContext, events: Sequence[KeptEvent]) -> Feed:
    """Return the feed of events, a message for each at its time.

    An event may lie outside of the packed part, which then holds only the seconds before or after
    the event.  Its log time is the nearer end of the part, so that no message extends the file's
    time.
    """
    begin_ns, end_ns = _packed_ns(context)
    topic = profile.json_topic(EVENTS, KEPT_EVENT)

    def entries() -> Generator[Entry]:
        for number, event in enumerate(events):
            t_ns = max(event.t_ns, begin_ns)
            t_ns = t_ns if end_ns is None else min(t_ns, end_ns)
            text = as_json(msgspec.to_builtins(event))
            yield Entry(EVENTS, t_ns, t_ns, number, profile.json_parts(text))

    return Feed("", [topic], entries, "kept events")


def find_rig_poses(context: PackingContext) -> PoseSource | None:
    """Return the poses of the rig; None if they are not known."""
    with context.locate_errors("poses"):
        source = find_poses(context.session.whole, context.calibration)
    return None if isinstance(source, Identity) else source


def packed_poses(context: PackingContext, source: PoseSource) -> Iterator[Block]:
    """Yield the poses of the packed part."""
    for t_ns, poses in context.locate_items("poses", source.blocks()):
        inside = np.fromiter(map(context.contains, t_ns.tolist()), np.bool_, len(t_ns))
        if inside.any():
            yield t_ns[inside], poses[inside]


def label_feed(
    context: PackingContext,
    topic: Topic,
    file: LabelFile,
    encode: Callable[[int, Lines], Sequence[Buffer]],
    unplaced: UnplacedKeys | None = None,
) -> Feed:
    """Return the feed of a file's labels in the packed part, a message for each time.

    Args:
        context: the session's context.
        topic: the topic of the messages.
        file: the labels.
        encode: encodes the labels of one time, epoch ns.
        unplaced: counts keys that the messages lack; they are noted after the last message.
    """
    subject = topic.name.strip("/")

    def encode_all() -> Iterator[tuple[int, Sequence[Buffer]]]:
        for t_ns, lines in file.by_time():
            if context.contains(t_ns):
                if unplaced is not None:
                    for _, label in lines:
                        unplaced.count(label)
                yield t_ns, encode(t_ns, lines)

    def entries() -> Generator[Entry]:
        for number, (t_ns, parts) in enumerate(context.locate_items(subject, encode_all())):
            yield Entry(topic.name, t_ns, t_ns, number, parts)
        if unplaced is not None:
            unplaced.note(context, f"{file.path.parent.name}/{file.path.name}")

    return Feed("", [topic], entries, subject)


def first_ns(context: PackingContext) -> int:
    """Return the log time of constant data: the first stamp of the packed samples."""
    first = context.session.first_ns
    return max(0, (context.session.start_ns if first is None else first) or 0)


def _packed_ns(context: PackingContext) -> tuple[int, int | None]:
    """Return start and end of the packed part, epoch ns; the end is None if it is not known."""
    session = context.session
    begin_ns, end_ns = session.start_ns or 0, session.end_ns
    return max(0, session.interval_ns[0] or begin_ns), session.interval_ns[1] or end_ns


def _clock_states(context: PackingContext) -> dict[str, Any]:
    """Return the newest state of the host's clocks, and the number of steps."""
    state: dict[str, Any] = {}
    steps = 0
    with context.locate_errors("events"):
        for event in context.session.events():
            if event.get("type") == "clock":
                steps += event.get("cause") == "step"
                if event.get("cause") == "state":
                    known = ("type", "stream", "cause", "first_seq", "last_seq", "count")
                    state = {k: v for k, v in event.items() if k not in known}
    return {"steps": steps, "last_state": state}


def _versions() -> dict[str, str]:
    """Return the versions of the installed packages that packing uses."""
    found = {}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _calibration(calibration: Calibration) -> dict[str, str]:
    if calibration.path is None:
        return {}
    return {"calibration_sha256": str(calibration.sha256)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        as_text(key): as_text(value if isinstance(value, str) else as_json(value))
        for key, value in values.items()
    }
