"""Reader of an ``.itar`` whose memory hardly grows with its members: 24 bytes for each.

The index is read as a stream.  Of most members only a hash of the key, the offset and the size are
kept; names are kept where they say what there is: those outside of long series of groups, and the
first ones of each series::

    store = LeanItar(path, ("cameras/front/",))
    store["cameras/front/frames/17/image/0"]      # any key
    store.children("cameras/front/frames/17")     # of the first groups of a series only
"""

from __future__ import annotations

import lzma
import os
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.formats.zarr2 import documents
from recorder.formats.zarr2.itar import BLOCK, END_FORMAT, END_MAGIC, END_TYPE_CBOR_XZ
from recorder.formats.zarr2.stores import storage_errors

_SERIES: Final = frozenset({"frames", "labels", "pcs"})
"""Groups of an instance that have a group for each frame, label or cloud."""
_NAMED: Final = 4096
"""Number of the keys of a series whose names are kept."""
_PART: Final = 1 << 16
_LONGEST: Final = 1 << 12  # bytes of an item of the index
_DEPTH: Final = 2
_COLUMNS: Final = ("items", "offset_datas", "sizes")
_TEXT: Final = 3


class LeanItar:
    """Reader of an ``.itar``.

    Args:
        path: the file.
        prefixes: beginnings of the keys that are read, besides those of the root.

    Raises:
        FormatError: the file is none, is cut, or its index reaches beyond its end.
        StorageError: the file cannot be read.
    """

    def __init__(self, path: Path, prefixes: tuple[str, ...]) -> None:
        self.path = path
        with storage_errors(path), path.open("rb") as file:
            self._length = file.seek(0, os.SEEK_END)
            offset, size = self._find_index(file)
            file.seek(offset)
            parts = iter(lambda: file.read(_PART), b"")
            self._read(_Cbor(_limit(parts, size), str(path)), prefixes)

    def _find_index(self, file: BinaryIO) -> tuple[int, int]:
        """Return offset and size of the index, from the last block."""
        if self._length < BLOCK:
            raise FormatError(f"{self.path}: not an itar, it has {self._length} bytes")
        file.seek(self._length - BLOCK)
        magic, kind, offset, size = END_FORMAT.unpack(file.read(END_FORMAT.size))
        fits = offset + size <= self._length - BLOCK
        if magic != END_MAGIC or kind != END_TYPE_CBOR_XZ or not fits:
            raise FormatError(f"{self.path}: not an itar, or cut: its last block is no index's")
        return offset, size

    def _read(self, index: _Cbor, prefixes: tuple[str, ...]) -> None:
        self._names: list[str] = []
        hashes, places = array("q"), array("q")
        counts: Counter[str] = Counter()
        columns: dict[str, npt.NDArray[np.int64]] = {}
        count = 0
        for name in index.columns():
            if name == _COLUMNS[0]:
                for place, key in enumerate(index.texts()):
                    if "/" in key and not key.startswith(prefixes):
                        continue
                    hashes.append(hash(key))
                    places.append(place)
                    parts = key.split("/", _DEPTH + 1)
                    if len(parts) > _DEPTH + 1 and parts[_DEPTH] in _SERIES:
                        series = f"{parts[0]}/{parts[1]}"
                        counts[series] += 1
                        if counts[series] > _NAMED:
                            continue
                    self._names.append(key)
                count = index.length
            elif name in _COLUMNS:
                columns[name] = np.fromiter(index.numbers(), np.int64)
        if columns.keys() | {_COLUMNS[0]} != {*_COLUMNS} or {*map(len, columns.values())} != {
            count
        }:
            raise FormatError(f"{self.path}: its index has another form")
        kept = np.frombuffer(places, np.int64) if places else np.empty(0, np.int64)
        order = np.argsort(np.frombuffer(hashes, np.int64)) if hashes else kept
        self._hashes = np.frombuffer(hashes, np.int64)[order] if hashes else kept
        self._offsets = columns["offset_datas"][kept][order]
        self._sizes = columns["sizes"][kept][order]
        ends = self._offsets + self._sizes
        if len(ends) and not (
            min(self._offsets.min(), self._sizes.min()) >= 0
            and ends.min() >= 0
            and ends.max() <= self._length
        ):
            raise FormatError(f"{self.path}: its index reaches beyond its end")

    def _find(self, key: object) -> int | None:
        own = hash(key)
        at = int(np.searchsorted(self._hashes, own))
        return at if at < len(self._hashes) and self._hashes[at] == own else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __getitem__(self, key: str) -> bytes:
        at = self._find(key)
        if at is None:
            raise KeyError(key)
        size = int(self._sizes[at])
        with storage_errors(self.path), self.path.open("rb") as file:
            file.seek(int(self._offsets[at]))
            data = file.read(size)
        if len(data) != size:
            raise FormatError(f"{self.path}: {key} reaches beyond its end")
        return data

    def children(self, group: str) -> set[str]:
        """Return the names of the groups and arrays in a group."""
        prefix = f"{group}/" if group else ""
        below = (key[len(prefix) :] for key in self._names if key.startswith(prefix))
        return {rest.partition("/")[0] for rest in below if "/" in rest}


