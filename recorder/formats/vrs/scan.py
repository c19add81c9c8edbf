"""Reader of a VRS file's bytes, and walk from record to record (VRS, IndexRecord.cpp).

The file may have chunks ``a.vrs``, ``a.vrs_1``, ``a.vrs_2``, ...  A first chunk ``a_0`` is followed
by ``a_1`` (VRS, RecordFileReader.cpp vrsFilePathToFileSpec).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from recorder.common.errors import FormatError
from recorder.common.files import Closeable
from recorder.formats.vrs.headers import (
    INDEX_TYPE_ID,
    RECORD_HEADER_BYTES,
    SPLIT_INDEX_VERSION,
    RecordHeader,
)


def chunk_paths(path: Path) -> list[Path]:
    """Return the chunks of a VRS file, in order, up to the first missing one."""
    root = path.name[:-1] if path.name.endswith("_0") else f"{path.name}_"
    paths = [path]
    while (following := path.with_name(f"{root}{len(paths)}")).is_file():
        paths.append(following)
    return paths


class ChunkedFile(Closeable):
    """Read-only bytes by position over all chunks; every fault is a FormatError with the path.

    Attributes:
        path: path of the first chunk.
        paths: paths of all chunks.
        size: bytes of all chunks.
        first_size: bytes of the first chunk.
    """

    def __init__(self, path: Path, paths: list[Path] | None = None) -> None:
        self.path = path
        self.paths = chunk_paths(path.resolve()) if paths is None else paths
        self._fds: list[int] = []
        try:
            for chunk in self.paths:
                self._fds.append(os.open(chunk, os.O_RDONLY | os.O_CLOEXEC))
                if not chunk.is_file():
                    raise FormatError(f"{chunk}: is no file")
        except FileNotFoundError:
            raise FormatError(f"{path}: no such file") from None
        except BaseException:
            self.close()
            raise
        self._ends = list(accumulate(os.fstat(fd).st_size for fd in self._fds))
        self.size = self._ends[-1]
        self.first_size = self._ends[0]

    def peek(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from `offset`; fewer only at the end."""
        parts: list[bytes] = []
        length = min(length, self.size - offset)
        while length > 0:
            number = bisect_right(self._ends, offset)
            start = self._ends[number - 1] if number else 0
            part = os.pread(self._fds[number], length, offset - start)
            if not part:  # the file was cut since it was opened
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes from `offset`."""
        data = self.peek(offset, length)
        if len(data) < length:
            raise FormatError(
                f"{self.path}: ends at byte {self.size}, {length} are wanted at {offset}"
            )
        return data

    def close(self) -> None:
        """Close the files; may be called twice."""
        while self._fds:
            os.close(self._fds.pop())


_AHEAD_BYTES = 64 * 1024


class RecordWalk:
    """Iterator over (offset, header) of the whole records from an offset on.

    After the last record, `fault` holds the reason of the end.

    Attributes:
        end: end of the last whole record.
        last_size: bytes of that record.
        fault: None at the end of the file; else a description of the bytes after `end`.
    """

    def __init__(
        self,
        file: ChunkedFile,
        offset: int,
        previous_size: int,
        *,
        header_bytes: int = RECORD_HEADER_BYTES,
        stop: int | None = None,
    ) -> None:
        """Begin at a record.

        Args:
            file: the file.
            offset: offset at which a record begins.
            previous_size: bytes of the record before it; 0 for the first.
            header_bytes: bytes of a record's header in this file.
            stop: offset at which to stop; None: the file's end.
        """
        self._file = file
        self._header_bytes = header_bytes
        self._stop = file.size if stop is None else min(stop, file.size)
        self._ahead = b""
        self._ahead_at = 0
        self.end = offset
        self.last_size = previous_size
        self.fault: str | None = None

    def __iter__(self) -> Iterator[tuple[int, RecordHeader]]:
        held: tuple[int, RecordHeader] | None = None
        while self.end < self._stop:
            header = self._header_at(self.end)
            if header is None:
                self.fault = f"{self._stop - self.end} bytes that are less than a record's header"
                break
            apart = header.previous_size != self.last_size
            fault = header.fault()
            if apart:
                fault = f"previous record of {header.previous_size} bytes, not {self.last_size}"
            elif header.size < self._header_bytes:
                fault = f"size {header.size}"
            if fault is not None:
                self.fault = f"what is no record ({fault})"
                if apart and held is not None:
                    # Either of the two may be wrong: the one before is dropped too.
                    self.end, self.last_size = held[0], held[1].previous_size
                    held = None
                break
            if self.end + header.size > self._stop:
                missing = self.end + header.size - self._stop
                self.fault = f"a record of {header.size} bytes that lacks {missing}"
                break
            if held is not None:
                yield held
            held = (self.end, header)
            self.end += header.size
            self.last_size = header.size
            if header.type_id == INDEX_TYPE_ID and header.version == SPLIT_INDEX_VERSION:
                break
        if held is not None:
            yield held

    def _header_at(self, offset: int) -> RecordHeader | None:
        at = offset - self._ahead_at
        if not 0 <= at <= len(self._ahead) - RECORD_HEADER_BYTES:
            # Small records lie close together, large ones far apart: read ahead accordingly.
            ahead = _AHEAD_BYTES if self.last_size < _AHEAD_BYTES // 4 else self._header_bytes
            self._ahead = self._file.peek(offset, min(ahead, self._stop - offset))
            self._ahead_at, at = offset, 0
        if len(self._ahead) - at < RECORD_HEADER_BYTES:
            return None
        return RecordHeader.unpack(self._ahead, at)
