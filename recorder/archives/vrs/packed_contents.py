"""What a session that the recorder packed as a VRS file becomes when it is imported: itself.

Sensors are played with all channels and states; poses, labels and the calibration come back, too.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from recorder.archives.importing import Contents, PlannedSensor, SessionFile
from recorder.archives.vrs.labels import LabelData, PoseData
from recorder.common.errors import FormatError
from recorder.config.names import STREAM_NAME
from recorder.formats.vrs import RecordType
from recorder.perception.geometry import rotation_of_quaternion
from recorder.perception.labels import BOXES, CUBOIDS
from recorder.perception.recorded_poses import Trajectory, write_poses
from recorder.session.vrs.packed import PackedSession

KIND: Final = "session packed as VRS"
_METADATA: Final = "metadata."


def read_packed_session(path: Path) -> Contents:
    """Return what a packed session becomes.

    Raises:
        FormatError: it cannot be read.
    """
    with PackedSession(path) as packed:
        ends = packed.vrs.timestamps_s(types=RecordType.DATA)
        contents = Contents(path, KIND, packed.origin_ns, round(float(ends[-1]) * 1e9))
        counts = packed.vrs.counts()
        for name, sensor in packed.sensors.items():
            ids = [packed.streams[stream].id for stream in sensor.streams]
            contents.sensors.append(
                PlannedSensor(
                    name,
                    sensor.driver or "topics",
                    f"session:{path.absolute()}#{name}",
                    ", ".join(map(str, ids)),
                    f"as recorded: {', '.join(sensor.streams)}",
                    sum(counts.get((stream, RecordType.DATA), 0) for stream in ids),
                )
            )
        contents.lost |= packed.broken
        _add_files(packed, contents)
        _note_losses(packed, contents)
    return contents


def _add_files(packed: PackedSession, contents: Contents) -> None:
    """Add poses, labels and the calibration."""
    counts = packed.vrs.counts()
    for name, stream in packed.names.items():
        if not name or not packed.is_extra(stream):
            continue
        count = counts.get((stream, RecordType.DATA), 0)
        origin = f"{stream} ({name})"
        folder, _, file = name.partition("/")
        if name.startswith("_") and not file:
            complete = partial(_write_poses, contents.path, name)
            contents.files.append(SessionFile(origin, f"{count} poses", complete=complete))
        elif folder in (CUBOIDS, BOXES) and STREAM_NAME.fullmatch(file):
            prepare = partial(_write_labels, contents.path, name)
            contents.files.append(SessionFile(origin, f"labels of {count} times", prepare))
        else:
            contents.lost[origin] = "streams of this kind are not imported"
    if (text := packed.vrs.tags.get("calibration")) is not None:
        try:
            contents.calibration = dict(yaml.safe_load(text)["sensors"])
        except (yaml.YAMLError, TypeError, ValueError, KeyError, RecursionError):
            contents.lost["calibration"] = "cannot be read"


def _note_losses(packed: PackedSession, contents: Contents) -> None:
    """Name what the new session does not have."""
    events = packed.vrs.counts().get((packed.names[""], RecordType.STATE), 0)
    if events:
        contents.lost["events of the session"] = f"{events} marks, clock steps and incidents"
    metadata = [tag.removeprefix(_METADATA) for tag in packed.vrs.tags if tag.startswith(_METADATA)]
    if metadata:
        contents.lost["metadata"] = ", ".join(metadata)
    if packed.vrs.tail is not None:
        contents.notes.append(f"the file is not whole: {packed.vrs.tail}")


def _write_labels(path: Path, name: str, folder: Path) -> None:
    """Write a file of labels; raise a FormatError if they cannot be read."""
    target = folder / f"{name}.jsonl"
    target.parent.mkdir(exist_ok=True)
    with PackedSession(path) as packed, target.open("w") as file:
        stream = packed.names[name]
        header = _parse(packed.vrs.streams[stream].tags["header"], path, dict)
        file.write(json.dumps(header) + "\n")
        for record in packed.vrs.records(stream, RecordType.DATA):
            for label in _parse(record.layout(LabelData).labels, path, list):
                file.write(json.dumps(label) + "\n")


def _parse(text: str, path: Path, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise FormatError(f"{path}: labels that are no JSON {kind.__name__}: {text!r:.60}")
    return value


def _write_poses(path: Path, name: str, session: Path) -> None:
    """Write the poses as those of the new session."""
    with PackedSession(path) as packed:
        stream, offset_ns = packed.names[name], packed.offset_ns
        records = packed.vrs.records(stream, RecordType.DATA)
        count = len(packed.vrs.numbers(stream, RecordType.DATA))
        t_ns, poses = np.empty(count, np.int64), np.tile(np.eye(4), (count, 1, 1))
        for at, record in enumerate(records):
            pose = record.layout(PoseData)
            t_ns[at] = pose.t_mono_ns + offset_ns
            poses[at, :3, 3] = pose.position
            poses[at, :3, :3] = rotation_of_quaternion(pose.quaternion)
    write_poses(session, Trajectory("rig", "world", [name], t_ns, poses))
