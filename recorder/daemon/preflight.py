"""The disk, looked at before anything is recorded."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from recorder.contract.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class RootReport:
    """The state of the folder in which sessions are made.

    Attributes:
        root: the folder, absolute.
        exists: it is there already; else it can be made, unless there is a problem.
        free_bytes: free space of its file system, for this user; None where unknown.
        floor_bytes: ``storage.min_free_gb`` in bytes.
        problem: why nothing could be recorded there, one line; None where it could.
    """

    root: Path
    exists: bool
    free_bytes: int | None
    floor_bytes: int
    problem: str | None = None


def check_root(root: Path, storage: StorageSettings) -> RootReport:
    """Whether a session could be recorded below `root`; leaves nothing behind.

    A folder that is not there counts as good where it could be made: its nearest parent that is
    there takes a file.
    """
    floor = storage.min_free_bytes
    exists, free = False, None

    def report(problem: str | None) -> RootReport:
        return RootReport(root, exists, free, floor, problem)

    try:
        exists = root.exists()
        place = root
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            return report(f"{place} is not a folder")
        free = shutil.disk_usage(place).free
        # Asking for permissions is not enough: only writing shows a read-only mount to root.
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\0")
            file.flush()
    except OSError as error:
        return report(f"{root} cannot be written to: {error.strerror}")
    if storage.require_mount and _mount_point(place) == Path("/"):
        return report(f"{root} is on no mounted volume, and storage.require_mount is set")
    if free < floor:
        return report(
            f"{root} has {free / 1e9:.1f} GB free, less than storage.min_free_gb ({floor / 1e9:g})"
        )
    return report(None)


def _mount_point(path: Path) -> Path:
    path = path.resolve()
    while not path.is_mount():
        path = path.parent
    return path
