"""Labels that have a value per pixel of a camera's pictures: depth, flow, classes, masks.

::

    for folder in camera_label_folders(session):
        for label in folder.labels():
            folder.read(label)      # an array [height, width, *shape], or the bytes of an image

A folder is ``_labels/CAMERA/CATEGORY.QUALIFIER[@SET]`` (docs/labels.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import cv2
import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.formats.png import read_png_head
from recorder.perception.labels import (
    BOXES,
    CAMERA_LABELS,
    MANUAL,
    SIMULATED,
    SOURCES,
    LabelFile,
    check_keys,
    choose_word,
    read_label_file,
    read_mapping,
    text,
)

CATEGORIES = (
    "depth", "flow", "segmentation", "mask", "geometry", "material", "feature", "other",
)  # fmt: skip
_UNITS = ("meters", "pixels", "unitless")
_ENCODINGS = ("raw", "png", "jpeg")
_CHANNELS = {"png": (1, 2, 3, 4), "jpeg": (1, 3)}
_ARRAYS = (("u1", ()), ("u1", (3,)), ("u2", ()))
"""Dtype and shape of arrays that are compressed as PNG: readers cut 16-bit colours to 8 bits."""
_NO_ARRAY = (
    ValueError, EOFError, SyntaxError, TokenError, TypeError, OverflowError, MemoryError, BadZipFile
)  # fmt: skip
"""What numpy raises for a damaged file, whose header it parses as Python."""
_HEADER = frozenset(
    ("format", "version", "category", "qualifier", "unit", "source", "maker", "dtype", "shape",
     "encoding", "quantization", "classes", "metadata")
)  # fmt: skip


@dataclass(frozen=True)
class Steps:
    """Integers as which an archive may store the values: value = integer * scale + offset."""

    dtype: str
    scale: float
    offset: float


@dataclass(frozen=True)
class CameraLabel:
    """A line of an ``index.jsonl``.

    Attributes:
        where: its place, ``FILE:LINE``.
        t_ns: stamp of the picture.
        frame: index of the picture in the stream; None: that of the nearest stamp.
        file: name of the file in the same folder.
        metadata: the line's ``metadata``.
    """

    where: str
    t_ns: int
    frame: int | None
    file: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class CameraLabelFolder:
    """Labels of one kind and one set, of one camera.

    Attributes:
        index: ``index.jsonl``.
        camera: the camera in whose pictures they are.
        category: one of `CATEGORIES`.
        qualifier: kind within the category: ``z`` of ``depth.z``.
        set_name: the set, after the ``@`` of the folder's name; "" without one.
        unit: ``meters``, ``pixels``, ``unitless``, or None.
        dtype: type of the values.
        shape: shape of a pixel's value; () is a single number.
        encoding: ``raw``, or the format of images: ``png``, ``jpeg``.
        steps: rule by which raw values may be stored as integers.
        classes: name of a class by its number, as a text.
    """

    index: LabelFile
    camera: str
    category: str
    qualifier: str
    set_name: str
    unit: str | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    encoding: str = "raw"
    steps: Steps | None = None
    classes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the kind and the set: ``depth.z``, ``segmentation.semantic@hand``."""
        return self.index.path.parent.name

    @property
    def source(self) -> str:
        """One of `SOURCES`, ``simulated`` or ``manual``."""
        return self.index.source

    @classmethod
    def read_header(cls, path: Path) -> CameraLabelFolder:
        """Read the header of an ``index.jsonl``; raise a FormatError if it is invalid."""
        index = read_label_file(path, CAMERA_LABELS)
        where, header = f"{path}:1", index.header
        check_keys(header, _HEADER, where)
        kind, _, set_name = path.parent.name.partition("@")
        category, _, qualifier = kind.partition(".")
        if category not in CATEGORIES or not qualifier or path.parent.name.endswith("@"):
            raise FormatError(
                f"{path.parent}: is not named CATEGORY.QUALIFIER or CATEGORY.QUALIFIER@SET, with a "
                f"category of {', '.join(CATEGORIES)}"
            )
        for key, own in (("category", category), ("qualifier", qualifier)):
            if header.get(key) != own:
                raise FormatError(
                    f"{where}: {key}: needs {own!r}, as the folder's name, "
                    f"not {header.get(key)!r:.60}"
                )
        if "unit" not in header:
            raise FormatError(f"{where}: unit: missing; one of {', '.join(_UNITS)}, or null")
        unit = header["unit"]
        if unit is not None:
            unit = choose_word(unit, _UNITS, "unit", where)
        if index.source not in (*SOURCES, SIMULATED, MANUAL):
            known = ", ".join((*SOURCES, SIMULATED, MANUAL))
            raise FormatError(
                f"{where}: source: needs one of {known}, not {header.get('source')!r:.60}; "
                "the program's name is 'maker'"
            )
        encoding = choose_word(header.get("encoding", "raw"), _ENCODINGS, "encoding", where)
        dtype, shape = _read_dtype(header, "dtype", "biuf", where), _read_shape(header, where)
        if encoding != "raw" and not _fits_image(encoding, dtype, shape):
            raise FormatError(
                f"{where}: encoding: {encoding} holds no {dtype} of shape {list(shape)}; use raw"
            )
        steps = _read_steps(header, where)
        if steps is not None and encoding != "raw":
            raise FormatError(f"{where}: quantization: only with encoding raw, not {encoding}")
        classes = _read_classes(header, where)
        camera = path.parent.parent.name
        return cls(
            index, camera, category, qualifier, set_name,
            unit, dtype, shape, encoding, steps, classes,
        )  # fmt: skip

    def labels(self) -> Iterator[CameraLabel]:
        """Yield the lines in the order of the file.

        Raises:
            FormatError: a line is invalid, or not after the previous one in time.
        """
        for _, lines in self.index.by_time():
            for where, line in lines:
                name, frame = text(line, "file", where), line.get("frame")
                if Path(name).name != name:
                    raise FormatError(f"{where}: file: {name!r} is not a file name in this folder")
                if frame is not None and (type(frame) is not int or frame < 0):
                    raise FormatError(f"{where}: frame: needs a picture's index, not {frame!r:.60}")
                metadata = read_mapping(line, "metadata", where)
                yield CameraLabel(where, line["t_ns"], frame, name, metadata)

    def read(self, label: CameraLabel) -> npt.NDArray[Any] | bytes:
        """Read a label.

        Returns:
            the values, [height, width, *shape] of `dtype`, mapped from the file; or the bytes of an
            image of the format `encoding`.

        Raises:
            FormatError: the file is missing, damaged, or of another format, shape or dtype.
        """
        path = self.index.path.parent / label.file
        try:
            if path.suffix == ".npy" and self.encoding != "jpeg":
                return self._read_array(path)
            if self.encoding != "raw" and path.suffix == f".{self.encoding}":
                data = path.read_bytes()
                self._check_image(path, data)
                return data
        except FileNotFoundError:
            raise FormatError(f"{label.where}: file: no such file: {path}") from None
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
        endings = {"raw": ".npy", "png": ".npy or .png", "jpeg": ".jpeg"}[self.encoding]
        raise FormatError(f"{label.where}: file: {label.file!r} does not end in {endings}")

    def _read_array(self, path: Path) -> npt.NDArray[Any]:
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except _NO_ARRAY as error:
            raise FormatError(f"{path}: is no whole array file: {error}") from None
        if not isinstance(values, np.ndarray):
            values.close()
            raise FormatError(f"{path}: is a set of arrays, not one array")
        if self.encoding == "png" and (self.dtype.str[1:], self.shape) not in _ARRAYS:
            raise FormatError(
                f"{path}: {self.dtype} of shape {list(self.shape)} cannot be compressed as PNG so "
                "that all readers read it; use encoding raw"
            )
        if values.dtype != self.dtype:
            raise FormatError(f"{path}: is {values.dtype}, not {self.dtype} as the header says")
        if values.ndim < 2 or values.shape[2:] != self.shape:
            wanted = ", ".join(("height", "width", *map(str, self.shape)))
            raise FormatError(f"{path}: has shape {list(values.shape)}, not [{wanted}]")
        return np.asarray(values, order="C")

    def _check_image(self, path: Path, data: bytes) -> None:
        if self.encoding == "jpeg":
            whole = data.startswith(b"\xff\xd8") and data.endswith(b"\xff\xd9")
            image = cv2.imdecode(np.frombuffer(data, np.uint8), -1) if whole else None
            if image is None:
                raise FormatError(f"{path}: is no whole JPEG")
            channels, bits = image.shape[2] if image.ndim > 2 else 1, 8
        else:
            try:
                head = read_png_head(data)
            except FormatError as error:
                raise FormatError(f"{path}: {error}") from None
            channels, bits = head.channels, head.bits
        wanted = self.shape[0] if self.shape else 1
        if (channels, bits > 8) != (wanted, self.dtype.itemsize > 1):
            raise FormatError(
                f"{path}: has {channels} channels of {bits} bits, not {wanted} of "
                f"{8 * self.dtype.itemsize} as the header says"
            )


