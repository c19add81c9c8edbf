"""Labels, masks and point clouds of a session (docs/labels.md, docs/archives.md)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import cv2
import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.config.options import suggest

CUBOIDS, BOXES, MASKS, CLOUDS = "_cuboids", "_labels", "_masks", "_point_clouds"
SIMULATED = "simulated"
MANUAL = "manual"
SOURCES = ("EXTERNAL", "AUTOLABEL", "GT_SYNTHETIC", "GT_ANNOTATION")
"""NCore's names of sources, which every kind of label may have, too."""
Lines = Sequence[tuple[str, dict[str, Any]]]
"""Places and labels, as yielded by `LabelFile.lines`."""
_decode = json.JSONDecoder().raw_decode
_LARGEST = sys.float_info.max
_SHARES = ("score", "occluded", "truncated")
DEGRADATIONS = ("none", "low", "medium", "high")
"""Values of the key ``degradation``: how much of the picture's quality is lost."""
QUALITIES = frozenset((*_SHARES, "status", "degradation", "metadata"))
"""Optional keys of every label of an object; not every archive has a place for each."""
_OBJECT = QUALITIES | {"t_ns", "track", "class"}
_CUBOIDS, _BOXES, _CLOUDS = "recorder-cuboids", "recorder-boxes", "recorder-point-clouds"
CAMERA_LABELS = "recorder-camera-labels"
_PICTURES = "recorder-pictures"
_KEYS: Mapping[str, frozenset[str]] = {
    _CUBOIDS: _OBJECT | {"frame", "center_m", "size_m", "quaternion_xyzw", "velocity_m_s"},
    _BOXES: _OBJECT | {"frame", "box_px", "polygon_px", "mask", "traffic_light", "state"},
    _CLOUDS: frozenset(("t_ns", "frame", "file", "metadata")),
    CAMERA_LABELS: frozenset(("t_ns", "frame", "file", "metadata")),
    _PICTURES: frozenset(
        ("t_ns", "frame", "degradation", "timing", "absent", "incomplete", "metadata")
    ),
}
"""Keys of a line, by format.  Headers may have any further keys: archives store them whole."""
_CLOUD_HEADER = frozenset(
    ("format", "version", "source", "maker", "frame", "unit", "attributes", "data", "metadata")
)


