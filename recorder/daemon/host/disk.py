"""What a disk can do: its file system, how fast it takes data, how long a sync takes."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MEASURED_S = 1.0
"""How long a disk is measured."""
_BLOCK = 1 << 20
_SYNC_EVERY = 4  # blocks
_NO_CHECKS = {
    "exfat": "exFAT has no journal: a power cut may cost the whole file system",
    "vfat": "FAT has no journal, and no file above 4 GB",
    "msdos": "FAT has no journal, and no file above 4 GB",
    "ntfs": "NTFS under Linux: a sync may not make data durable",
    "ntfs3": "NTFS under Linux: a sync may not make data durable",
    "fuseblk": "a FUSE file system: durability of a sync depends on it",
    "nfs": "a network file system: recording depends on the network",
    "nfs4": "a network file system: recording depends on the network",
    "cifs": "a network file system: recording depends on the network",
    "smb3": "a network file system: recording depends on the network",
    "9p": "a network file system: recording depends on the host",
    "overlay": "an overlay, as in a container: recordings may be deleted with it",
    "tmpfs": "it is in memory: recordings are lost at power-off",
    "ramfs": "it is in memory: recordings are lost at power-off",
}


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Where a path lies.

    Attributes:
        mount_point: of its file system.
        kind: as the kernel names it (ext4, xfs, exfat, ...).
        source: the device or server.
        warning: why one should not record there; None if one may.
    """

    mount_point: Path
    kind: str
    source: str
    warning: str | None


def nearest(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> FileSystem | None:
    """The file system that a path lies on (its nearest parent's where it is not there yet).

    Args:
        path: any path.
        mounts: the kernel's list, as in proc(5).

    Returns:
        None if the kernel's list cannot be read.
    """
    path = nearest(path).resolve()
    best: FileSystem | None = None
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        fields, _, more = line.partition(" - ")
        kind, source = [*more.split(" "), "", ""][:2]
        point = Path(_unescaped(fields.split(" ")[4]))
        if path != point and point not in path.parents:
            continue
        if best is None or len(point.parts) >= len(best.mount_point.parts):  # the latest counts
            best = FileSystem(point, kind, _unescaped(source), _NO_CHECKS.get(kind))
    return best


def mounted_below(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """What is mounted in a folder, at any depth, or on it; if only another folder of the same disk.

    Raises:
        OSError: the path, or the kernel's list, cannot be read.
    """
    path = path.resolve()
    lines = mounts.read_text(errors="surrogateescape").splitlines()
    points = [Path(_unescaped(line.split(" ")[4])) for line in lines]
    return [point for point in points if point == path or path in point.parents]


def _unescaped(text: str) -> str:
    """The kernel's list has blanks and such characters as octal numbers."""
    raw = text.encode(errors="surrogateescape")
    return raw.decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """What a short measurement found.

    Attributes:
        bytes_per_second: written and synced.
        sync_p99_s: the time that the slowest of a hundred syncs took.
        syncs: so many were measured.
    """

    bytes_per_second: float
    sync_p99_s: float
    syncs: int


def measure(folder: Path, seconds: float = MEASURED_S, most_bytes: int = 256 << 20) -> DiskSpeed:
    """Write a file as the writer would, with a sync every 4 MiB, and remove it.

    Args:
        folder: exists.
        seconds: roughly how long.
        most_bytes: no more than this is written.

    Raises:
        OSError: the disk refuses.
    """
    block = os.urandom(_BLOCK)  # what compresses well would flatter some disks
    syncs: list[float] = []
    written = 0
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".recorder-check-") as file:
        fd = file.fileno()
        start = time.perf_counter()
        while True:
            for _ in range(_SYNC_EVERY):
                written += os.write(fd, block)
            before = time.perf_counter()
            os.fdatasync(fd)
            now = time.perf_counter()
            syncs.append(now - before)
            if now - start >= seconds or written >= most_bytes:
                break
        took = now - start
        with contextlib.suppress(OSError):  # or it will be written back for nothing
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    syncs.sort()
    return DiskSpeed(written / took, syncs[max(0, math.ceil(len(syncs) * 0.99) - 1)], len(syncs))
