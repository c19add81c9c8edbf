"""Import of an EdgeFirst dataset: what becomes of its files and its table, and what is lost.

A recording of it becomes a session: the sequences of one session of this recorder's packer, or one
sequence of another program.  Files become sensors (`recorder.formats.edgefirst.streams`), rows the
session's labels, masks and orientations (`imported_rows`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from recorder.archives.edgefirst.imported_rows import CameraFrames, find_files
from recorder.archives.edgefirst.imported_table import ImportedTable
from recorder.archives.importing import Contents, PlannedSensor, make_name
from recorder.common.errors import FormatError
from recorder.formats.edgefirst.files import EdgeFirstDataset, find_root
from recorder.formats.edgefirst.streams import CameraStream, PointStream
from recorder.perception.geometry import Floats, is_rotation, quaternion_of_rotation

KIND: Final = "EdgeFirst dataset"
_NO_PLACE: Final = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
_LOST: Final = {
    "lidar.png": "pictures of the lidar's ranges: the points have them",
    "lidar.jpeg": "pictures of the lidar's reflectivity: the points have it",
    "depth.png": "depth in pictures, which was projected from the points",
}
_BECOMES: Final = {
    "lidar": "points",
    "radar": "detections as points",
    "cube": "cubes, bit for bit",
    "location": "positions",
}
_DRIVERS: Final = {"lidar": "lidar", "radar": "lidar", "cube": "mmwave", "location": "gnss"}
_ENDINGS: Final = {"lidar": "lidar.pcd", "radar": "radar.pcd", "cube": "radar.png"}


def fits(path: Path) -> bool:
    """Return whether a path is a dataset's folder, container or table."""
    return find_root(path) is not None


def read_contents(path: Path, sequence: str | None = None) -> Contents:
    """Return what a recording of a dataset becomes.

    Args:
        path: the dataset's folder, container or table.
        sequence: one of its recordings or sequences; None: the only one.

    Raises:
        FormatError: the dataset is damaged, or has several recordings.
    """
    with EdgeFirstDataset(path) as dataset:
        return _Reader(path, dataset, sequence).read()


