"""Folders of ``npz`` and ``jpg`` with a file for each sample: ``000000.npz``, ...

These formats are read, but not recorded, because a file for each sample costs more than its bytes.
"""

from __future__ import annotations

from pathlib import Path

from recorder.codecs.storage.channel import ChannelStorage, FramedReader, Layout
from recorder.common.errors import FormatError


class BlobReader(FramedReader):
    """Reader of ``npz`` and ``jpg`` folders, one file at a time."""

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout)
        self._suffix = "." + layout.format
        if not path.is_dir():
            raise FormatError(f"{path}: no such folder")
        names = {p.name for p in path.iterdir()}
        self._length = 0
        while blob_name(self._length, layout.format) in names:
            self._length += 1
        if len(names) != self._length and not partial:
            other = min(names - {blob_name(i, layout.format) for i in range(self._length)})
            raise FormatError(
                f"{path}: {other!r} is not one of the files 000000{self._suffix} and so on, of "
                f"which the first {self._length} are there"
            )

    def __len__(self) -> int:
        return self._length

    def _where(self, index: int) -> str:
        return str(self.path / blob_name(index, self.format))

    def encoded(self, index: int) -> bytes:
        path = self.path / blob_name(self._index(index), self.format)
        try:
            return path.read_bytes()
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror}") from None

    def close(self) -> None:
        pass


class BlobStorage(ChannelStorage):
    """Storage of a folder, which is read and not recorded."""

    reader = BlobReader


def blob_name(index: int, format_: str) -> str:
    """Return the file name of a sample: six digits, or more if needed."""
    return f"{index:06d}.{format_}"