def _limit(parts: Iterator[bytes], size: int) -> Iterator[bytes]:
    for part in parts:
        yield part[:size]
        size -= len(part)
        if size <= 0:
            return


class _Cbor:
    """Reader of an index in CBOR (RFC 8949) from an xz stream: a map of texts to lists.

    Attributes:
        length: length of the list that was read last.
    """

    def __init__(self, parts: Iterator[bytes], where: str) -> None:
        self._parts, self._where = parts, where
        self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self._data, self._at = b"", 0
        self.length = 0

    def _fill(self) -> None:
        """Have a whole item in the buffer, if there is one."""
        rest = [self._data[self._at :]]
        size = len(rest[0])
        try:
            while size < _LONGEST and not self._xz.eof:
                part = next(self._parts, b"") if self._xz.needs_input else b""
                if not part and self._xz.needs_input:
                    break
                rest.append(self._xz.decompress(part, _PART))
                size += len(rest[-1])
        except lzma.LZMAError as error:
            raise FormatError(f"{self._where}: its index is damaged: {error}") from None
        self._data, self._at = b"".join(rest), 0

    def _head(self) -> tuple[int, int]:
        """Read a head: major type and argument."""
        if len(self._data) - self._at < _LONGEST:
            self._fill()
        data, at = self._data, self._at
        if at >= len(data):
            raise FormatError(f"{self._where}: its index is cut")
        kind, value = data[at] >> 5, data[at] & 31
        self._at = at + 1
        if value >= 24:
            size = 1 << (value - 24)
            if value > 27:
                raise FormatError(f"{self._where}: its index has another form")
            value = int.from_bytes(data[at + 1 : at + 1 + size], "big")
            self._at += size
        return kind, value

    def _open(self, kind: int) -> int:
        found, count = self._head()
        if found != kind:
            raise FormatError(f"{self._where}: its index has another form")
        return count

    def _text(self) -> str:
        size = self._open(_TEXT)
        text = self._data[self._at : self._at + size]
        if size > _LONGEST // 2 or len(text) != size:
            raise FormatError(f"{self._where}: its index is cut, or has another form")
        self._at += size
        return text.decode("utf-8", "replace")

    def columns(self) -> Iterator[str]:
        """Yield the keys of the map; the caller reads each list."""
        for _ in range(self._open(documents.MAP)):
            yield self._text()
        self._fill()
        if not self._xz.eof:  # whose end has the checksum
            raise FormatError(f"{self._where}: its index is cut")

    def texts(self) -> Iterator[str]:
        """Yield the texts of a list."""
        self.length = self._open(documents.LIST)
        for _ in range(self.length):
            yield self._text()

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of a list, of which none is negative."""
        self.length = self._open(documents.LIST)
        for _ in range(self.length):
            value = self._open(0)
            if value >= 1 << 62:
                raise FormatError(f"{self._where}: its index reaches beyond its end")
            yield value
