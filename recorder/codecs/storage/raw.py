"""Samples as they are in memory (``raw``), one after another, without any header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs.storage.channel import (
    ChannelStorage,
    ChannelWriter,
    Extent,
    FileReader,
    Units,
    committed_length,
    reopen,
)
from recorder.common.errors import StorageError
from recorder.common.files import AppendFile, Buffer, Disk


class PlainWriter(ChannelWriter):
    """Writer of samples as given: ``raw`` samples, or the xz streams of ``lzma``."""

    def __init__(self, file: AppendFile) -> None:
        self.files = [file]
        self._append = file.append

    def append(
        self,
        frame: Buffer,
        count: int,  # noqa: ARG002  (the length gives it)
        sizes: npt.NDArray[np.uint32] | None,  # noqa: ARG002
    ) -> None:
        self._append(frame)


class RawReader(FileReader):
    """Reader of ``raw``: one read call a block, directly into the array."""

    def _open(self, partial: bool) -> None:
        self._length = self._file.size // self.sample_bytes
        self._take_tail(self._file.size % self.sample_bytes, partial)

    def __len__(self) -> int:
        return self._length

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.empty((stop - start, *self.shape), self.dtype)
        if stop > start:
            out = block.reshape(-1).view(np.uint8).data
            self._file.read_into(start * self.sample_bytes, out)
        return block

    def units(self, start: int, stop: int) -> Units:
        count, size = stop - start, self.sample_bytes
        return np.array([[start, count, start * size, count * size]], np.int64)

    def encoded(self, index: int) -> bytes:
        return self._file.read(self._index(index) * self.sample_bytes, self.sample_bytes)


class PlainExtent(Extent):
    """Extent of samples of one length, one after another (``raw``, and the time files)."""

    def __init__(self, path: Path, sample_bytes: int) -> None:
        self._name, self._sample_bytes = path.name, sample_bytes
        self.samples = path.stat().st_size // sample_bytes

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        return samples, {self._name: samples * self._sample_bytes}


class RawStorage(ChannelStorage):
    """Storage of one file of samples."""

    reader = RawReader

    def create(self, disk: Disk) -> PlainWriter:
        return PlainWriter(disk.create(self.path))

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> PlainWriter:
        length, size = committed_length(lengths, self.path), self.spec.sample_bytes
        if length % size:
            raise StorageError(f"{self.path}: committed length {length} is not whole {size} bytes")
        return PlainWriter(reopen(disk, self.path, length))

    def measure(self, committed: int) -> PlainExtent:  # noqa: ARG002
        return PlainExtent(self.path, self.spec.sample_bytes)

    def known_lengths(self, samples: int) -> dict[str, int]:
        return {self.path.name: samples * self.spec.sample_bytes}
