"""Writers of groups, attributes and arrays (zarr specification v2, "Hierarchies")."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError
from recorder.common.files import Buffer
from recorder.formats.zarr2 import documents
from recorder.formats.zarr2.arrays import (
    PLAIN,
    ArraySpec,
    EncodedArray,
    RowsSpec,
    array_metadata,
    array_text,
    encode_chunk,
    encode_chunks,
    pad_chunk,
)
from recorder.formats.zarr2.documents import dump_json, is_lazy, json_parts
from recorder.formats.zarr2.stores import OutputGuard, SpillFile, Store

Consolidation = Literal["cbor.xz", "json"] | None
Attributes = Mapping[str, Any]
_NAME = re.compile(r"[^/\0]+\Z")
_METADATA_PRESET = 1
_GATHER_BYTES = 1 << 16
_GROUP = dump_json({"zarr_format": 2})
_BULKY = 4096  # bytes from which on metadata are not cached


class Hierarchy(OutputGuard):
    """Hierarchy that is being written.

    Args:
        store: store to write to.
        consolidation: form in which all metadata are also written under one key: ``cbor.xz`` is
            NCore's ``.zmetadata.cbor.xz``, ``json`` zarr's own ``.zmetadata``.
        attributes: attributes of the root group.
    """

    def __init__(
        self,
        store: Store,
        *,
        consolidation: Consolidation = None,
        attributes: Attributes | None = None,
    ) -> None:
        self.store = store
        self._consolidated: _CborMetadata | _JsonMetadata | None = None
        if consolidation is not None:
            kind = _CborMetadata if consolidation == "cbor.xz" else _JsonMetadata
            self._consolidated = kind(store)
        self.root = Group(self, "", attributes)

    def put_metadata(self, key: str, document: Attributes) -> None:
        """Write ``.zgroup``, ``.zarray`` or ``.zattrs``."""
        try:
            text = dump_json(document)
        except FormatError:
            if not is_lazy(document):  # rare, so checked last
                raise
            self._put_lazy(key, document)
            return
        self.put_text(key, text)

    def put_text(self, key: str, text: bytes) -> None:
        """Write ``.zgroup``, ``.zarray`` or ``.zattrs`` from compact JSON."""
        put = self.store.put_again if len(text) < _BULKY else self.store.put
        put(key, text)
        if self._consolidated is not None:
            self._consolidated.add(key, text)

    def _put_lazy(self, key: str, document: Attributes) -> None:
        text = SpillFile(self.store.path.parent)
        try:
            for part in json_parts(document):
                text.write(part)
            self.store.put_parts(key, text.size, text.parts())
        finally:
            text.close()
        if self._consolidated is not None:
            self._consolidated.add_lazy(key, document)

    def close(self) -> None:
        """Write the consolidated metadata and finish the store."""
        if self._consolidated is not None:
            self._consolidated.close(self.store)
        self.store.close()

    def discard(self) -> None:
        """Remove the store."""
        if self._consolidated is not None:
            self._consolidated.discard()
        self.store.discard()

    finish = close


@functools.lru_cache(maxsize=2048)
def _convert_to_cbor(text: bytes) -> bytes:
    """Convert a JSON document to CBOR; most documents of a hierarchy are one of a few."""
    return documents.dump_cbor(json.loads(text))


def _encode_cbor(text: bytes) -> bytes:
    return _convert_to_cbor(text) if len(text) < _BULKY else documents.dump_cbor(json.loads(text))


class _Metadata:
    """Consolidated metadata, collected until the store is finished."""

    key: str

    def __init__(self, store: Store) -> None:
        self._spool = SpillFile(store.path.parent)

    def close(self, store: Store) -> None:
        store.put_parts(self.key, self._spool.size, self._spool.parts())
        self._spool.close()

    def discard(self) -> None:
        self._spool.close()


class _CborMetadata(_Metadata):
    """Consolidated metadata of NCore, compressed as documents are added."""

    key = ".zmetadata.cbor.xz"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._xz = documents.make_compressor(_METADATA_PRESET)
        self._pending = bytearray(documents.head(documents.MAP, 2))
        self._pending += documents.dump_cbor("zarr_consolidated_format") + documents.dump_cbor(1)
        self._pending += documents.dump_cbor("metadata") + documents.OPEN_MAP

    def add(self, key: str, text: bytes) -> None:
        self._pending += documents.dump_text(key)
        self._pending += _encode_cbor(text)
        if len(self._pending) >= _GATHER_BYTES:
            self._compress()

    def add_lazy(self, key: str, document: Attributes) -> None:
        self._pending += documents.dump_cbor(key)
        for part in documents.cbor_parts(document):
            self._pending += part
            if len(self._pending) >= _GATHER_BYTES:
                self._compress()

    def _compress(self) -> None:
        self._spool.write(self._xz.compress(self._pending))
        self._pending.clear()

    def close(self, store: Store) -> None:
        self._pending += documents.BREAK
        self._compress()
        self._spool.write(self._xz.flush())
        super().close(store)


class _JsonMetadata(_Metadata):
    """Consolidated metadata of zarr itself."""

    key = ".zmetadata"
    _separator = b'{"zarr_consolidated_format":1,"metadata":{'

    def add(self, key: str, text: bytes) -> None:
        self._spool.write(self._separator + dump_json(key) + b":" + text)
        self._separator = b","

    def add_lazy(self, key: str, document: Attributes) -> None:
        self.add(key, b"")
        for part in json_parts(document):
            self._spool.write(part)

    def close(self, store: Store) -> None:
        self._spool.write(b"}}")
        super().close(store)


class Group:
    """Group of a hierarchy; its children's names must differ, else it raises FormatError.

    With `distinct` the caller guarantees that, and the names are not stored. This is for groups
    with a child per frame.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        path: str,
        attributes: Attributes | None = None,
        *,
        distinct: bool = False,
    ) -> None:
        self._hierarchy = hierarchy
        self._prefix = f"{path}/" if path else ""
        self._children: set[str] | None = None if distinct else set()
        self._attributed = False
        hierarchy.put_text(f"{self._prefix}.zgroup", _GROUP)
        if attributes:
            self.set_attributes(attributes)

    @property
    def path(self) -> str:
        """Path from the root, without slashes around it."""
        return self._prefix.rstrip("/")

    def set_attributes(self, attributes: Attributes) -> None:
        """Write all attributes; may be called once.

        Values are JSON values, and arrays or `LazyRows` for long lists.
        """
        if self._attributed:
            raise FormatError(f"group {self.path or '/'} has its attributes already")
        self._attributed = True
        self._hierarchy.put_metadata(f"{self._prefix}.zattrs", attributes)

    def group(
        self, name: str, attributes: Attributes | None = None, *, distinct: bool = False
    ) -> Group:
        """Make a new group in this one."""
        return Group(self._hierarchy, self._add_child(name), attributes, distinct=distinct)

    def array(
        self,
        name: str,
        values: npt.NDArray[Any] | EncodedArray,
        spec: ArraySpec = ArraySpec(),  # noqa: B008
        attributes: Attributes | None = None,
    ) -> None:
        """Write a new array with these values; an `EncodedArray` takes no `spec`."""
        if isinstance(values, EncodedArray):
            self._array(self._add_child(name), values, attributes)
            return
        metadata = array_text(values.dtype, values.shape, spec)
        path = self._begin_array(self._add_child(name), metadata, attributes)
        for key, data in encode_chunks(values, spec):
            self._hierarchy.store.put(f"{path}/{key}", data)

    def _array(self, path: str, encoded: EncodedArray, attributes: Attributes | None) -> None:
        self._begin_array(path, encoded.metadata, attributes)
        store = self._hierarchy.store
        put = store.put_again if encoded.constant else store.put
        for key, data in encoded.chunks:
            put(f"{path}/{key}", data)

    def _begin_array(self, path: str, metadata: bytes, attributes: Attributes | None) -> str:
        self._hierarchy.put_text(f"{path}/.zarray", metadata)
        if attributes:
            self._hierarchy.put_metadata(f"{path}/.zattrs", attributes)
        return path

    def text(self, name: str, data: Buffer, attributes: Attributes | None = None) -> None:
        """Write a new 0-d array ``|S`` that holds these bytes, unchanged.

        Readers drop zero bytes at its end, as numpy defines the type.
        """
        size = len(memoryview(data).cast("B"))
        if not size:
            raise FormatError(f"array {self._prefix}{name}: there is no 0-d array of no bytes")
        metadata = dump_json(array_metadata(np.dtype(f"S{size}"), (), PLAIN))
        path = self._begin_array(self._add_child(name), metadata, attributes)
        self._hierarchy.store.put(f"{path}/0", data)

    def rows(self, name: str, spec: RowsSpec, attributes: Attributes | None = None) -> RowsWriter:
        """Make a new array that rows are appended to."""
        return RowsWriter(self._hierarchy, self._add_child(name), spec, attributes)

    def _add_child(self, name: str) -> str:
        if not _NAME.match(name) or name in (".", "..") or name.startswith(".z"):
            raise FormatError(f"{name!r} cannot name a member of group {self.path or '/'}")
        if self._children is not None:
            if name in self._children:
                raise FormatError(f"group {self.path or '/'} has a member {name!r} already")
            self._children.add(name)
        return self._prefix + name


