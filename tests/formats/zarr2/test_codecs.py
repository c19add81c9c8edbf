"""Compressors, and what is reported where a package is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from recorder.common.errors import UsageError
from recorder.formats.zarr2 import ArraySpec, Blosc, EncodedArray, require_numcodecs


@pytest.mark.parametrize("package", ["numcodecs", "cbor2"])
def test_without_a_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"needs the extra archives .*{package}"):
        require_numcodecs()


def test_arrays_without_a_compressor_need_no_numcodecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numcodecs", None)
    encoded = EncodedArray.encode(np.arange(3, dtype="<u2"), ArraySpec(compressor=None))
    assert encoded.chunks == (("0", b"\0\0\1\0\2\0"),)


def test_a_compressor_describes_itself() -> None:
    assert Blosc("zstd", 3, 1).config() == {
        "id": "blosc",
        "cname": "zstd",
        "clevel": 3,
        "shuffle": 1,
        "blocksize": 0,
    }
