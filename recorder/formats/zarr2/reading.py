"""Readers of stores, to extend a store and to compare one with its input."""

from __future__ import annotations

import itertools
import json
import lzma
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.formats.zarr2 import documents
from recorder.formats.zarr2.arrays import require_numcodecs
from recorder.formats.zarr2.itar import BLOCK, END_FORMAT, END_MAGIC, END_TYPE_CBOR_XZ
from recorder.formats.zarr2.lean_itar import LeanItar
from recorder.formats.zarr2.stores import storage_errors

METADATA_KEY = ".zmetadata.cbor.xz"


_CODECS = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"})
"""Compressors of chunks; numcodecs has others, among them one that runs code of the file."""
_MOST_BYTES = 1 << 31
_MOST_INDEX_BYTES = 1 << 30


def open_store(path: Path, prefixes: tuple[str, ...] = ()) -> StoreReader:
    """Open a folder store or an ``.itar``; raise FormatError or StorageError if it is neither.

    Args:
        path: folder or file.
        prefixes: beginnings of the keys that are read, besides those of the root, where an
            ``.itar`` is to take little memory (`recorder.formats.zarr2.lean_itar`); (): all.
    """
    if path.is_dir():
        return _FolderReader(path)
    return LeanItar(path, prefixes) if prefixes else _ItarReader(path)


class _FolderReader:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.path):
            for name in names:
                yield (Path(folder) / name).relative_to(self.path).as_posix()

    def children(self, group: str) -> set[str]:
        """Return the names of the groups and arrays in a group."""
        with storage_errors(self.path):
            folder = self.path / group
            return {p.name for p in folder.iterdir() if p.is_dir()} if folder.is_dir() else set()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (self.path / key).is_file()

    def __getitem__(self, key: str) -> bytes:
        with storage_errors(self.path):
            try:
                return (self.path / key).read_bytes()
            except FileNotFoundError:
                raise KeyError(key) from None


class _ItarReader:
    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors(path), path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            if length < BLOCK:
                raise FormatError(f"{path}: not an itar, it has {length} bytes")
            file.seek(length - BLOCK)
            magic, kind, offset, size = END_FORMAT.unpack(file.read(END_FORMAT.size))
            if magic != END_MAGIC or kind != END_TYPE_CBOR_XZ or offset + size > length - BLOCK:
                raise FormatError(f"{path}: not an itar, or cut: its last block is no index's")
            file.seek(offset)
            index = load_cbor_xz(file.read(size), str(path))
        try:
            columns = index["items"], index["offset_datas"], index["sizes"]
            places = {key: (at, size) for key, at, size in zip(*columns, strict=True)}
            ends = [0 <= at <= at + size <= length for at, size in places.values()]
        except (KeyError, TypeError, ValueError):
            raise FormatError(f"{path}: its index has another form") from None
        if not all(ends):
            raise FormatError(f"{path}: its index reaches beyond its end")
        self._places: dict[str, tuple[int, int]] = places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def children(self, group: str) -> set[str]:
        """Return the names of the groups and arrays in a group."""
        prefix = f"{group}/" if group else ""
        below = (key[len(prefix) :] for key in self._places if key.startswith(prefix))
        return {rest.partition("/")[0] for rest in below if "/" in rest}

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __getitem__(self, key: str) -> bytes:
        offset, size = self._places[key]
        with storage_errors(self.path), self.path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise FormatError(f"{self.path}: {key} reaches beyond its end")
        return data


StoreReader = _FolderReader | _ItarReader | LeanItar
"""Mapping of a store's keys to their bytes; raises KeyError for a missing key."""


def load_cbor_xz(data: bytes, where: str) -> Any:
    """Load a CBOR document from an xz stream; raise FormatError if it is damaged."""
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        document = decompressor.decompress(data, _MOST_INDEX_BYTES)
        if not decompressor.eof:
            raise FormatError(f"{where}: is cut, or has more than {_MOST_INDEX_BYTES} bytes")
        return documents.load_cbor(document)
    except (lzma.LZMAError, EOFError) as error:
        raise FormatError(f"{where}: {error}") from None


def read_metadata(store: StoreReader) -> dict[str, Any]:
    """Read the metadata of a store by key, from its consolidated form if there is one."""
    if METADATA_KEY in store:
        document = load_cbor_xz(store[METADATA_KEY], f"{store.path}: {METADATA_KEY}")
        metadata: dict[str, Any] = document["metadata"]
        return metadata
    names = (".zgroup", ".zarray", ".zattrs")
    return {key: json.loads(store[key]) for key in store if key.rpartition("/")[2] in names}


def read_array(store: StoreReader, path: str, rows: slice | None = None) -> npt.NDArray[Any]:
    """Read an array.

    Args:
        store: a store.
        path: key of the array.
        rows: only these rows, of whose chunks only those are decoded; None: the whole array.

    Raises:
        KeyError: there is no such array, or a chunk is missing.
        FormatError: it is larger than any array should be, or of an unknown compressor.
    """
    metadata = json.loads(store[f"{path}/.zarray"])
    dtype = decode_dtype(metadata["dtype"])
    shape, chunks = tuple(metadata["shape"]), tuple(metadata["chunks"])
    compressor = metadata["compressor"]
    if metadata.get("filters") or (compressor and compressor.get("id") not in _CODECS):
        used = compressor and compressor.get("id")
        raise FormatError(f"{store.path}: {path}: compressor {used!r:.60}, or filters: not read")
    codec = None if compressor is None else require_numcodecs().get_codec(compressor)
    start, stop = 0, shape[0] if shape else 0
    if rows is not None:
        start, stop, _ = rows.indices(stop)
        shape = (max(0, stop - start), *shape[1:])
    if max(math.prod(shape), math.prod(chunks)) * dtype.itemsize > _MOST_BYTES:
        raise FormatError(f"{store.path}: {path}: an array {list(shape)} is too large")
    array = np.zeros(shape, dtype)
    wanted = [range(-(-size // chunk)) for size, chunk in zip(shape, chunks, strict=True)]
    if wanted:
        wanted[0] = range(start // chunks[0], -(-stop // chunks[0]))
    for index in itertools.product(*wanted):
        key = f"{path}/{'.'.join(map(str, index)) or '0'}"
        try:
            data = store[key] if codec is None else codec.decode(store[key])
        except SystemError as error:  # numcodecs, for a negative size
            raise ValueError(str(error)) from None
        chunk = np.frombuffer(data, dtype).reshape(chunks, order=metadata["order"])
        place = [slice(i * c, (i + 1) * c) for i, c in zip(index, chunks, strict=True)]
        if place:
            first = place[0].start - start  # a row of the chunk before it is not wanted
            chunk, place[0] = chunk[max(0, -first) :], slice(max(0, first), place[0].stop - start)
        array[tuple(place)] = chunk[tuple(map(slice, array[tuple(place)].shape))]
    return array


def decode_dtype(encoded: Any) -> np.dtype[Any]:
    """Decode a dtype; the inverse of `encode_dtype`."""
    if isinstance(encoded, str):
        try:
            return np.dtype(encoded)
        except SyntaxError:  # numpy parses repeats
            raise ValueError(f"no dtype: {encoded!r:.60}") from None
    fields = [(name, decode_dtype(base), *map(tuple, shape)) for name, base, *shape in encoded]
    return np.dtype(fields)
