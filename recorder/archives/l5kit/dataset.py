"""Writer and reader of a dataset's four arrays: written sequentially, read in chunks.

::

    with DatasetWriter(Path("out/drive.zarr")) as dataset:
        for t_ns, position_m, rotation, agents in drive:
            dataset.frame(t_ns, position_m, rotation, agents)
        dataset.scene("rig-1", start_ns, end_ns)        # all frames since the last scene
        dataset.session({"name": "drive", "start_ns": start_ns})    # all scenes since the last one

Intervals are half-open ranges of indices.  An empty interval is [k, k], k the next row's index.

Specification: woven-planet/l5kit, l5kit/data/zarr_dataset.py and labels.py, format version 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import recorder
from recorder.common.errors import ArchiveError
from recorder.formats.zarr2 import (
    Blosc,
    FolderStore,
    Hierarchy,
    RowsSpec,
    open_store,
    require_numcodecs,
)
from recorder.formats.zarr2.arrays import BYTE_SHUFFLE
from recorder.formats.zarr2.reading import decode_dtype
from recorder.formats.zarr2.stores import OutputGuard
from recorder.perception.geometry import Floats

LABELS: Final = (
    "PERCEPTION_LABEL_NOT_SET",
    "PERCEPTION_LABEL_UNKNOWN",
    "PERCEPTION_LABEL_DONTCARE",
    "PERCEPTION_LABEL_CAR",
    "PERCEPTION_LABEL_VAN",
    "PERCEPTION_LABEL_TRAM",
    "PERCEPTION_LABEL_BUS",
    "PERCEPTION_LABEL_TRUCK",
    "PERCEPTION_LABEL_EMERGENCY_VEHICLE",
    "PERCEPTION_LABEL_OTHER_VEHICLE",
    "PERCEPTION_LABEL_BICYCLE",
    "PERCEPTION_LABEL_MOTORCYCLE",
    "PERCEPTION_LABEL_CYCLIST",
    "PERCEPTION_LABEL_MOTORCYCLIST",
    "PERCEPTION_LABEL_PEDESTRIAN",
    "PERCEPTION_LABEL_ANIMAL",
    "AVRESEARCH_LABEL_DONTCARE",
)
"""Labels in the order of ``label_probabilities``."""

_PREFIX = "PERCEPTION_LABEL_"
UNKNOWN: Final = LABELS.index(_PREFIX + "UNKNOWN")

_OTHER_WORDS: Final[Mapping[str, str]] = {
    "automobile": "car",
    "lorry": "truck",
    "ambulance": "emergency_vehicle",
    "police_car": "emergency_vehicle",
    "fire_truck": "emergency_vehicle",
    "trailer": "other_vehicle",
    "vehicle": "other_vehicle",
    "bike": "bicycle",
    "motorbike": "motorcycle",
    "rider": "cyclist",
    "person": "pedestrian",
    "human": "pedestrian",
}
_INDICES: Final = {label.lower(): index for index, label in enumerate(LABELS)} | {
    label.removeprefix(_PREFIX).lower(): index
    for index, label in enumerate(LABELS)
    if label.startswith(_PREFIX)
}


def find_label(word: str) -> int | None:
    """Return the index of a class's label (``car``, ``Emergency Vehicle``); None if unknown."""
    key = word.strip().lower().replace(" ", "_").replace("-", "_")
    return _INDICES.get(_OTHER_WORDS.get(key, key))


FORMAT_VERSION: Final = 2
HOST_LENGTH: Final = 16
_FACE_STATES: Final = 3  # active, inactive, unknown

SCENE: Final = np.dtype(
    [
        ("frame_index_interval", "<i8", (2,)),
        ("host", f"<U{HOST_LENGTH}"),
        ("start_time", "<i8"),
        ("end_time", "<i8"),
    ]
)
FRAME: Final = np.dtype(
    [
        ("timestamp", "<i8"),
        ("agent_index_interval", "<i8", (2,)),
        ("traffic_light_faces_index_interval", "<i8", (2,)),
        ("ego_translation", "<f8", (3,)),
        ("ego_rotation", "<f8", (3, 3)),
    ]
)
AGENT: Final = np.dtype(
    [
        ("centroid", "<f8", (2,)),
        ("extent", "<f4", (3,)),
        ("yaw", "<f4"),
        ("velocity", "<f4", (2,)),
        ("track_id", "<u8"),
        ("label_probabilities", "<f4", (len(LABELS),)),
    ]
)
FACE: Final = np.dtype(
    [
        ("face_id", "<U16"),
        ("traffic_light_id", "<U16"),
        ("traffic_light_face_status", "<f4", (_FACE_STATES,)),
    ]
)
ARRAYS: Final[Mapping[str, tuple[np.dtype[Any], int]]] = {
    "scenes": (SCENE, 10_000),
    "frames": (FRAME, 10_000),
    "agents": (AGENT, 20_000),
    "traffic_light_faces": (FACE, 10_000),
}
"""Dtype and rows per chunk, by name of the array."""
_OF_FRAMES: Final = {
    "agents": "agent_index_interval",
    "traffic_light_faces": "traffic_light_faces_index_interval",
}
"""Arrays whose rows belong to frames, and the frames' columns that hold their intervals."""
ENTRY: Final = "recorder"
"""Attribute of the root group that lists the dataset's sessions."""

