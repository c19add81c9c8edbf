"""The type of encoded bytes."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
"""Encoded bytes, passed on without a copy."""


def buffer_size(buffer: Buffer) -> int:
    """Return the bytes in a buffer, whatever its item size."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
