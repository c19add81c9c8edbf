"""Changes of files by which tests damage what was recorded."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Flip bits of one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)