@dataclass(frozen=True)
class LabelFile:
    """A file of labels: a header line, then a line per label.

    Attributes:
        path: path of the file.
        header: contents of the header line.
        keys: the keys that a line may have; None: any.
    """

    path: Path
    header: Mapping[str, Any]
    keys: frozenset[str] | None = None

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def camera(self) -> str:
        """The camera in whose pictures the labels are."""
        return str(self.header.get("camera") or self.name.partition("@")[0])

    @property
    def set_name(self) -> str:
        """Name of the camera's label set, after the ``@`` of the file's name; "" without one."""
        return self.name.partition("@")[2]

    @property
    def source(self) -> str:
        """Source of the labels: ``simulated``, ``manual``, one of `SOURCES`, or a program."""
        return str(self.header.get("source") or "unknown")

    def lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield place (``FILE:LINE``) and label of every line.

        Raises:
            FormatError: a line is not a JSON mapping, has no ``t_ns``, a key that the format does
                not have, or an invalid value of one of `QUALITIES`.
        """
        path = str(self.path)
        with self.path.open("rb") as file:
            next(file)
            for number, line in enumerate(file, start=2):
                if stripped := line.strip():
                    where = f"{path}:{number}"
                    label = _parse_mapping(stripped, where)
                    if type(label.get("t_ns")) is not int:
                        raise FormatError(f"{where}: t_ns: needs a whole number of nanoseconds")
                    if self.keys is not None:
                        check_keys(label, self.keys, where)
                        if not QUALITIES.isdisjoint(label):
                            _check_qualities(label, where)
                    yield where, label

    def by_time(self) -> Iterator[tuple[int, Lines]]:
        """Yield time and `lines` of all labels of one time, in the order of the file.

        Raises:
            FormatError: a line is invalid, or its time is before that of the previous line.
        """
        for t_ns, lines in groupby(self._check_order(), key=lambda line: line[1]["t_ns"]):
            yield t_ns, list(lines)

    def _check_order(self) -> Iterator[tuple[str, dict[str, Any]]]:
        last: int | None = None
        for where, label in self.lines():
            if last is not None and label["t_ns"] < last:
                raise FormatError(f"{where}: t_ns: the lines are not in order of time")
            last = label["t_ns"]
            yield where, label


def check_keys(values: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    """Raise a FormatError that names the first unknown key: nothing is ignored in silence."""
    if values.keys() <= known:
        return
    key = next(key for key in values if key not in known)
    raise FormatError(
        f"{where}: {key}: unknown key{suggest(key, known)}; 'metadata' may hold anything"
    )


def _check_qualities(label: Mapping[str, Any], where: str) -> None:
    for key in _SHARES:
        value = label.get(key, 0)
        if not is_number(value) or not 0 <= value <= 1:
            raise FormatError(f"{where}: {key}: needs a number from 0 to 1, not {value!r:.60}")
    if "status" in label:
        text(label, "status", where)
    if (value := label.get("degradation", "none")) not in DEGRADATIONS:
        raise FormatError(
            f"{where}: degradation: needs one of {', '.join(DEGRADATIONS)}, not {value!r:.60}"
        )
    read_mapping(label, "metadata", where)


def read_mapping(values: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return a mapping from a label or a header, {} without one; FormatError for another type."""
    value = values.get(key, {})
    if not isinstance(value, dict):
        raise FormatError(f"{where}: {key}: needs a mapping, not {value!r:.60}")
    return value


def cuboid_files(session: Path) -> list[LabelFile]:
    """Return ``_cuboids/SET.jsonl``, sorted by name; FormatError for an invalid header."""
    return _read_files(session / CUBOIDS, _CUBOIDS)


def box_files(session: Path) -> list[LabelFile]:
    """Return ``_labels/CAMERA.jsonl`` and ``_labels/CAMERA@SET.jsonl``, sorted by name.

    Raises:
        FormatError: a header is invalid, or two files are the same set of one camera.
    """
    files = _read_files(session / BOXES, _BOXES)
    first: dict[tuple[str, str], Path] = {}
    for file in files:
        if (other := first.setdefault((file.camera, file.set_name), file.path)) != file.path:
            raise FormatError(f"{file.path}:1: camera: {file.camera} has labels in {other} already")
    return files


def label_place(camera: str, set_name: str | None) -> str:
    """Return the name of the file of a camera's set of labels, without its ending."""
    return f"{camera}@{set_name}" if set_name else camera


def mask_files(session: Path) -> dict[str, dict[str, Path]]:
    """Return ``_masks/CAMERA/NAME.png`` by camera and name."""
    masks: dict[str, dict[str, Path]] = {}
    for path in sorted((session / MASKS).glob("*/*.png")):
        if not path.name.startswith("."):
            masks.setdefault(path.parent.name, {})[path.stem] = path
    return masks


def number_rows(lines: Lines, key: str, length: int) -> npt.NDArray[np.float64]:
    """Return a list of numbers from each label: f8 [n, length].

    Raises:
        FormatError: see `numbers`.
    """
    lists: list[Any] = [label.get(key) for _, label in lines]
    if set(map(type, lists)) == {list} and set(map(len, lists)) == {length}:
        flat = list(chain.from_iterable(lists))
        if set(map(type, flat)) <= {float, int}:
            with suppress(OverflowError):
                values = np.array(flat, np.float64)
                if np.isfinite(values).all():
                    return values.reshape(-1, length)
    return np.array([numbers(label, key, length, where) for where, label in lines])