class _Reader:
    def __init__(self, path: Path, dataset: EdgeFirstDataset, wanted: str | None) -> None:
        self._path, self._dataset = path, dataset
        self._table = ImportedTable(dataset.root)
        self._facts: Mapping[str, Any] = {}
        self._sequences = self._choose(wanted)
        start_ns = min(dataset.begin_ns(name) for name in self._sequences)
        self._contents = Contents(path, KIND, start_ns, start_ns)
        self._names: dict[str, str] = {}

    def _choose(self, wanted: str | None) -> dict[str, str]:
        """Return the sequences of the chosen recording, with the names of their cameras."""
        known = {name: {name: ""} for name in self._dataset.sequences}
        facts: dict[str, Mapping[str, Any]] = {}
        for entry in self._table.recordings():
            own = {name: camera for camera, name in entry["sequences"].items() if name in known}
            for name in own:
                del known[name]
            if own:
                known[entry["base"]] = own
                facts[entry["base"]] = entry
        if not known:
            raise FormatError(f"{self._path}: has no picture, lidar or radar file")
        if wanted is None and len(known) == 1:
            wanted = next(iter(known))
        names = ", ".join(sorted(known))
        if wanted is None:
            text = f"has {len(known)} recordings: choose one with --sequence: {names:.500}"
            raise FormatError(f"{self._path}: {text}")
        if wanted not in known:
            raise FormatError(f"{self._path}: has no recording {wanted!r:.100}: {names:.500}")
        self._facts = facts.get(wanted, {})
        return known[wanted]

    def read(self) -> Contents:
        contents, dataset = self._contents, self._dataset
        cameras = list(self._add_cameras())
        for kind, ending in _ENDINGS.items():
            self._add_files(kind, ending)
        if cameras:
            self._add(self._best("camera.jpeg"), "location", "location")
        endings = Counter(
            ending
            for name in self._sequences
            for files in dataset.sequences[name].values()
            for ending in files
        )
        for ending, why in _LOST.items():
            if endings[ending]:
                contents.lost[f"{endings[ending]} files .{ending}"] = why
        if dataset.others:
            contents.lost[f"{dataset.others} files"] = "of no sample"
        times = [camera.t_ns[-1] for camera in cameras if len(camera.t_ns)]
        contents.end_ns = max([contents.start_ns, *times])
        contents.files += find_files(self._table, cameras, contents)
        return contents

    def _add_cameras(self) -> Iterator[CameraFrames]:
        for sequence, name in self._sequences.items():
            stream = self._add(sequence, "camera", name or "camera")
            if not isinstance(stream, CameraStream):
                continue
            camera = self._names[f"{sequence}/camera"]
            entry = _read_comment(stream.comment, stream.size)
            if entry:
                self._contents.calibration[camera] = entry
            yield CameraFrames.of(self._dataset, sequence, camera, stream.size)

    def _best(self, ending: str) -> str:
        """Return the sequence with most files of an ending."""
        counts = {
            name: sum(ending in files for files in self._dataset.sequences[name].values())
            for name in self._sequences
        }
        return max(counts, key=lambda name: counts[name])

    def _add_files(self, kind: str, ending: str) -> None:
        """Add a lidar, a radar or its cubes, from the sequence with most of its files."""
        sequence = self._best(ending)
        if not any(ending in files for files in self._dataset.sequences[sequence].values()):
            return
        radar = self._facts.get("radar")
        names = {
            "lidar": self._facts.get("lidar"),
            "radar": radar.get("name") if isinstance(radar, dict) else None,
        }
        wanted = str(names.get("radar" if kind == "cube" else kind) or kind)
        stream = self._add(sequence, kind, f"{wanted}_cube" if kind == "cube" else wanted)
        if isinstance(stream, PointStream) and stream.viewpoint != _NO_PLACE:
            x, y, z, *turn = stream.viewpoint
            place = {"translation_m": [x, y, z], "quaternion_xyzw": [*turn[1:], turn[0]]}
            name = self._names[f"{sequence}/{kind}"]
            self._contents.calibration[name] = {"T_sensor_rig": place}

    def _add(self, sequence: str, kind: str, wanted: str) -> Any:
        """Add a sensor; return its stream, None where it has none."""
        part, contents = f"{sequence}/{kind}", self._contents
        try:
            stream = self._dataset.stream(part)
        except FormatError as error:
            if kind not in ("location", "cube"):
                raise
            if kind == "cube":
                contents.lost[part] = str(error)
            return None
        name = make_name(wanted, self._names.values())
        self._names[part] = name
        source = f"edgefirst:{self._path.absolute()}#{part}@{contents.start_ns}"
        lost = list(stream.lost)
        if kind in _ENDINGS:
            lost.append("its own times: those of the pictures that it accompanies")
        becomes = _BECOMES.get(kind, "pictures, bit for bit")
        if isinstance(stream, CameraStream) and not stream.exact:
            becomes = "pictures"
        driver = _DRIVERS.get(kind, "camera")
        planned = PlannedSensor(name, driver, source, part, becomes, len(stream), lost)
        contents.sensors.append(planned)
        return stream


def _read_comment(comment: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return the calibration that this recorder's packer writes into the EXIF."""
    entry: dict[str, Any] = {}
    try:
        matrix: Floats = np.array(comment.get("T_camera_rig"), np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape == (4, 4) and is_rotation(matrix[None, :3, :3]).all():
        entry["T_sensor_rig"] = {
            "translation_m": matrix[:3, 3].tolist(),
            "quaternion_xyzw": quaternion_of_rotation(matrix[:3, :3]).tolist(),
        }
    model, parameters = comment.get("model"), comment.get("parameters")
    if isinstance(model, str) and isinstance(parameters, dict):
        entry |= {"model": model, "parameters": parameters, "resolution": list(size)}
    text = json.dumps(entry)  # only plain values
    found: dict[str, Any] = json.loads(text)
    return found
