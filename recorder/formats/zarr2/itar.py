"""Indexed tar files (``.itar``) of NCore.

The file is a plain tar file of the keys, followed by an index that plain tar programs ignore. The
index is an xz stream of CBOR ``{items, offset_datas, sizes}``, sorted by offset, padded to a block,
and a last block with the offset of the index.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
import tarfile
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recorder.common.errors import FormatError
from recorder.common.files import Buffer, Disk, PosixDisk, buffer_size
from recorder.formats.zarr2 import documents
from recorder.formats.zarr2.stores import (
    COPY_BYTES,
    BackgroundWriter,
    SpillFile,
    remove,
    storage_errors,
)

BLOCK = tarfile.BLOCKSIZE
END_MAGIC = b"itar"
END_TYPE_CBOR_XZ = 1
END_FORMAT = struct.Struct("<4sIQI")
"""Last block: magic, type, offset and size of the index."""
GATHER_BYTES = 1 << 20
_INDEX_PRESET = 3  # a tenth larger than preset 6
_MAX_PLAIN_SIZE = 8**11 - 1
_PADDING = bytes(BLOCK)
_SMALL = 16 << 10  # members up to this size are copied together
_INDEX_ITEMS = 2048
_HEADER = struct.Struct("100s24s12s12s8s189s155s12s")
_FIELDS = slice(100, 124), slice(136, 148), slice(156, 345), slice(500, None)
_ORDINARY = tarfile.TarInfo("").tobuf(tarfile.USTAR_FORMAT)
_ACCESS, _TIME, _KIND, _DEVICE = (_ORDINARY[s] for s in _FIELDS)
_BLANK_SUM = sum(_ORDINARY) - sum(_ORDINARY[124:136]) - sum(_ORDINARY[148:156]) + 8 * ord(" ")


def member_header(key: str, size: int) -> bytes:
    """Make the blocks before a member's bytes (POSIX pax interchange format).

    Nearly all headers differ in name and size only, and are made from one template.
    """
    name, prefix = key.encode(), b""
    if len(name) > 100:
        cut = name.rfind(b"/", 0, 156)
        if cut > 0:
            prefix, name = name[:cut], name[cut + 1 :]
    if len(name) > 100 or size > _MAX_PLAIN_SIZE or not key.isascii():
        info = tarfile.TarInfo(key)
        info.size = size
        return info.tobuf(tarfile.PAX_FORMAT)
    digits = b"%011o\0" % size
    # The low half of Adler-32 is 1 and the sum of the bytes, which is far below its modulus here.
    total = _BLANK_SUM - 1 + (zlib.adler32(b"".join((name, prefix, digits))) & 0xFFFF)
    checksum = b"%06o\0 " % total
    return _HEADER.pack(name, _ACCESS, digits, _TIME, checksum, _KIND, prefix, _DEVICE)


class ItarStore:
    """Store in an ``.itar`` file, written as a stream: memory use does not grow with the file."""

    def __init__(self, path: Path, *, digest: bool = False, disk: Disk | None = None) -> None:
        """Create the file; raise StorageError if it exists.

        Args:
            path: path of the new file.
            digest: whether to compute its MD5 while it is written, in a thread.
            disk: disk that writes the file.
        """
        self.path = path
        self.md5: str | None = None
        with storage_errors(path):
            self._file = (disk or PosixDisk()).create(path)
        self._parts: list[Buffer] = []
        self._small = bytearray()  # what follows the parts
        self._gathered = 0
        self._hash = _FollowingMd5(path) if digest else None
        self._index = _Index(path.parent)
        self._length = 0
        self._closed = False

    def put(self, key: str, data: Buffer) -> None:
        size = buffer_size(data)
        if size > _SMALL:
            self._begin(key, size)
            self._append(data)
            self._pad(size)
            return
        small = self._small
        before = len(small)
        small += member_header(key, size)
        self._index.add(key, self._length + len(small) - before, size)
        small += data
        small += _PADDING[: -size % BLOCK]
        self._grow(len(small) - before)

    def put_again(self, key: str, data: bytes) -> None:
        self.put(key, data)

    def put_parts(self, key: str, size: int, parts: Iterable[Buffer]) -> None:
        self._begin(key, size)
        end = self._length + size
        for part in parts:
            self._append(part)
        if self._length != end:
            raise FormatError(f"{self.path}: {key} is {self._length - end} bytes too long")
        self._pad(size)

    def _begin(self, key: str, size: int) -> None:
        self._append(member_header(key, size))
        self._index.add(key, self._length, size)

    def _append(self, data: Buffer) -> None:
        if self._small:
            self._parts.append(self._small)
            self._small = bytearray()
        self._parts.append(data)
        self._grow(buffer_size(data))

    def _grow(self, size: int) -> None:
        self._gathered += size
        self._length += size
        if self._gathered >= GATHER_BYTES:
            self._flush()

    def _pad(self, size: int) -> None:
        if size % BLOCK:
            self._append(_PADDING[: -size % BLOCK])

    def _flush(self) -> None:
        parts = [*self._parts, self._small]
        self._parts, self._small, self._gathered = [], bytearray(), 0
        with storage_errors(self.path):
            for part in parts:
                self._file.append(part)
            self._file.flush()
            if self._hash is not None:
                self._hash.set_length(self._length)

    def close(self) -> None:
        end = 2 * BLOCK
        self._append(bytes(end + -(self._length + end) % tarfile.RECORDSIZE))
        offset, size = self._length, 0
        for part in self._index.encode():
            self._append(part)
            size += len(part)
        if size >= 1 << 32:
            raise FormatError(f"{self.path}: its index of {size} bytes is more than itar can hold")
        self._pad(size)
        end_block = END_FORMAT.pack(END_MAGIC, END_TYPE_CBOR_XZ, offset, size)
        self._append(end_block.ljust(BLOCK, b"\0"))
        self._flush()
        with storage_errors(self.path):
            self._file.sync()
            self._file.close()
        self._closed = True
        self._index.close()
        if self._hash is not None:
            self.md5 = self._hash.finish()

    def discard(self) -> None:
        self._parts.clear()
        self._small.clear()
        self._index.close()
        if self._hash is not None:
            self._hash.abandon()
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):  # unwritten bytes are not needed
                self._file.close()
        with storage_errors(self.path):
            remove(self.path)


class _Index:
    """Collector of the index in three spools: it is written by keys and read by lists."""

    def __init__(self, folder: Path) -> None:
        self._count = 0
        self._pending: list[list[Any]] = [[], [], []]
        self._spools = [SpillFile(folder) for _ in range(3)]  # items, offset_datas, sizes

    def add(self, key: str, offset: int, size: int) -> None:
        self._count += 1
        keys, offsets, sizes = self._pending
        keys.append(key)
        offsets.append(offset)
        sizes.append(size)
        if len(keys) >= _INDEX_ITEMS:
            self._spool()

    def _spool(self) -> None:
        for spool, values in zip(self._spools, self._pending, strict=True):
            spool.write(documents.dump_items(values))
            values.clear()

    def encode(self) -> Iterator[bytes]:
        """Yield the index as an xz stream, in parts."""
        self._spool()
        compressor = documents.make_compressor(_INDEX_PRESET)
        yield compressor.compress(documents.head(documents.MAP, 3))
        for name, values in zip(("items", "offset_datas", "sizes"), self._spools, strict=True):
            yield compressor.compress(
                documents.dump_cbor(name) + documents.head(documents.LIST, self._count)
            )
            for part in values.parts():
                yield compressor.compress(part)
        yield compressor.flush()

    def close(self) -> None:
        for values in self._spools:
            values.close()


class _FollowingMd5:
    """MD5 of a growing file, computed in a thread that reads the written bytes.

    The thread may fall behind without limit, because it holds no bytes besides the page cache.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.md5(usedforsecurity=False)
        self._done = 0
        self._behind = BackgroundWriter("md5")
        self._behind.do(0, _be_nice)

    def set_length(self, length: int) -> None:
        """Set the present length of the file; raise an earlier error."""
        self._behind.do(0, self._follow, length)

    def _follow(self, length: int) -> None:
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._done)
            while self._done < length:
                part = file.read(min(length - self._done, COPY_BYTES))
                if not part:
                    raise OSError(errno.EIO, "is shorter than what was written", self._path)
                self._digest.update(part)
                self._done += len(part)

    def finish(self) -> str:
        """Return the digest of the whole file."""
        with storage_errors(self._path):
            self._behind.end()
        return self._digest.hexdigest()

    def abandon(self) -> None:
        """Stop without a digest."""
        self._behind.abandon()


def _be_nice() -> None:
    """Lower the thread's priority below the writer's."""
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice + 5)
