"""Digests of bytes that are not committed yet, so that recovery can prove these bytes.

The digest of some bytes is handed to the kernel before the bytes are.  It goes into one of two
scratch files, which are overwritten in turn at every commit and never synced: the digests from
before a commit are needed until that commit is durable.

An entry is the CRC-32 of the rest, the number of its bytes, and a msgpack array of the path
relative to the session, start and end of the range, its digest, the patchable ranges of the file
that no commit has yet, and how often the session had been resumed.  Entries of an earlier writer
prove nothing: of two files of a stream, the disk may hold one as the earlier writer left it.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgpack

from recorder.formats.digests import Announcement, Leaf
from recorder.formats.disk import Disk
from recorder.session import layout

_HEAD = struct.Struct("<II")


class TailDigests:
    """Writes the entries; its caller holds the session's lock.

    Attributes:
        session: the session's folder.
        resumes: how often the session was resumed.
    """

    def __init__(self, disk: Disk, session: Path, names: Sequence[str] = layout.TAILS) -> None:
        self.session = session
        self.resumes = 0
        self._files = [disk.scratch(layout.private(session, name)) for name in names]
        self._now = 0
        self._end = 0
        self._failed = False

    def write(self, entries: Sequence[Announcement]) -> None:
        """Hand entries to the kernel; does nothing after the first error (OSError)."""
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
        """Begin a commit; the one before it is durable."""
        if len(self._files) > 1:
            self._now, self._end = 1 - self._now, 0

    def close(self) -> None:
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()


def encode_entries(session: Path, entries: Iterable[Announcement], resumes: int) -> bytes:
    """Entries as the scratch files hold them."""
    data = bytearray()
    for entry in entries:
        path, leaf = entry.path.relative_to(session).as_posix(), entry.leaf
        body = msgpack.packb([path, leaf.start, leaf.end, leaf.digest, entry.ranges, resumes])
        size = len(body).to_bytes(4, "little")
        data += zlib.crc32(size + body).to_bytes(4, "little") + size + body
    return bytes(data)


def read_tail_digests(session: Path, resumes: int) -> list[Announcement]:
    """The entries of one writer of a session that was not closed.

    Args:
        session: its folder.
        resumes: how often it had been resumed when the entries were written.
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