_COMPRESSOR = Blosc("lz4", 5, BYTE_SHUFFLE)
_BLOSC_SIZE = slice(12, 16)  # field of a chunk's header: size of the chunk in bytes

Rows = npt.NDArray[Any]
NO_FACES: Final[Rows] = np.zeros(0, FACE)


class DatasetWriter(OutputGuard):
    """Writer of a dataset, with constant memory.

    Args:
        path: the folder ``NAME.zarr``; must not exist.

    Attributes:
        counts: number of rows by name of the array.
        sessions: the entries passed to `session`, in order.
    """

    def __init__(self, path: Path) -> None:
        self._hierarchy = Hierarchy(FolderStore(path))
        root = self._hierarchy.root
        self._rows = {
            name: root.rows(name, RowsSpec(dtype, chunk_rows=rows, compressor=_COMPRESSOR))
            for name, (dtype, rows) in ARRAYS.items()
        }
        self._scene_start = self._session_start = 0
        self.sessions: list[dict[str, Any]] = []

    @property
    def counts(self) -> dict[str, int]:
        return {name: rows.length for name, rows in self._rows.items()}

    def frame(
        self,
        t_ns: int,
        position_m: Floats,
        rotation: Floats,
        agents: Rows,
        faces: Rows = NO_FACES,
    ) -> None:
        """Add a frame to the current scene.

        Args:
            t_ns: epoch ns; strictly increasing within a scene.
            position_m: f8 [3], position of the ego in the world.
            rotation: f8 [3, 3], ego to world.
            agents: `AGENT` [n].
            faces: `FACE` [n].
        """
        frame = np.zeros(1, FRAME)
        frame["timestamp"] = t_ns
        first = self._rows["agents"].length
        frame["agent_index_interval"] = first, first + len(agents)
        first = self._rows["traffic_light_faces"].length
        frame["traffic_light_faces_index_interval"] = first, first + len(faces)
        frame["ego_translation"], frame["ego_rotation"] = position_m, rotation
        self._rows["frames"].append(frame)
        self._rows["agents"].append(agents)
        self._rows["traffic_light_faces"].append(faces)

    def scene(self, host: str, start_ns: int, end_ns: int) -> None:
        """Close the scene of all frames since the last scene; cut the host to 16 characters."""
        scene = np.zeros(1, SCENE)
        stop = self._rows["frames"].length
        scene["frame_index_interval"] = self._scene_start, stop
        scene["host"] = host[:HOST_LENGTH]
        scene["start_time"], scene["end_time"] = start_ns, end_ns
        self._rows["scenes"].append(scene)
        self._scene_start = stop

    def session(self, entry: Mapping[str, Any]) -> None:
        """Record the session of all scenes since the last session."""
        stop = self._rows["scenes"].length
        self.sessions.append({**entry, "scenes": [self._session_start, stop]})
        self._session_start = stop

    def copy(self, old: DatasetReader, entry: Mapping[str, Any]) -> None:
        """Copy a session from another dataset; only its indices change."""
        start, stop = entry["scenes"]
        for scenes in old.rows("scenes", start, stop):
            for scene in scenes:
                shift = self._copy_frames(old, *scene["frame_index_interval"].tolist())
                moved = scene.reshape(1).copy()
                moved["frame_index_interval"] += shift
                self._rows["scenes"].append(moved)
                self._scene_start = self._rows["frames"].length
        self.session(entry)

    def _copy_frames(self, old: DatasetReader, start: int, stop: int) -> int:
        """Copy frames, agents and faces; return the shift of the frames' indices."""
        shift = self._rows["frames"].length - start
        for frames in old.rows("frames", start, stop):
            moved = frames.copy()
            for name, column in _OF_FRAMES.items():
                first, last = int(frames[column][0, 0]), int(frames[column][-1, 1])
                moved[column] += self._rows[name].length - first
                for rows in old.rows(name, first, last):
                    self._rows[name].append(rows)
            self._rows["frames"].append(moved)
        return shift

    def finish(self) -> None:
        """Complete the dataset; it is durable on return."""
        for rows in self._rows.values():
            rows.close()
        attributes = {
            "format_version": FORMAT_VERSION,
            "labels": list(LABELS),
            ENTRY: {"version": recorder.__version__, "sessions": self.sessions},
        }
        self._hierarchy.root.set_attributes(attributes)
        self._hierarchy.close()

    def discard(self) -> None:
        """Remove the files that were written."""
        self._hierarchy.discard()


