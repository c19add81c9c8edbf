"""Containers for the files of samples: a ZIP of stored members, or a folder.

::

    with ZipContainer(folder / "name.zip") as container:
        container.keep(old, lambda sequence: sequence != "replaced")
        container.add("seq/seq_000.camera.jpeg", Payload(jpeg), t_ns)

Both are written incrementally; a ZIP's central directory is spooled in a separate file.  The kernel
copies the bytes of an older ZIP; files of an older folder are hard-linked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from recorder.common.errors import ArchiveError, StorageError
from recorder.common.files import FILE_MODE, FOLDER_MODE, Closeable
from recorder.common.syscalls import begin_writeback, sync_file_system
from recorder.formats.zip import zlib

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
_WIDE = 0xFFFFFFFF  # placeholder of a value in the extra field
_LONGEST_COMMENT = 0xFFFF
UTF8 = 1 << 11
"""Flag of a member whose name is UTF-8."""


@dataclass(frozen=True)
class Member:
    """Member of a ZIP.

    Attributes:
        name: name as stored.
        method: method of compression; 0: not compressed.
        crc: CRC-32 of the content.
        stored, size: bytes in the ZIP, and bytes of the content.
        offset: offset of the local header.
        changed: DOS time and date.
        flags: only the flag for UTF-8 names.
    """

    name: bytes
    method: int
    crc: int
    stored: int
    size: int
    offset: int
    changed: tuple[int, int]
    flags: int = 0

    def data_offset(self, file: IO[bytes], where: str) -> int:
        """Return the offset of the member's data.

        Raises:
            ArchiveError: the local header is missing.
        """
        head = os.pread(file.fileno(), LOCAL.size, self.offset)
        if len(head) < LOCAL.size or not head.startswith(b"PK\3\4"):
            raise ArchiveError(f"{where}: is damaged: no member at byte {self.offset}")
        name, extra = LOCAL.unpack(head)[-2:]
        return int(self.offset + LOCAL.size + name + extra)


def read_members(file: IO[bytes], where: str) -> Iterator[Member]:
    """Yield all members in the order of the central directory, with constant memory.

    Raises:
        ArchiveError: the file is not a ZIP, or is damaged; the message begins with `where`.
    """
    offset, count = _directory(file, where)
    file.seek(offset)
    for number in range(count):
        head = file.read(CENTRAL.size)
        if len(head) < CENTRAL.size or not head.startswith(b"PK\1\2"):
            raise ArchiveError(f"{where}: is damaged: entry {number} of its directory")
        _, _, _, flags, method, clock, date, crc, stored, size, *more = CENTRAL.unpack(head)
        name_size, extra_size, comment_size, _, _, _, place = more
        name, extra = file.read(name_size), file.read(extra_size)
        file.seek(comment_size, os.SEEK_CUR)
        if flags & 1:
            raise ArchiveError(f"{where}: {name!r} is encrypted")
        wide = _wide_values(extra)
        try:
            size, stored, place = (
                next(wide) if value == _WIDE else value for value in (size, stored, place)
            )
        except (StopIteration, RuntimeError):
            raise ArchiveError(f"{where}: is damaged: {name!r} lacks its sizes") from None
        at = file.tell()
        yield Member(name, method, crc, stored, size, place, (clock, date), flags & UTF8)
        file.seek(at)


def _wide_values(extra: bytes) -> Iterator[int]:
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            for place in range(at + 4, at + 4 + size - 7, 8):
                if place + 8 <= len(extra):
                    yield struct.unpack_from("<Q", extra, place)[0]
        at += 4 + size


def _directory(file: IO[bytes], where: str) -> tuple[int, int]:
    """Return the offset of the central directory and its number of entries."""
    end = file.seek(0, os.SEEK_END)
    start = max(0, end - END.size - _LONGEST_COMMENT - LOCATOR64.size)
    file.seek(start)
    tail = file.read()
    at = len(tail)
    while (at := tail.rfind(b"PK\5\6", 0, at)) >= 0:
        # A comment may contain the same bytes; the length in the true record matches the file.
        if at + END.size + int.from_bytes(tail[at + END.size - 2 : at + END.size], "little") == len(
            tail
        ):
            break
    if at < 0:
        raise ArchiveError(f"{where}: is not a ZIP, or has no end record")
    _, _, _, _, count, _, offset, _ = END.unpack_from(tail, at)
    if at >= LOCATOR64.size and tail[at - LOCATOR64.size :].startswith(b"PK\6\7"):
        place = LOCATOR64.unpack_from(tail, at - LOCATOR64.size)[2]
        record = os.pread(file.fileno(), END64.size, place)
        if len(record) < END64.size or not record.startswith(b"PK\6\6"):
            raise ArchiveError(f"{where}: is damaged: no ZIP64 end at byte {place}")
        *_, count, _, offset = END64.unpack(record)
    return offset, count


_BOUND, _MOST = _WIDE, 0xFFFF  # ZIP64 begins at these sizes and offsets, and counts
_PLAIN, _ZIP64 = 20, 45  # versions needed to read
_UNIX = 3 << 8
_WRITEBACK = 64 << 20
_SPOOL_BUFFER = 1 << 16
_PADDING = struct.Struct("<3H")  # as in Android's zipalign: id, size, alignment; then zeros
_PADDING_ID = 0xD935
_LARGE = 64 << 10
_BLOCK = 4096

Keep = Callable[[str], bool]
"""Function that returns whether to keep the files of the folder of that name."""


@dataclass
class Payload:
    """Bytes of a file; several samples may share them.

    Attributes:
        data: the bytes, which must not change any more.
        crc: CRC-32 of the bytes, once computed.
        path: a file that contains the bytes, once written.
    """

    data: bytes | memoryview
    crc: int | None = None
    path: Path | None = None


class Container(Closeable):
    """Container of files; complete and synced after `finish`.

    Attributes:
        count: number of files.
    """

    count = 0

    @abstractmethod
    def add(self, name: str, payload: Payload, t_ns: int) -> None:
        """Add a file.

        Args:
            name: ``SEQ/FILE``; must be unique.
            payload: content of the file.
            t_ns: time of the measurement, stored as the file's modification time.
        """

    @abstractmethod
    def keep(self, old: Path, wanted: Keep) -> None:
        """Take over the files of an older container.

        Raises:
            ArchiveError: the older container is damaged; the message names it.
        """

    @abstractmethod
    def finish(self) -> None:
        """Complete and sync the container."""


class ZipContainer(Container):
    """A ZIP (PKWARE, "APPNOTE.TXT", 6.3.10), with ZIP64 where needed.

    Data of large files begin at a page of the ZIP, so that readers can map them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        self._length = self._begun = 0
        self._central: IO[bytes] = TemporaryFile(  # noqa: SIM115
            dir=path.parent, buffering=_SPOOL_BUFFER
        )

    def add(self, name: str, payload: Payload, t_ns: int) -> None:
        if payload.crc is None:
            payload.crc = zlib.crc32(payload.data)
        size = len(payload.data)
        flags = 0 if name.isascii() else UTF8
        changed = dos_time(t_ns // 1_000_000_000)
        place = self._length
        member = Member(name.encode(), 0, payload.crc, size, size, place, changed, flags)
        self._append(self._begin(member, aligned=size >= _LARGE))
        self._append(payload.data)

    def keep(self, old: Path, wanted: Keep) -> None:
        with old.open("rb") as file:
            for member in read_members(file, str(old)):
                name = member.name.decode("utf-8", "replace")
                if wanted(name.partition("/")[0]):
                    start = member.data_offset(file, str(old))
                    if start + member.stored > os.fstat(file.fileno()).st_size:
                        raise ArchiveError(f"{old}: is damaged: the file ends within {name}")
                    self._append(self._begin(replace(member, offset=self._length)))
                    self._copy(file.fileno(), start, member.stored)

    def _begin(self, member: Member, *, aligned: bool = False) -> bytes:
        """Return a member's local header; also spool its entry of the central directory."""
        wide = member.stored >= _BOUND or member.size >= _BOUND
        sizes = (_WIDE, _WIDE) if wide else (member.stored, member.size)
        extra = struct.pack("<HHQQ", 1, 16, member.size, member.stored) if wide else b""
        needed = _ZIP64 if wide else _PLAIN
        clock, date = member.changed
        about = (needed, member.flags, member.method, clock, date, member.crc, *sizes)
        head = LOCAL.size + len(member.name) + len(extra)
        padding = _padding(member.offset + head) if aligned else b""
        lengths = (len(member.name), len(extra) + len(padding))
        local = LOCAL.pack(b"PK\3\4", *about, *lengths) + member.name + extra + padding
        far = member.offset >= _BOUND
        if far:
            needed = _ZIP64
            extra = struct.pack("<QQ", member.size, member.stored) if wide else b""
            extra += struct.pack("<Q", member.offset)
            extra = struct.pack("<HH", 1, len(extra)) + extra
        offset = _WIDE if far else member.offset
        mode = (0o100000 | FILE_MODE) << 16
        about = (needed, *about[1:])
        rest = (len(member.name), len(extra), 0, 0, 0, mode, offset)
        self._central.write(CENTRAL.pack(b"PK\1\2", _UNIX | _ZIP64, *about, *rest))
        self._central.write(member.name + extra)
        self.count += 1
        return local

    def _copy(self, source: int, offset: int, size: int) -> None:
        if not _copy_all(source, self._fd, offset, size):
            raise ArchiveError(f"{self._path.name}: the older ZIP became shorter meanwhile")
        self._grow(size)

    def _append(self, data: bytes | memoryview) -> None:
        _write_all(self._fd, data)
        self._grow(len(data))

    def _grow(self, size: int) -> None:
        """Count appended bytes; start writing them early, so that the final sync is short."""
        self._length += size
        if (new := self._length - self._begun) >= _WRITEBACK:
            begin_writeback(self._fd, self._begun, new)
            self._begun = self._length

    def finish(self) -> None:
        start, size = self._length, self._central.tell()
        self._central.seek(0)
        while part := self._central.read(1 << 20):
            self._append(part)
        if self.count >= _MOST or size >= _BOUND or start >= _BOUND:
            end64 = self._length
            versions = (_UNIX | _ZIP64, _ZIP64, 0, 0)
            self._append(
                END64.pack(b"PK\6\6", 44, *versions, self.count, self.count, size, start)
                + LOCATOR64.pack(b"PK\6\7", 0, end64, 1)
            )
        count, size = min(self.count, 0xFFFF), min(size, _WIDE)
        self._append(END.pack(b"PK\5\6", 0, 0, count, count, size, min(start, _WIDE), 0))
        os.fsync(self._fd)

    def close(self) -> None:
        self._central.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class FolderContainer(Container):
    """A folder with one folder per sequence; files of equal content may be hard links."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(FOLDER_MODE)
        self._folders: set[str] = set()

    def add(self, name: str, payload: Payload, t_ns: int) -> None:
        sequence = name.partition("/")[0]
        if sequence not in self._folders:
            (self._path / sequence).mkdir(FOLDER_MODE, exist_ok=True)
            self._folders.add(sequence)
        path = self._path / name
        self.count += 1
        if payload.path is not None and _link_file(payload.path, path):
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(path, flags, FILE_MODE)
        try:
            _write_all(fd, payload.data)
            os.utime(fd, ns=(t_ns, t_ns))
        finally:
            os.close(fd)
        payload.path = path

    def keep(self, old: Path, wanted: Keep) -> None:
        for source in old.rglob("*"):
            place = source.relative_to(old)
            if source.is_dir() or (len(place.parts) > 1 and not wanted(place.parts[0])):
                continue
            target = self._path / place
            target.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            if not _link_file(source, target):
                _copy_file(source, target)
            self.count += 1

    def finish(self) -> None:
        """Sync the file system once: one call per file takes minutes for many small files."""
        try:
            sync_file_system(self._path)
        except OSError as error:
            raise StorageError(f"{self._path}: cannot be synced: {error.strerror}") from None

    def close(self) -> None:
        pass


def _padding(offset: int) -> bytes:
    """Return an extra field that pads the local header to the end of a block."""
    zeros = -(offset + _PADDING.size) % _BLOCK
    return _PADDING.pack(_PADDING_ID, _PADDING.size - 4 + zeros, _BLOCK) + bytes(zeros)


@functools.lru_cache(maxsize=8)
def dos_time(seconds: int) -> tuple[int, int]:
    """Return the DOS time and date of an epoch time, in UTC, with a resolution of two seconds."""
    moment = datetime.fromtimestamp(seconds, UTC)
    if not 1980 <= moment.year <= 2107:
        return 0, 1 << 5 | 1
    clock = moment.hour << 11 | moment.minute << 5 | moment.second // 2
    return clock, (moment.year - 1980) << 9 | moment.month << 5 | moment.day


def _write_all(fd: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _link_file(source: Path, target: Path) -> bool:
    with contextlib.suppress(OSError):  # another file system, or too many links
        os.link(source, target, follow_symlinks=False)
        return True
    return False


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("xb") as new:
        if not _copy_all(old.fileno(), new.fileno(), 0, os.fstat(old.fileno()).st_size):
            raise ArchiveError(f"{source}: became shorter while it was copied")
    stat = source.stat()
    os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _copy_all(source: int, target: int, offset: int, size: int) -> bool:
    """Append bytes of another file; return whether the other file had all of them."""
    end = offset + size
    while offset < end and (done := _copy_range(source, target, offset, end - offset)):
        offset += done
    return offset >= end


def _copy_range(source: int, target: int, offset: int, size: int) -> int:
    """Append bytes of another file, in the kernel if possible; return the number of bytes."""
    size = min(size, 1 << 26)
    with contextlib.suppress(OSError):
        return os.copy_file_range(source, target, size, offset)
    return os.write(target, os.pread(source, min(size, 1 << 20), offset))
