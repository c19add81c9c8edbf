"""Checksums from parts and sums are those of all the bytes."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.archives.edgefirst.checksums import adler32_rows, crc32_combine


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_crc_of_two_pieces(first: bytes, second: bytes) -> None:
    found = crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert found == zlib.crc32(first + second)


@pytest.mark.parametrize("size", [65_535, 65_536, 790_123])
def test_crc_of_large_pieces(size: int) -> None:
    first, second = b"head", np.random.default_rng(size).bytes(size)
    found = crc32_combine(zlib.crc32(first), zlib.crc32(second), size)
    assert found == zlib.crc32(first + second)


@given(
    height=st.integers(1, 70) | st.integers(60_000, 70_000),
    width=st.integers(1, 9),
    turned=st.booleans(),
    value=st.none() | st.sampled_from([0, 255]),
)
@settings(max_examples=40, deadline=None)
def test_adler_of_rows(height: int, width: int, turned: bool, value: int | None) -> None:
    """Also of more rows, and longer ones, than its prime."""
    rows = np.random.default_rng(height).integers(0, 256, (height, width), np.uint8)
    if value is not None:
        rows[:] = value
    if turned:
        rows = np.ascontiguousarray(rows.T)
    lines = np.pad(rows, ((0, 0), (1, 0)))
    assert adler32_rows(rows) == zlib.adler32(lines.tobytes())
