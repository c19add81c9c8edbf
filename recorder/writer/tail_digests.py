"""Digests of bytes that are not committed yet, so that recovery can prove these bytes.

The digest of some bytes is handed to the kernel before the bytes are.  It goes into one of two
scratch files, which are overwritten in turn at every commit and never synced: the digests from
before a commit are needed until that commit is durable.

An entry is the CRC-32 of the rest, the number of its bytes, and a msgpack array of the path
relative to the session, start and end of the range, its digest, and the patchable ranges of the
file that no commit has yet.  A stale entry does no harm: bytes with its digest were recorded at
its range.
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
    """

    def __init__(self, disk: Disk, session: Path, names: Sequence[str] = layout.TAILS) -> None:
        self.session = session
        self._files = [disk.scratch(layout.private(session, name)) for name in names]
        self._now = 0
        self._end = 0
        self._failed = False

    def write(self, entries: Sequence[Announcement]) -> None:
        """Hand entries to the kernel; does nothing after the first error (OSError)."""
        if self._failed or not entries:
            return
        data = encode_entries(self.session, entries)
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


def encode_entries(session: Path, entries: Iterable[Announcement]) -> bytes:
    """Entries as the scratch files hold them."""
    data = bytearray()
    for entry in entries:
        path, leaf = entry.path.relative_to(session).as_posix(), entry.leaf
        body = msgpack.packb([path, leaf.start, leaf.end, leaf.digest, entry.ranges])
        size = len(body).to_bytes(4, "little")
        data += zlib.crc32(size + body).to_bytes(4, "little") + size + body
    return bytes(data)


def read_tail_digests(session: Path) -> list[Announcement]:
    """All entries of a session that was not closed."""
    found: list[Announcement] = []
    for name in (*layout.TAILS, *layout.RECOVERY_TAILS):
        with contextlib.suppress(OSError):
            found += _decode(session, layout.private(session, name).read_bytes())
    return found


def _decode(session: Path, data: bytes) -> Iterator[Announcement]:
    at = 0
    while at + _HEAD.size <= len(data):
        crc, size = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        if end > len(data) or zlib.crc32(memoryview(data)[at + 4 : end]) != crc:
            return
        try:
            path, start, stop, digest, ranges = msgpack.unpackb(data[at + _HEAD.size : end])
        except ValueError:  # the checksum of zeros is zero
            return
        ranges = tuple((offset, count) for offset, count in ranges)
        yield Announcement(session / path, Leaf(start, stop, digest), ranges)
        at = end
