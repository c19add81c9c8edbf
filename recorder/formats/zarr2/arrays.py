"""Metadata (``.zarray``) and chunks of arrays (zarr specification v2, "Arrays")."""

from __future__ import annotations

import base64
import functools
import importlib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from recorder.common.errors import FormatError, UsageError, need_extra
from recorder.formats.zarr2.documents import dump_json

BYTE_SHUFFLE = 1
BIT_SHUFFLE = 2
MAX_CHUNK_BYTES = 2**31 - 1 - 16
"""Largest input of Blosc (BLOSC_MAX_BUFFERSIZE)."""


class Compressor(Protocol):
    """Interface of a chunk compressor; equal compressors encode alike."""

    def config(self) -> dict[str, Any]:
        """Return the value of ``compressor`` in ``.zarray``."""

    def encode(self, chunk: npt.NDArray[Any]) -> bytes:
        """Encode a chunk, which is contiguous, in the order of the array."""


@dataclass(frozen=True)
class Blosc:
    """Blosc compressor, which shuffles bytes or bits of the numbers, then compresses them.

    Attributes:
        cname: the inner compressor.
        clevel: level of the inner compressor, 0 to 9.
        shuffle: `BYTE_SHUFFLE` or `BIT_SHUFFLE` (or 0, none).
        blocksize: block size in bytes; 0: Blosc chooses.
    """

    cname: str = "lz4"
    clevel: int = 5
    shuffle: int = BIT_SHUFFLE
    blocksize: int = 0

    def config(self) -> dict[str, Any]:
        return {
            "id": "blosc",
            "cname": self.cname,
            "clevel": self.clevel,
            "shuffle": self.shuffle,
            "blocksize": self.blocksize,
        }

    def encode(self, chunk: npt.NDArray[Any]) -> bytes:
        if chunk.nbytes > MAX_CHUNK_BYTES:
            raise FormatError(f"a chunk of {chunk.nbytes} bytes is more than Blosc takes")
        encoded = _blosc(self).encode(chunk)
        return encoded if isinstance(encoded, bytes) else bytes(encoded)


@functools.lru_cache(maxsize=16)
def _blosc(spec: Blosc) -> Any:
    numcodecs = require_numcodecs()
    # The output of Blosc's own threads varies; the caller's threads are enough.
    numcodecs.blosc.use_threads = False
    return numcodecs.get_codec(spec.config())


def require_numcodecs() -> Any:
    """Import numcodecs; raise UsageError, which names the extra, if it or cbor2 is missing."""
    try:
        importlib.import_module("cbor2")  # of the same extra; indexes and metadata need it
        return importlib.import_module("numcodecs")
    except ImportError as error:
        raise UsageError(f"packing archives {need_extra('archives')}: {error}") from None


Order = Literal["C", "F"]
DEFAULT_COMPRESSOR = Blosc()


