"""Division of a VRS file into chunks (VRS, DiskFile.cpp): ``a.vrs``, ``a.vrs_1``, ``a.vrs_2``, ...

The bytes of all chunks together are those of the whole file; its index names places in them.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from recorder.common.errors import StorageError
from recorder.common.files import FILE_MODE
from recorder.formats.vrs.headers import FILE_HEADER_BYTES
from recorder.formats.vrs.scan import ChunkedFile, RecordWalk

_AT_ONCE = 1 << 26


def split_vrs(path: Path, chunk_bytes: int) -> list[Path]:
    """Divide a whole VRS file into chunks between records, and sync them.

    The last chunk is moved out of the file first, so that the disk holds one chunk twice at most.
    Memory grows by the number of chunks only.

    Args:
        path: the file; it becomes the first chunk.
        chunk_bytes: largest size of a chunk; a record that is larger has a chunk of its own.

    Returns:
        the chunks, in order.

    Raises:
        StorageError: a chunk cannot be written, or exists.
    """
    cuts = _find_cuts(path, chunk_bytes)
    paths = [path, *(path.with_name(f"{path.name}_{n}") for n in range(1, len(cuts)))]
    try:
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            parts = list(zip(paths, pairwise([*cuts, size]), strict=True))
            for target, (start, end) in reversed(parts[1:]):
                _move_end(file.fileno(), target, start, end)
            os.fsync(file.fileno())
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"{error.filename or path}: {reason}") from None
    return paths


def _find_cuts(path: Path, chunk_bytes: int) -> list[int]:
    """Return the offsets at which chunks begin."""
    cuts = [0]
    with ChunkedFile(path, [path]) as file:
        for offset, record in RecordWalk(file, FILE_HEADER_BYTES, 0):
            # The description stays with the file's header.
            if offset > FILE_HEADER_BYTES and offset + record.size - cuts[-1] > chunk_bytes:
                cuts.append(offset)
    return cuts


def _move_end(source: int, target: Path, start: int, end: int) -> None:
    """Move the end of a file into a new file."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        at = start
        while at < end:
            sent = os.sendfile(fd, source, at, min(end - at, _AT_ONCE))
            if not sent:
                raise OSError(f"ends at byte {at}, not {end}")
            at += sent
        os.fsync(fd)
    finally:
        os.close(fd)
    os.ftruncate(source, start)
