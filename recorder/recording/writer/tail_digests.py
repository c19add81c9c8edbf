"""Digests of uncommitted bytes, with which recovery can prove these bytes.

The digest of bytes is passed to the kernel before the bytes themselves.  It goes into one of two
scratch files, which are never synced.  Commits overwrite these files in turn, since the digests
from before a commit are needed until that commit is durable.

An entry is the CRC-32 of the rest, the length of the array in bytes, and a msgpack array of: the
path relative to the session, start and end of the range, its digest, the file's patchable ranges
that are in no commit, and the number of times the session had been resumed.  Entries of an earlier
writer prove nothing: the disk may contain an earlier writer's version of one file of a stream and
the current version of another.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgpack

from recorder.common.files import Disk
from recorder.session import layout
from recorder.session.journal.digests import Announcement, Leaf

_HEAD = struct.Struct("<II")


class TailDigests:
    """Writer of the entries; its caller holds the session's lock.

    Attributes:
        session: the session's folder.
        resumes: number of times the session was resumed.
    """

    def __init__(self, disk: Disk, session: Path, names: Sequence[str] = layout.TAILS) -> None:
        self.session = session
        self.resumes = 0
        self._files = [disk.scratch(layout.private(session, name)) for name in names]
        self._now = 0
        self._end = 0
        self._failed = False

    def write(self, entries: Sequence[Announcement]) -> None:
        """Pass entries to the kernel; raise the first OSError, and do nothing after it."""
        if self._failed or not entries:
            return
        data = encode_entries(self.session, entries, self.resumes)
        try:
            self._files[self._now].write(self._end, data)
        except OSError:
            self._failed = True
            raise
        self._end += len(data)

    def turn(self) -> None:
        """Switch files at the begin of a commit; the previous commit is durable."""
        if len(self._files) > 1:
            self._now, self._end = 1 - self._now, 0

    def close(self) -> None:
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()


def encode_entries(session: Path, entries: Iterable[Announcement], resumes: int) -> bytes:
    """Encode entries in the format of the scratch files."""
    data = bytearray()
    for entry in entries:
        path, leaf = entry.path.relative_to(session).as_posix(), entry.leaf
        body = msgpack.packb([path, leaf.start, leaf.end, leaf.digest, entry.ranges, resumes])
        size = len(body).to_bytes(4, "little")
        data += zlib.crc32(size + body).to_bytes(4, "little") + size + body
    return bytes(data)


def read_tail_digests(session: Path, resumes: int) -> list[Announcement]:
    """Read the entries of one writer of a session that was not closed.

    Args:
        session: the session's folder.
        resumes: number of times the session had been resumed when the entries were written.
    """
    found: list[Announcement] = []
    for name in (*layout.TAILS, *layout.RECOVERY_TAILS):
        with contextlib.suppress(OSError):
            data = layout.private(session, name).read_bytes()
            found += (entry for entry, writer in _decode(session, data) if writer == resumes)
    return found


def _decode(session: Path, data: bytes) -> Iterator[tuple[Announcement, int]]:
    at = 0
    while at + _HEAD.size <= len(data):
        crc, size = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        if end > len(data) or zlib.crc32(memoryview(data)[at + 4 : end]) != crc:
            return
        try:
            path, start, stop, digest, ranges, resumes = msgpack.unpackb(
                data[at + _HEAD.size : end]
            )
        except ValueError:  # the checksum of zeros is zero
            return
        ranges = tuple((offset, count) for offset, count in ranges)
        entry = Announcement(session / path, Leaf(start, stop, digest), ranges)
        yield entry, resumes
        at = end