class RowsWriter:
    """Writer of an array that grows along its first axis; holds at most one chunk in memory.

    A writer must be closed, even if the array is empty.
    """

    def __init__(
        self, hierarchy: Hierarchy, path: str, spec: RowsSpec, attributes: Attributes | None
    ) -> None:
        self._hierarchy = hierarchy
        self._path = path
        self._spec = spec
        self._closed = False
        self.length = 0
        """Number of rows appended so far."""
        chunks = (spec.chunk_rows, *spec.row_shape)
        self._array = ArraySpec(chunks, spec.compressor, spec.fill_value)
        array_metadata(spec.dtype, (0, *spec.row_shape), self._array)  # raises for a bad spec
        self._pending: npt.NDArray[Any] = np.empty(chunks, spec.dtype)
        if attributes:
            hierarchy.put_metadata(f"{path}/.zattrs", attributes)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows: an array [n, *row_shape] of the declared dtype."""
        if self._closed:
            raise FormatError(f"array {self._path} is closed")
        expected = (self._spec.dtype, self._spec.row_shape)
        if (rows.dtype, rows.shape[1:]) != expected or not rows.ndim:
            raise FormatError(
                f"array {self._path} takes rows of {self._spec.dtype} {self._spec.row_shape},"
                f" not {rows.dtype} {rows.shape[1:]}"
            )
        size = self._spec.chunk_rows
        at = 0
        while at < len(rows):
            filled = self.length % size
            count = min(size - filled, len(rows) - at)
            self._pending[filled : filled + count] = rows[at : at + count]
            self.length += count
            at += count
            if filled + count == size:
                self._write(self._pending)

    def _write(self, chunk: npt.NDArray[Any]) -> None:
        index = (self.length - 1) // self._spec.chunk_rows
        key = ".".join([str(index), *"0" * len(self._spec.row_shape)])
        data = encode_chunk(chunk, self._spec.compressor, "C")
        self._hierarchy.store.put(f"{self._path}/{key}", data)

    def close(self) -> None:
        """Write the last rows and the array's metadata."""
        if self._closed:
            return
        self._closed = True
        if rest := self.length % self._spec.chunk_rows:
            part = self._pending[:rest]
            self._write(pad_chunk(part, self._pending.shape, self._spec.fill_value))
        shape = (self.length, *self._spec.row_shape)
        metadata = array_metadata(self._spec.dtype, shape, self._array)
        self._hierarchy.put_metadata(f"{self._path}/.zarray", metadata)
