"""Bytes that are collected for the end of a store: in memory, or in a file if they are many."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from recorder.contract.errors import FormatError
from recorder.contract.wire import Buffer, buffer_size
from recorder.formats.zarr2.stores import COPY_BYTES, storage_errors

MEMORY_BYTES = 1 << 20
_GATHER_BYTES = 1 << 16


class Spool:
    """Written first, then read.  The file has no name and vanishes with the process.

    Args:
        folder: of the file.  A disk error is a StorageError that names it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=str(folder))  # noqa: SIM115
        self._pending = bytearray()  # most writes are a few bytes
        self.size = 0

    def write(self, data: Buffer) -> None:
        """Add bytes."""
        self._pending += data
        self.size += buffer_size(data)
        if len(self._pending) >= _GATHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        with storage_errors(self._folder):
            self._file.seek(0, os.SEEK_END)
            self._file.write(self._pending)
        self._pending.clear()

    def parts(self) -> Iterator[bytes]:
        """All bytes, in parts of a megabyte."""
        self._flush()
        left, at = self.size, 0
        while left:
            with storage_errors(self._folder):
                self._file.seek(at)  # another reader may be at work
                part = self._file.read(min(left, COPY_BYTES))
            if not part:
                raise FormatError(f"{self._folder}: {left} bytes of a spooled value are missing")
            left -= len(part)
            at += len(part)
            yield part

    def lines(self) -> Iterator[bytes]:
        """All lines, without their ends."""
        rest = b""
        for part in self.parts():
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def close(self) -> None:
        """Discard the bytes."""
        self._file.close()
