"""Zarr version 2: JSON metadata, and chunks encoded with numcodecs.

Zarr's own software is not needed. A hierarchy is written once, front to back, into a store: a
folder, or an ``.itar`` (a tar file followed by an index). Nothing is read back, and memory use does
not grow with the written bytes.

    with Hierarchy(ItarStore(path)) as hierarchy:
        frames = hierarchy.root.group("frames", {"sensor": "front"})
        frames.array("image", image)
        rows = frames.rows("stamps", RowsSpec(np.dtype("<i8"), chunk_rows=10_000))
        rows.append(stamps)
        rows.close()

Specification: zarr-specs, "Zarr storage specification version 2".
"""

from __future__ import annotations

from recorder.formats.zarr2.arrays import (
    ArraySpec,
    Blosc,
    Compressor,
    EncodedArray,
    RowsSpec,
    require_numcodecs,
)
from recorder.formats.zarr2.documents import ArrayParts, LazyRows
from recorder.formats.zarr2.hierarchy import Group, Hierarchy, RowsWriter
from recorder.formats.zarr2.itar import ItarStore
from recorder.formats.zarr2.reading import StoreReader, open_store, read_array, read_metadata
from recorder.formats.zarr2.stores import FolderStore, SpillFile, Store

__all__ = [
    "ArrayParts",
    "ArraySpec",
    "Blosc",
    "Compressor",
    "EncodedArray",
    "FolderStore",
    "Group",
    "Hierarchy",
    "ItarStore",
    "LazyRows",
    "RowsSpec",
    "RowsWriter",
    "SpillFile",
    "Store",
    "StoreReader",
    "open_store",
    "read_array",
    "read_metadata",
    "require_numcodecs",
]
