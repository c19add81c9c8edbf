"""A second reader, written from the specification, that shares nothing with what it checks."""

from __future__ import annotations

import itertools
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

numcodecs: Any = pytest.importorskip(
    "numcodecs", reason="needs numcodecs (the extra `archives`), which is not installed"
)


def keys_of(path: Path) -> dict[str, bytes]:
    """All keys of a store with their bytes, by a plain tar program's or a folder's view."""
    if path.is_dir():
        files = (file for file in path.rglob("*") if file.is_file())
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    with tarfile.open(path, "r:") as tar:
        found = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            assert member.name not in found, "a key is there twice"
            found[member.name] = file.read()
        return found


def decode(keys: dict[str, bytes], path: str) -> npt.NDArray[Any]:
    """An array of a store."""
    meta = json.loads(keys[f"{path}/.zarray"])
    assert (meta["zarr_format"], meta["filters"]) == (2, None)
    dtype = _dtype(meta["dtype"])
    array = np.empty(meta["shape"], dtype)
    grid = [range(0, n, c) for n, c in zip(meta["shape"], meta["chunks"], strict=True)]
    for begin in itertools.product(*grid):
        index = [b // c for b, c in zip(begin, meta["chunks"], strict=True)]
        data: Any = keys[f"{path}/{'.'.join(map(str, index)) or '0'}"]
        if meta["compressor"] is not None:
            data = numcodecs.get_codec(meta["compressor"]).decode(data)
        chunk = np.frombuffer(data, dtype).reshape(meta["chunks"], order=meta["order"])
        spans = (slice(b, b + c) for b, c in zip(begin, meta["chunks"], strict=True))
        place: Any = (*spans, ...)
        target = array[place]
        target[...] = chunk[tuple(slice(0, n) for n in target.shape)]
    return array


def _dtype(encoded: Any) -> np.dtype[Any]:
    if isinstance(encoded, str):
        return np.dtype(encoded)
    return np.dtype([(name, _dtype(base), *map(tuple, shape)) for name, base, *shape in encoded])
