"""Import of an NCore sequence: what becomes of each component, and what is lost.

Cameras, lidars, radars, the clouds of untimed lidars and the small streams become sensors
(`recorder.formats.ncore.streams`); poses, models, cuboids, masks, boxes and clouds become the
session's files (`imported_poses`, `imported_labels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from recorder.archives.importing import Contents, PlannedSensor, SessionFile, make_name
from recorder.archives.ncore.imported_labels import file_name, find_files
from recorder.archives.ncore.imported_poses import PoseGraph, read_model
from recorder.common.errors import FormatError
from recorder.formats.datasets import RecordedStream
from recorder.formats.ncore.sequence import STORE, NcoreSequence, is_manifest
from recorder.formats.ncore.streams import CameraStream, find_generic, is_sensor

KIND: Final = "NCore sequence"
DEFAULT: Final = "default"
CALIBRATIONS: Final = "_calibrations"
"""Folder of a session's further calibrations, ``SET.yaml``."""
_SENSORS: Final = {"cameras": "camera", "lidars": "lidar", "radars": "lidar"}
_BECOMES: Final = {
    "lidars": "rays, bit for bit",
    "radars": "detections as points",
    "point_clouds": "points without times",
}
_READ: Final = frozenset(
    {*_SENSORS, "point_clouds", "poses", "intrinsics", "masks", "cuboids", "camera_labels"}
)


def fits(path: Path) -> bool:
    """Return whether a path is a sequence's JSON file, a store, or a folder of them."""
    if path.suffix == ".json":
        return path.is_file() and is_manifest(path)
    if STORE.fullmatch(path.name) is not None:
        return path.exists()
    return path.is_dir() and any(STORE.fullmatch(one.name) for one in path.iterdir())


def read_contents(path: Path) -> Contents:
    """Return what a sequence becomes.

    Raises:
        FormatError: it is damaged, of another version, or a store is missing.
        StorageError: a file cannot be read.
    """
    return _Reader(path).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path, self._sequence = path, NcoreSequence(path)
        sequence = self._sequence
        self._contents = Contents(path, KIND, sequence.start_ns, sequence.stop_ns)
        self._names: dict[str, str] = {}  # by component and instance, the sensor's name
        self._taken: dict[str, str] = {}

    def read(self) -> Contents:
        sequence, contents = self._sequence, self._contents
        for component in sequence.components:
            if component not in _READ:
                for name in sequence.instances(component):
                    contents.lost[f"{component}/{name}"] = "a component that is not known"
        self._add_sensors()
        self._calibrate()
        contents.files += find_files(sequence, self._frame_names(), contents)
        if sequence.metadata:
            contents.notes.append("the sequence's generic metadata are not imported")
        return contents

    def _add_sensors(self) -> None:
        sequence = self._sequence
        self._streams: dict[str, RecordedStream] = {}
        for part, driver in self._find_parts():
            try:
                stream = sequence.stream(part)
            except FormatError as error:
                if "has no frame" not in str(error) and "has no cloud" not in str(error):
                    raise
                self._contents.lost[part] = str(error)
                continue
            name = make_name(part.partition("/")[2], self._taken)
            self._taken[name] = part
            self._names[part] = name
            self._streams[name] = stream
            source = f"ncore:{self._path.absolute()}#{part}"
            becomes = _BECOMES.get(part.partition("/")[0], "samples as they are")
            if isinstance(stream, CameraStream):
                becomes = "pictures, bit for bit" if stream.exact else "pictures"
            planned = PlannedSensor(name, driver, source, part, becomes, len(stream), stream.lost)
            self._contents.sensors.append(planned)

    def _find_parts(self) -> Iterator[tuple[str, str]]:
        """Yield part and driver of each sensor."""
        sequence = self._sequence
        for component, driver in _SENSORS.items():
            for name in sequence.instances(component):
                yield f"{component}/{name}", driver
        for name, clouds in sequence.instances("point_clouds").items():
            if is_sensor(clouds):
                yield f"point_clouds/{name}", "lidar"
        poses = sequence.instance("poses")
        for name, about in ({} if poses is None else find_generic(poses)).items():
            driver = "imu" if about.get("kind") == "imu" else "topics"
            yield f"generic/{name}", driver

    def _frame_names(self) -> dict[str, str]:
        """Return the sensors' names by their frames' names; those of generic streams, too."""
        return {part.partition("/")[2]: name for part, name in self._names.items()}

    def _calibrate(self) -> None:
        """Find mounts, models and the rig's poses, and the sets of further mounts and models."""
        sequence, contents = self._sequence, self._contents
        graph = PoseGraph(sequence)
        contents.calibration, lost = self._describe_sensors(graph, DEFAULT)
        moving = graph.make_poses(sequence.start_ns)
        contents.lost |= lost | graph.lost
        if moving is not None:
            contents.files.append(moving)
        sets = {*sequence.instances("poses"), *sequence.instances("intrinsics")} - {DEFAULT}
        for name in sorted(sets):
            graph = PoseGraph(sequence, name)
            entries, _ = self._describe_sensors(graph, name)
            where = f"poses and intrinsics {name}"
            if not entries:
                contents.lost[where] = "no place of a sensor in the rig, and no model"
                continue
            left = ["its trajectory: that of the instance default"] * graph.moves
            write = partial(_write_calibration, f"{file_name(name)}.yaml", entries)
            text = f"calibration of {', '.join(entries)}"
            contents.files.append(SessionFile(where, text, write, lost=left))

    def _describe_sensors(
        self, graph: PoseGraph, name: str
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Return the entries of a calibration by sensor, and what is lost."""
        intrinsics = self._sequence.instance("intrinsics", name)
        entries: dict[str, dict[str, Any]] = {}
        lost: dict[str, str] = {}
        for part, sensor in self._names.items():
            instance = part.partition("/")[2]
            entry: dict[str, Any] = {}
            pose, problem = graph.find_mount(instance)
            if pose is not None:
                entry["T_sensor_rig"] = graph.describe(pose)
            elif problem is not None and not part.startswith("generic/"):
                lost[f"the mount of {part}"] = problem
            if isinstance(self._streams[sensor], CameraStream) and intrinsics is not None:
                model, problem = read_model(intrinsics, instance)
                if problem is not None:
                    lost[f"the model of {part}"] = problem
                entry |= model
            if entry:
                entries[sensor] = entry
        return entries, lost


def _write_calibration(name: str, entries: Mapping[str, Any], folder: Path) -> None:
    (folder / CALIBRATIONS).mkdir(exist_ok=True)
    text = yaml.safe_dump({"sensors": dict(entries)}, sort_keys=False)
    (folder / CALIBRATIONS / name).write_text(text)