def texts(lines: Lines, key: str) -> list[str]:
    """Return a text from each label; raises as `text`."""
    found: list[Any] = [label.get(key) for _, label in lines]
    if set(map(type, found)) == {str} and "" not in found and is_unicode("".join(found)):
        return found
    return [text(label, key, where) for where, label in lines]


def numbers(label: Mapping[str, Any], key: str, length: int, where: str) -> tuple[float, ...]:
    """Return a list of numbers from a label.

    Raises:
        FormatError: the value is not such a list; the message names `where` and key.
    """
    values = label.get(key)
    if isinstance(values, list) and len(values) == length and all(map(is_number, values)):
        return tuple(map(float, values))
    raise FormatError(f"{where}: {key}: needs {length} numbers, not {values!r:.60}")


def is_number(value: object) -> bool:
    """Return whether a JSON value is a finite number; False for true and false."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and abs(value) <= _LARGEST


def text(label: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text from a label; FormatError for another type or an empty text."""
    value = label.get(key)
    if not isinstance(value, str) or not value or not is_unicode(value):
        raise FormatError(f"{where}: {key}: needs a text, not {value!r:.60}")
    return value


def is_unicode(value: str) -> bool:
    """Return whether a text has no unpaired surrogates, which JSON allows and UTF-8 does not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


UNITS = ("meters", "unitless")
TRANSFORMS = ("invariant", "direction", "point")
"""How a rigid transformation changes a value of a point: not at all, by its rotation, or whole."""


@dataclass(frozen=True)
class CloudFolder:
    """``_point_clouds/NAME``: an index and an array file per cloud (docs/archives.md).

    Attributes:
        index: ``index.jsonl``: lines with ``t_ns`` and ``file``, and ``frame`` unless the header
            has a ``frame``.
        unit: unit of the coordinates, `UNITS`.
        transforms: how a transformation changes an attribute, `TRANSFORMS`, by attribute.
        data: names of the arrays that belong to a cloud, and not to its points.
    """

    index: LabelFile
    unit: str = "meters"
    transforms: Mapping[str, str] = field(default_factory=dict)
    data: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: Path) -> CloudFolder:
        """Read the header of an ``index.jsonl``; raise a FormatError if it is invalid."""
        index = read_label_file(path, _CLOUDS)
        where, header = f"{path}:1", index.header
        check_keys(header, _CLOUD_HEADER, where)
        unit = choose_word(header.get("unit", "meters"), UNITS, "unit", where)
        transforms = {}
        for name, about in read_mapping(header, "attributes", where).items():
            key = f"attributes.{name}"
            described = read_mapping({key: about}, key, where)
            check_keys(described, frozenset(("transform",)), f"{where}: {key}")
            chosen = described.get("transform", "invariant")
            transforms[name] = choose_word(chosen, TRANSFORMS, f"{key}.transform", where)
        data = header.get("data", [])
        if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
            raise FormatError(f"{where}: data: needs a list of names of arrays, not {data!r:.60}")
        if both := sorted({"xyz", *transforms}.intersection(data)):
            raise FormatError(f"{where}: data: {both[0]} has values of points")
        return cls(index, unit, transforms, frozenset(data))

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.index.path.parent.name

    def clouds(self) -> Iterator[Cloud]:
        """Read the clouds one at a time.

        Raises:
            FormatError: a file is missing or not a numpy file; the message names the file.
        """
        for where, line in self.index.lines():
            name = text(line, "file", where)
            frame = line.get("frame", self.index.header.get("frame"))
            if not isinstance(frame, str):
                raise FormatError(f"{where}: frame: needs the name of a sensor, rig or world")
            path = self.index.path.parent / name
            if Path(name).name != name:
                raise FormatError(f"{where}: file: {name!r} is not a file name in this folder")
            try:
                with path.open("rb") as file, np.load(file, allow_pickle=False) as bundle:
                    arrays = {key: bundle[key] for key in bundle.files}
                xyz = arrays.pop("xyz").astype(np.float32)
            except KeyError:
                raise FormatError(f"{path}: has no array xyz") from None
            except (OSError, ValueError, BadZipFile) as error:
                raise FormatError(f"{path}: cannot be read: {error}") from None
            if xyz.ndim != 2 or xyz.shape[1] != 3:
                raise FormatError(f"{path}: xyz has shape {xyz.shape}, not (n, 3)")
            if unknown := (self.transforms.keys() | self.data) - arrays.keys():
                raise FormatError(
                    f"{path}: has no array {min(unknown)}, which the header describes"
                )
            data = {key: arrays.pop(key) for key in sorted(self.data)}
            for key, values in arrays.items():
                if values.shape[:1] != xyz.shape[:1]:
                    rows = len(values) if values.ndim else "no"
                    raise FormatError(f"{path}: {key} has {rows} rows, xyz {len(xyz)}")
            metadata = read_mapping(line, "metadata", where)
            yield Cloud(line["t_ns"], frame, xyz, arrays, path, metadata, data)


@dataclass(frozen=True)
class Cloud:
    """One point cloud.

    Attributes:
        t_ns: time of the frame.
        frame: reference frame: a sensor, ``rig`` or ``world``.
        xyz: f4 [n, 3], m.
        attributes: further arrays [n, ...].
        path: path of the file.
        metadata: the line's ``metadata``.
        data: arrays that belong to the cloud as a whole, of any shape.
    """

    t_ns: int
    frame: str
    xyz: npt.NDArray[np.float32]
    attributes: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    path: Path = Path()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def cloud_folders(session: Path) -> list[CloudFolder]:
    """Return ``_point_clouds/NAME/index.jsonl``, sorted; FormatError for an invalid header."""
    paths = sorted((session / CLOUDS).glob("*/index.jsonl"))
    return [CloudFolder.read(path) for path in paths]


def _read_files(folder: Path, format_: str) -> list[LabelFile]:
    paths = sorted(path for path in folder.glob("*.jsonl") if not path.name.startswith("."))
    return [read_label_file(path, format_) for path in paths]


def read_label_file(path: Path, format_: str) -> LabelFile:
    """Read the header of a file of labels; raise a FormatError if it is not of that format."""
    try:
        with path.open("rb") as file:
            header = _parse_mapping(file.readline(), f"{path}:1")
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    if header.get("format") != format_ or header.get("version") != 1:
        raise FormatError(f"{path}:1: is not a header of {format_}, version 1")
    return LabelFile(path, header, _KEYS[format_])


def choose_word(value: object, known: Sequence[str], key: str, where: str) -> str:
    """Return one of some words, in lower case; raise a FormatError for another value."""
    word = value.lower() if isinstance(value, str) else value
    if word not in known:
        raise FormatError(f"{where}: {key}: needs one of {', '.join(known)}, not {value!r:.60}")
    return str(word)


def _parse_mapping(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = _parse_value(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{where}: a {type(value).__name__}, not a mapping")
    return value


def _parse_value(line: bytes) -> Any:
    """Return the result of `json.loads`, mostly without its search for encodings and blanks."""
    try:
        text = line.decode()
        value, end = _decode(text)
    except ValueError:
        return json.loads(line)
    return value if end == len(text) else json.loads(line)


Mask = npt.NDArray[Any]


def read_mask(path: Path, size: tuple[int, int]) -> Mask:
    """Read a PNG's non-zero pixels, bool [height, width]; FormatError if it is missing or wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    mask = decode_mask(data)
    if mask is None:
        raise FormatError(f"{path}: is not an image")
    if mask.shape[::-1] != size:
        wanted = "x".join(map(str, size))
        raise FormatError(f"{path}: has {mask.shape[1]}x{mask.shape[0]} pixels, not {wanted}")
    return mask


def decode_mask(data: bytes) -> Mask | None:
    """Return an image's non-zero pixels, bool [height, width]; None where the data are no image."""
    grey = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE) if data else None
    return None if grey is None else np.asarray(grey != 0)