class DatasetReader:
    """Reader of a dataset, of the recorder or of other programs, a chunk at a time.

    Attributes:
        path: folder of the dataset.

    Raises:
        ArchiveError: the folder is not a dataset.
        StorageError: the folder cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store = open_store(path)
        self._last: dict[str, tuple[int, Rows]] = {}  # by array, the chunk read last
        attributes = self._document(".zattrs")
        found = attributes.get("format_version"), attributes.get("labels")
        if found != (FORMAT_VERSION, list(LABELS)):
            raise ArchiveError(
                f"{path}: is not an L5Kit dataset of format version {FORMAT_VERSION}"
            )
        self._listed = attributes.get(ENTRY)
        try:
            self._lengths = {name: self._length(name) for name in ARRAYS}
        except (KeyError, TypeError, ValueError) as error:
            raise ArchiveError(f"{path}: is damaged: {error!r}") from None

    def sessions(self) -> list[dict[str, Any]]:
        """Return an entry per session with at least ``name``, ``start_ns`` and ``scenes``.

        ``scenes`` is the interval of the session's scenes.

        Raises:
            ArchiveError: the dataset does not list its sessions, so that it cannot be extended.
        """
        try:
            if not isinstance(self._listed, dict):
                raise TypeError(f"no attribute {ENTRY!r}")
            sessions: list[dict[str, Any]] = list(self._listed["sessions"])
            for entry in sessions:
                start, stop = entry["scenes"]
                if not 0 <= start <= stop <= self._lengths["scenes"]:
                    raise ValueError(f"scenes {start} to {stop}")
                _ = entry["name"], entry["start_ns"]
        except (KeyError, TypeError, ValueError) as error:
            raise ArchiveError(
                f"{self.path}: cannot be extended: it does not list its sessions,"
                f" as datasets of the recorder do ({error!r})"
            ) from None
        return sessions

    def _document(self, key: str) -> dict[str, Any]:
        try:
            document = json.loads(self._store[key])
        except (KeyError, ValueError) as error:
            raise ArchiveError(f"{self.path}: {key}: is missing or damaged ({error})") from None
        if not isinstance(document, dict):
            raise ArchiveError(f"{self.path}: {key}: is damaged: not a mapping")
        return document

    def _length(self, name: str) -> int:
        metadata = self._document(f"{name}/.zarray")
        dtype, rows = ARRAYS[name]
        found = decode_dtype(metadata["dtype"]), metadata["chunks"], metadata["compressor"]["id"]
        if found != (dtype, [rows], "blosc"):
            raise ArchiveError(f"{self.path}: {name} has another dtype, chunks or compressor")
        (length,) = metadata["shape"]
        return int(length)

    def length(self, name: str) -> int:
        """Return the number of rows of an array."""
        return self._lengths[name]

    def rows(self, name: str, start: int, stop: int) -> Iterator[Rows]:
        """Yield rows [start, stop) of an array, in parts.

        Raises:
            ArchiveError: a chunk is damaged.
        """
        if not 0 <= start <= stop <= self._lengths[name]:
            raise ArchiveError(
                f"{self.path}: is damaged: {name} {start} to {stop} of {self._lengths[name]}"
            )
        size = ARRAYS[name][1]
        for index in range(start // size, -(-stop // size)):
            first, last = max(start, index * size), min(stop, (index + 1) * size)
            yield self._chunk(name, index)[first - index * size : last - index * size]

    def _chunk(self, name: str, index: int) -> Rows:
        if self._last.get(name, (-1,))[0] != index:
            self._last[name] = index, self._decode(name, index)
        return self._last[name][1]

    def _decode(self, name: str, index: int) -> Rows:
        key = f"{name}/{index}"
        dtype, rows = ARRAYS[name]
        try:
            data = self._store[key]
            if int.from_bytes(data[_BLOSC_SIZE], "little") != len(data):  # numcodecs skips this
                raise ValueError(f"{len(data)} bytes")
            codec = require_numcodecs().get_codec(_COMPRESSOR.config())
            chunk = np.frombuffer(codec.decode(data), dtype)
            if len(chunk) != rows:
                raise ValueError(f"{len(chunk)} rows")
        except (KeyError, ValueError, RuntimeError) as error:
            raise ArchiveError(f"{self.path}: {key}: is missing or damaged ({error})") from None
        return chunk
