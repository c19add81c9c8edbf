"""Reader of a VRS file's bytes; the file may have chunks ``a.vrs``, ``a.vrs_1``, ``a.vrs_2``, ...

A first chunk ``a_0`` is followed by ``a_1`` (VRS, RecordFileReader.cpp vrsFilePathToFileSpec).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

from recorder.common.errors import FormatError
from recorder.common.files import Closeable


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
