"""File system, write rate and sync time of a disk."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MEASURED_S = 1.0
"""Duration of a measurement, s."""
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
    """File system of a path.

    Attributes:
        mount_point: where the file system is mounted.
        kind: the kernel's name of its type (ext4, xfs, exfat, ...).
        source: the device or server.
        warning: why recording there is not advised; None without a reason.
    """

    mount_point: Path
    kind: str
    source: str
    warning: str | None


def nearest(path: Path) -> Path:
    """Return the path if it exists, else its nearest existing parent."""
    return next(place for place in (path, *path.parents) if place.exists())


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> FileSystem | None:
    """Return the file system of a path; for a missing path, that of its nearest parent.

    Args:
        path: any path.
        mounts: the kernel's list of mounts (proc(5)).

    Returns:
        The file system; None if the kernel's list cannot be read.
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
        point = Path(_unescape(fields.split(" ")[4]))
        if path != point and point not in path.parents:
            continue
        if best is None or len(point.parts) >= len(best.mount_point.parts):  # later mounts hide
            best = FileSystem(point, kind, _unescape(source), _NO_CHECKS.get(kind))
    return best


def mounted_below(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Return the mount points at or below a folder, including bind mounts of the same disk.

    Raises:
        OSError: the path, or the kernel's list, cannot be read.
    """
    path = path.resolve()
    lines = mounts.read_text(errors="surrogateescape").splitlines()
    points = [Path(_unescape(line.split(" ")[4])) for line in lines]
    return [point for point in points if point == path or path in point.parents]


def _unescape(text: str) -> str:
    """Decode the octal escapes of the kernel's list, such as those of spaces."""
    raw = text.encode(errors="surrogateescape")
    return raw.decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """Result of a short measurement.

    Attributes:
        bytes_per_second: rate of written and synced data.
        sync_p99_s: 99th percentile of the syncs' durations, s.
        syncs: number of measured syncs.
    """

    bytes_per_second: float
    sync_p99_s: float
    syncs: int


def measure(folder: Path, seconds: float = MEASURED_S, most_bytes: int = 256 << 20) -> DiskSpeed:
    """Measure a disk: write a file with a sync every 4 MiB, as the writer does, and remove it.

    Args:
        folder: an existing folder.
        seconds: approximate duration.
        most_bytes: limit of the written bytes.

    Raises:
        OSError: the disk cannot be written to.
    """
    block = os.urandom(_BLOCK)  # random: some disks compress data
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
        with contextlib.suppress(OSError):  # avoids a needless write-back of the removed file
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    syncs.sort()
    return DiskSpeed(written / took, syncs[max(0, math.ceil(len(syncs) * 0.99) - 1)], len(syncs))
