"""Compressors of chunks; numcodecs is imported only when one is made."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from recorder.common.errors import FormatError, UsageError
from recorder.common.extras import need_extra

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