def camera_label_folders(session: Path) -> list[CameraLabelFolder]:
    """Return ``_labels/CAMERA/KIND/index.jsonl``, sorted; FormatError for an invalid header."""
    paths = sorted((session / BOXES).glob("[!.]*/[!.]*/index.jsonl"))
    return [CameraLabelFolder.read_header(path) for path in paths]


def _fits_image(encoding: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Return whether images of a format can have pixels of such values."""
    kinds = ("u1", "u2") if encoding == "png" else ("u1",)
    channels = shape[0] if shape else 1
    fits = len(shape) < 2 and channels in _CHANNELS[encoding] and shape != (1,)
    return fits and dtype.str[1:] in kinds


def _read_dtype(values: Mapping[str, Any], key: str, kinds: str, where: str) -> np.dtype[Any]:
    name = values.get("dtype")
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in kinds or not dtype.isnative:
        raise FormatError(f"{where}: {key}: needs a type of numbers such as u1, not {name!r:.60}")
    return dtype


def _read_shape(header: Mapping[str, Any], where: str) -> tuple[int, ...]:
    shape = header.get("shape", [])
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
        raise FormatError(f"{where}: shape: needs the lengths of a value, not {shape!r:.60}")
    return tuple(shape)


def _read_steps(header: Mapping[str, Any], where: str) -> Steps | None:
    if header.get("quantization") is None:
        return None
    rule = read_mapping(header, "quantization", where)
    check_keys(rule, frozenset(("dtype", "scale", "offset")), f"{where}: quantization")
    dtype = _read_dtype(rule, "quantization.dtype", "iu", where)
    numbers = {"scale": rule.get("scale", 1.0), "offset": rule.get("offset", 0.0)}
    for key, value in numbers.items():
        if type(value) not in (int, float) or not abs(value) < np.inf or (key, value) == (
            "scale", 0,
        ):  # fmt: skip
            raise FormatError(f"{where}: quantization.{key}: needs a number, not {value!r:.60}")
    return Steps(dtype.str[1:], float(numbers["scale"]), float(numbers["offset"]))


def _read_classes(header: Mapping[str, Any], where: str) -> dict[str, str]:
    classes = read_mapping(header, "classes", where)
    for number, name in classes.items():
        if not number.isdecimal() or not isinstance(name, str):
            raise FormatError(
                f'{where}: classes: needs names by number, as {{"7": "road"}}, not '
                f"{number!r:.60}: {name!r:.60}"
            )
    return classes
