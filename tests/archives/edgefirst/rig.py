"""Datasets packed of sessions made here, and read by the test's own reader."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from recorder.archives.finalize import ArchiveRequest, PackedArchive, collect, finalize
from recorder.formats.png import cube_of_picture
from tests.archives.ncore.packer_rig import CALIBRATION

Array = npt.NDArray[Any]

BASE = "rig-1_2024_06_01_10_00_00"
FULL_CALIBRATION = (
    CALIBRATION
    + """
  lidar: {T_sensor_rig: {translation_m: [1, 0, 2], quaternion_xyzw: [0, 0, 0, 1]}}
  radar: {T_sensor_rig: {translation_m: [3.5, 0, 0.5], quaternion_xyzw: [0, 0, 1, 0]}}
"""
)


@dataclass
class Dataset:
    """A dataset, file by file and row by row."""

    result: PackedArchive
    files: dict[str, bytes]
    table: Any

    @property
    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found

    @property
    def reported(self) -> dict[str, Any]:
        """What stands under ``recorder`` in the metadata."""
        values: dict[str, Any] = json.loads(self.table.schema.metadata[b"recorder"])
        return values

    @property
    def sequences(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self.files})

    def endings(self, frame: int, sequence: str | None = None) -> set[str]:
        """Of the files of a sample."""
        sequence = sequence or self.sequences[0]
        start = f"{sequence}/{sequence}_{frame:03d}."
        return {name.removeprefix(start) for name in self.files if name.startswith(start)}

    def file(self, frame: int, ending: str, sequence: str | None = None) -> bytes:
        sequence = sequence or self.sequences[0]
        return self.files[f"{sequence}/{sequence}_{frame:03d}.{ending}"]

    def picture(self, frame: int, ending: str, sequence: str | None = None) -> Array:
        return decode(self.file(frame, ending, sequence))

    def cube(self, frame: int, sequences: int, receivers: int) -> Array:
        return cube_of_picture(self.picture(frame, "radar.png"), sequences, receivers)

    def points(self, frame: int, ending: str) -> Array:
        return points(self.file(frame, ending))

    def noted(self, *words: str) -> int:
        """How many notes have all of the words."""
        return sum(all(word in note for word in words) for note in self.result.notes)


def decode(data: bytes) -> Array:
    """A picture as it is stored."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert image is not None
    return np.asarray(image)


def points(data: bytes) -> Array:
    """A PCD's points as a structured array."""
    header, body = data.split(b"DATA binary\n", 1)
    lines = dict(line.split(" ", 1) for line in header.decode().splitlines())
    kinds = [
        (name, f"<{kind.lower()}{size}")
        for name, kind, size in zip(
            *(lines[key].split() for key in ("FIELDS", "TYPE", "SIZE")), strict=True
        )
    ]
    found = np.frombuffer(body, kinds)
    assert len(found) == int(lines["POINTS"])
    return found


def exif_of(data: bytes) -> dict[str, dict[int, Any]]:
    """EXIF of a JPEG or a PNG as Pillow reads it: tags of the IFDs ``0``, ``exif`` and ``gps``."""
    with Image.open(io.BytesIO(data)) as image:
        tags = image.getexif()
    found = {"0": dict(tags)}
    for tag, name in ((0x8769, "exif"), (0x8825, "gps")):
        if found["0"].pop(tag, None) is not None:
            found[name] = tags.get_ifd(tag)
    return found


def viewpoint(data: bytes) -> list[float]:
    (line,) = (line for line in data[:1000].splitlines() if line.startswith(b"VIEWPOINT "))
    return [float(value) for value in line.split()[1:]]


def read(result: PackedArchive) -> Dataset:
    import pyarrow as pa
    from pyarrow import ipc

    (root,) = result.files
    container = root / f"{root.name}.zip"
    if container.exists():
        with zipfile.ZipFile(container) as file:
            assert file.testzip() is None
            names = file.namelist()
            assert len(set(names)) == len(names)
            files = {name: file.read(name) for name in names}
    else:
        folder = root / root.name
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
    with pa.OSFile(str(root / f"{root.name}.arrow")) as arrow:
        table = ipc.open_file(arrow).read_all()
    return Dataset(result, files, table)


def pack(path: Path, calibration: Path | None = None, **options: Any) -> Dataset:
    """One session's own dataset."""
    (result,) = finalize(path, [ArchiveRequest("edgefirst", options)], calibration=calibration)
    return read(result)


def pack_all(paths: Sequence[Path], out: Path, **options: Any) -> Dataset:
    """Several sessions' dataset, or more of one."""
    (result,) = collect(paths, [ArchiveRequest("edgefirst", options)], out)
    return read(result)