@dataclass(frozen=True)
class ArraySpec:
    """Storage of an array that is written as a whole.

    Attributes:
        chunks: shape of a chunk; None: one chunk.
        compressor: compressor of chunks; None: chunks are stored uncompressed.
        fill_value: value of absent and padded elements; None: undefined.
        order: order of the elements within a chunk.
    """

    chunks: tuple[int, ...] | None = None
    compressor: Compressor | None = DEFAULT_COMPRESSOR
    fill_value: Any = 0
    order: Order = "C"

    def chunk_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the chunk shape for an array of this shape; a dimension of 0 has chunk 1."""
        chunks = tuple(max(1, size) for size in shape) if self.chunks is None else self.chunks
        if len(chunks) != len(shape) or any(size < 1 for size in chunks):
            raise FormatError(f"chunks {chunks} do not fit an array of shape {shape}")
        return chunks


PLAIN = ArraySpec(compressor=None)


@dataclass(frozen=True)
class RowsSpec:
    """Storage of an array that grows along its first axis.

    Attributes:
        dtype: dtype of an element; may be structured, with arrays as fields.
        row_shape: shape of a row.
        chunk_rows: number of rows in a chunk.
        compressor, fill_value: as in `ArraySpec`.
    """

    dtype: np.dtype[Any]
    row_shape: tuple[int, ...] = ()
    chunk_rows: int = 65_536
    compressor: Compressor | None = DEFAULT_COMPRESSOR
    fill_value: Any = 0


@dataclass(frozen=True)
class EncodedArray:
    """Encoded array, which is encoded once and stored any number of times.

    Attributes:
        values: values; must not be changed.
        metadata: ``.zarray``, as JSON.
        chunks: key and bytes of each chunk.
        constant: whether the array is stored often, so that a store may hold its bytes once.
    """

    values: npt.NDArray[Any]
    metadata: bytes
    chunks: tuple[tuple[str, bytes], ...]
    constant: bool = False

    @classmethod
    def encode(
        cls, values: npt.ArrayLike, spec: ArraySpec = ArraySpec(), *, constant: bool = False
    ) -> EncodedArray:
        """Encode values; raise FormatError for a dtype that zarr cannot store."""
        array = np.asarray(values)
        metadata = array_text(array.dtype, array.shape, spec)
        return cls(array, metadata, tuple(encode_chunks(array, spec)), constant)

    def without_values(self) -> EncodedArray:
        """Return the encoded array without its values, to be stored by another process."""
        return replace(self, values=self.values[:0])


def array_metadata(dtype: np.dtype[Any], shape: tuple[int, ...], spec: ArraySpec) -> dict[str, Any]:
    """Make the content of ``.zarray``."""
    return {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(spec.chunk_shape(shape)),
        "dtype": encode_dtype(dtype),
        "compressor": None if spec.compressor is None else spec.compressor.config(),
        "fill_value": encode_fill_value(spec.fill_value, dtype),
        "order": spec.order,
        "filters": None,
    }


def array_text(dtype: np.dtype[Any], shape: tuple[int, ...], spec: ArraySpec) -> bytes:
    """Encode ``.zarray`` as JSON; most arrays of a hierarchy share one of a few documents."""
    if spec.fill_value is None or type(spec.fill_value) in (int, float):
        return _cache_text(dtype, shape, spec)
    return dump_json(array_metadata(dtype, shape, spec))


@functools.lru_cache(maxsize=2048)
def _cache_text(dtype: np.dtype[Any], shape: tuple[int, ...], spec: ArraySpec) -> bytes:
    return dump_json(array_metadata(dtype, shape, spec))


def encode_dtype(dtype: np.dtype[Any]) -> Any:
    """Encode a dtype as in ``.zarray``: a string, or a list of fields ``[name, dtype, shape]``."""
    if dtype.hasobject:
        raise FormatError(f"dtype {dtype} holds Python objects, which zarr cannot store")
    if dtype.subdtype is not None:
        raise FormatError(f"dtype {dtype} is an array; give its shape to the array instead")
    if dtype.names is None:
        return dtype.str
    members: Mapping[str, Any] = dtype.fields or {}
    fields: list[Any] = []
    end = 0
    for name in dtype.names:
        member, offset = members[name][:2]
        if offset != end:
            raise FormatError(f"field {name} of dtype {dtype} is padded; zarr stores packed ones")
        end = offset + member.itemsize
        base, shape = member.subdtype or (member, ())
        encoded = encode_dtype(base)
        fields.append([name, encoded, list(shape)] if shape else [name, encoded])
    if end != dtype.itemsize:
        raise FormatError(f"dtype {dtype} is padded at its end; zarr stores packed ones")
    return fields


def encode_fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Encode a fill value as in ``.zarray`` (zarr specification v2, "Fill value encoding")."""
    if value is None:
        return None
    if dtype.kind in "SV":  # of bytes and structures: base64
        if dtype.kind == "S":
            raw = b"" if value == 0 else bytes(value)
        else:
            raw = (
                np.zeros((), dtype) if isinstance(value, int) else np.array(value, dtype)
            ).tobytes()
        return base64.standard_b64encode(raw).decode()
    if dtype.kind == "U":
        return "" if value == 0 else str(value)
    if dtype.kind in "mM":
        return int(np.array(value, "i8"))
    item = np.array(value, dtype).item()
    if dtype.kind == "c":
        return [_encode_float(item.real), _encode_float(item.imag)]
    return _encode_float(item) if isinstance(item, float) else item


def _encode_float(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def encode_chunk(chunk: npt.NDArray[Any], compressor: Compressor | None, order: Order) -> bytes:
    """Encode one full chunk to bytes."""
    if order == "F":
        chunk = chunk.T  # its C order is the chunk's F order
    if not chunk.flags.c_contiguous:
        chunk = np.ascontiguousarray(chunk)
    return chunk.tobytes() if compressor is None else compressor.encode(chunk)


def encode_chunks(array: npt.NDArray[Any], spec: ArraySpec) -> Iterator[tuple[str, bytes]]:
    """Yield key and bytes of every chunk; those at the edges are padded with the fill value."""
    if not array.size:
        return  # it has no chunks
    shape = spec.chunk_shape(array.shape)
    if shape == array.shape:
        key = ".".join("0" * (array.ndim or 1))  # of a 0-d array, too
        yield key, encode_chunk(array, spec.compressor, spec.order)
        return
    counts = [-(-size // chunk) for size, chunk in zip(array.shape, shape, strict=True)]
    for index in itertools.product(*map(range, counts)):
        begin = [i * size for i, size in zip(index, shape, strict=True)]
        part = array[tuple(slice(b, b + size) for b, size in zip(begin, shape, strict=True))]
        chunk = pad_chunk(part, shape, spec.fill_value)
        yield ".".join(map(str, index)), encode_chunk(chunk, spec.compressor, spec.order)


def pad_chunk(part: npt.NDArray[Any], shape: tuple[int, ...], fill_value: Any) -> npt.NDArray[Any]:
    """Pad a part of an array to a full chunk."""
    if part.shape == shape:
        return part
    chunk = np.zeros(shape, part.dtype)
    if fill_value is not None and fill_value != 0:  # NaN differs from 0, too
        chunk[...] = fill_value
    chunk[tuple(slice(0, size) for size in part.shape)] = part
    return chunk
