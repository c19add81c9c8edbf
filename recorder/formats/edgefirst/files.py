"""The files of an EdgeFirst dataset, in a ZIP or a folder, by sequence, frame and ending.

::

    with EdgeFirstDataset(Path("summer")) as dataset:       # summer/summer.zip or summer/summer/
        dataset.sequences["rig_2026_05_01_12_00_00"][17]     # {"camera.jpeg": "rig_.../..."}
        dataset.read(name)

The container's members are read, never extracted.  Definition: EdgeFirst client, DATASET_FORMAT.md.
"""

from __future__ import annotations

import contextlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.exif import FoundExif, find_exif, read_exif

if TYPE_CHECKING:
    from recorder.formats.datasets import RecordedStream

TABLES: Final = (".arrow", ".parquet")
SINGLE: Final = "images"
"""Sequence of the pictures that are in none."""
CAMERA: Final = ("camera.jpeg", "camera.jpg", "camera.png")
_SENSOR: Final = re.compile(r"(.+)\.((?:camera|lidar|radar|depth)\.(?:jpeg|jpg|png|pcd))", re.I)
_PICTURE: Final = re.compile(r"(.+)\.(jpeg|jpg|png)", re.I)
_HEAD: Final = 1 << 16
_MOST_BYTES: Final = 1 << 30
_STEP_NS: Final = 100_000_000
_DATE: Final = re.compile(r"(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)")
Frames = dict[int, dict[str, str]]
"""Files of the samples of a sequence: by frame and by ending, the name in the container."""


def find_root(path: Path) -> Path | None:
    """Return the folder of the dataset that a path names; None if it is none."""
    if path.is_dir() and find_table(path) is not None:
        return path
    if path.is_file() and path.suffix in (".zip", *TABLES):
        root = path.parent
        return root if root.name == path.stem and find_table(root) is not None else None
    return None


def find_table(root: Path) -> Path | None:
    """Return the table of a dataset's folder; None without one."""
    places = (root / f"{root.resolve().name}{ending}" for ending in TABLES)
    return next((place for place in places if place.is_file()), None)


