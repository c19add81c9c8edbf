"""Checks of an EdgeFirst dataset by our own reader and by edgefirst-client."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from recorder.archives.edgefirst.schema import CURRENT
from recorder.archives.edgefirst.table_files import ARROW, PARQUET, ExistingTable, find_table
from recorder.archives.validation import ArchiveCheck, ArchiveReport, need
from recorder.common.errors import ArchiveError

_PICTURES = (".jpeg", ".jpg", ".png")
_EXPECTED = ("unreferenced", "Unreferenced", "Found", "Validating", "files in", "structure")


class EdgeFirstCheck(ArchiveCheck):
    """Check that reads every row and every file; each sample must have its picture."""

    software: ClassVar[str] = "edgefirst-client"
    left: ClassVar[str] = "whether edgefirst-client reads it"

    def find(self, path: Path) -> Path | None:
        if path.suffix in (ARROW, PARQUET, ".zip"):
            path = path.parent
        return path if find_table(path).is_file() else None

    def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        table = ExistingTable.inspect(find_table(path))
        samples: set[tuple[str, int | None]] = set()
        rows = 0
        for batch in table.read_batches():
            names = batch.column("name").to_pylist()
            frames: list[int | None] = [None] * len(names)
            if "frame" in batch.schema.names:
                frames = batch.column("frame").to_pylist()
            samples |= set(zip(names, frames, strict=True))
            rows += len(names)
        files = set[str]()
        for share, name in _files(path):
            files.add(name)
            yield share
        pictures = set(filter(None, map(_picture_key, files)))
        for name, frame in sorted(samples, key=str):
            keys = {name} if frame is None else {f"{name}_{frame}", f"{name}_{frame:03d}"}
            if pictures.isdisjoint(key.lower() for key in keys):
                which = name if frame is None else f"{frame} of {name}"
                raise ArchiveError(f"{path}: sample {which} has no picture")
        report.checked.append(
            f"{rows} rows in schema {table.schema}, {len(samples)} samples, {len(files)} files"
        )
        if table.obstacle is not None:
            report.remarks.append(table.obstacle)
        elif table.foreign:
            added = ", ".join(field.name for field in table.foreign)
            report.remarks.append(f"{table.path}: columns that others added: {added}")

    def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        client = need("edgefirst_client")
        arrow = find_table(path)
        if ExistingTable.inspect(arrow).schema != CURRENT:
            report.unchecked.append("edgefirst-client reads the present schema only")
            return
        version = client.read_dataset_metadata(arrow).schema_version
        report.checked.append(f"edgefirst-client: metadata of schema {version}")
        yield 0.5
        if not (path / path.name).is_dir():
            report.unchecked.append(
                "the files with edgefirst-client's validate-snapshot: it needs the folder form "
                "(edgefirst.container=folder)"
            )
            return
        beside = Path(sys.executable).with_name("edgefirst-client")
        command = str(beside) if beside.is_file() else shutil.which("edgefirst-client")
        if command is None:
            report.unchecked.append("the files: the command edgefirst-client is not installed")
            return
        done = subprocess.run(
            [command, "validate-snapshot", str(path), "-vv"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
        # It ends with 0 even where files are missing, and calls all but pictures unreferenced.
        bad = ("missing", "error", "invalid")
        told = [
            line
            for line in lines
            if any(word in line.lower() for word in bad)
            and not any(word in line for word in _EXPECTED)
        ]
        if done.returncode or told:
            raise ArchiveError("validate-snapshot: " + "; ".join(told or lines[-3:]))
        report.checked.append("edgefirst-client: validate-snapshot finds every file")


def _picture_key(name: str) -> str | None:
    """Return the sample of a picture, as edgefirst-client finds it; None for another file."""
    stem = name.rpartition("/")[2].lower()
    ending = next((ending for ending in _PICTURES if stem.endswith(ending)), None)
    if ending is None:
        return None
    base, _, sensor = stem.removesuffix(ending).rpartition(".")
    return base if sensor == "camera" else None if base else sensor


def _files(path: Path) -> Iterator[tuple[float, str]]:
    """Read all files of a dataset; yield the finished share and each file's name."""
    folder = path / path.name
    if folder.is_dir():
        yield from _read_all(
            sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()),
            lambda name: (folder / name).read_bytes(),
        )
        return
    place = path / f"{path.name}.zip"
    try:
        with zipfile.ZipFile(place) as container:
            yield from _read_all(container.namelist(), container.read)  # compares the CRC, too
    except (zipfile.BadZipFile, EOFError, FileNotFoundError) as error:
        raise ArchiveError(f"{place}: is missing or damaged: {error}") from None


def _read_all(names: list[str], read: Callable[[str], bytes]) -> Iterator[tuple[float, str]]:
    for number, name in enumerate(names):
        if not read(name):
            raise ArchiveError(f"{name}: is empty")
        yield number / len(names), name


CHECK = EdgeFirstCheck()