class EdgeFirstDataset(Closeable):
    """Reader of the files of a dataset.

    Args:
        path: the dataset's folder, its container or its table.

    Attributes:
        root: its folder.
        sequences: files of the samples by sequence, in order of the frames.
        others: number of files that belong to no sample.

    Raises:
        FormatError: there is no dataset, its container is missing or damaged, or a file's name
            leads out of it.
    """

    def __init__(self, path: Path) -> None:
        root = find_root(path)
        if root is None:
            raise FormatError(f"{path}: is no EdgeFirst dataset: no table beside its container")
        self.root, name = root, root.resolve().name
        self._zip: zipfile.ZipFile | None = None
        self._folder = root / name
        if not self._folder.is_dir():
            self._container = root / f"{name}.zip"
            try:
                self._zip = zipfile.ZipFile(self._container)
            except FileNotFoundError:
                raise FormatError(f"{root}: has neither {name}.zip nor the folder {name}") from None
            except (zipfile.BadZipFile, EOFError, ValueError) as error:
                raise FormatError(f"{self._container}: is damaged: {error}") from None
        self.sequences: dict[str, Frames] = {}
        self.others = 0
        self.start_ns = 0
        singles: dict[str, dict[str, str]] = {}
        for member in self._names():
            self._add(member, singles)
        if singles:
            found = enumerate(sorted(singles.items()))
            self.sequences[SINGLE] = {number: files for number, (_, files) in found}
            self.singles = sorted(singles)
        self.sequences = {
            name: dict(sorted(frames.items())) for name, frames in sorted(self.sequences.items())
        }

    singles: list[str] = []
    """Names of the samples of `SINGLE`, by frame."""

    def _names(self) -> Iterator[str]:
        """Yield the names of all files; refuse those that lead out of the container."""
        if self._zip is not None:
            for info in self._zip.infolist():
                if info.is_dir():
                    continue
                parts = info.filename.split("/")
                if "\\" in info.filename or ".." in parts or "" in parts or ":" in parts[0]:
                    text = f"its member {info.filename!r:.100} leads out of it"
                    raise FormatError(f"{self._container}: {text}")
                yield info.filename
            return
        inside = self._folder.resolve()
        for path in sorted(self._folder.rglob("*")):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise FormatError(f"{path}: leads out of the dataset")
            if path.is_file():
                yield path.relative_to(self._folder).as_posix()

    def _add(self, member: str, singles: dict[str, dict[str, str]]) -> None:
        folder, _, name = member.rpartition("/")
        sequence = folder.rpartition("/")[2]
        if (match := _SENSOR.fullmatch(name)) is not None:
            stem, ending = match[1], match[2].lower()
        elif (match := _PICTURE.fullmatch(name)) is not None:
            stem, ending = match[1], f"camera.{match[2].lower()}"
        else:
            self.others += 1
            return
        number = stem.removeprefix(f"{sequence}_")
        if sequence and number != stem and number.isdecimal() and len(number) < 10:
            frames = self.sequences.setdefault(sequence, {})
            frames.setdefault(int(number), {})[ending] = member
        else:
            singles.setdefault(stem, {})[ending] = member

    def read(self, member: str, most: int = _MOST_BYTES) -> bytes:
        """Read a file, or at most that many bytes of its beginning.

        Raises:
            FormatError: it is damaged, or larger than any file should be.
        """
        try:
            if self._zip is None:
                with (self._folder / member).open("rb") as file:
                    return file.read(most)
            info = self._zip.getinfo(member)
            if info.file_size > _MOST_BYTES:
                raise FormatError(f"{self._container}: {member}: {info.file_size} bytes: too large")
            if most >= info.file_size:
                return self._zip.read(info)
            with self._zip.open(info) as compressed:
                return compressed.read(most)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            RuntimeError,
            NotImplementedError,
        ) as error:
            raise FormatError(f"{self.root}: {member}: is damaged: {error}") from None
        except OSError as error:
            raise FormatError(f"{self.root}: {member}: {error.strerror or error}") from None

    def exif(self, sequence: str, frame: int) -> FoundExif:
        """Return what the picture of a sample states."""
        member = find_picture(self.sequences[sequence][frame])
        return read_exif(find_exif(self.read(member, _HEAD))) if member else FoundExif()

    def has_times(self, sequence: str) -> bool:
        """Return whether the pictures of a sequence have times: its first ones, and rising."""
        frames = [f for f, files in self.sequences[sequence].items() if find_picture(files)][:3]
        times = [self.exif(sequence, frame).t_ns for frame in frames]
        known = [t_ns for t_ns in times if t_ns is not None]
        return bool(known) and len(known) == len(times) and known == sorted(set(known))

    def begin_ns(self, sequence: str) -> int:
        """Return the time of a sequence's first picture."""
        first = next(iter(self.sequences[sequence]))
        if self.has_times(sequence):
            t_ns = self.exif(sequence, first).t_ns
            if t_ns is not None:
                return t_ns
        return self.guess_ns(sequence, first)

    @staticmethod
    def guess_ns(sequence: str, frame: int) -> int:
        """Return a time of a sample without one: 0.1 s apart, from the date in the name."""
        start = datetime(2000, 1, 1, tzinfo=UTC)
        if (match := _DATE.search(sequence)) is not None:
            with contextlib.suppress(ValueError):
                start = datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[misc,arg-type]
        return int(start.timestamp()) * 1_000_000_000 + frame * _STEP_NS

    def stream(self, part: str) -> RecordedStream:
        from recorder.formats.edgefirst.streams import make_stream

        return make_stream(self, part)

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()


def find_picture(files: dict[str, str]) -> str | None:
    """Return the name of a sample's picture; None without one."""
    return next((files[ending] for ending in CAMERA if ending in files), None)
