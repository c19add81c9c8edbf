"""MD5 of stores as in NCore: of a file, or of a folder's names and contents."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

_READ_BYTES = 1 << 20


def md5_of(path: Path) -> str:
    """Hexadecimal MD5 of a file, or of a folder's names and contents; OSError passes through."""
    digest = hashlib.md5(usedforsecurity=False)
    (_add_folder if path.is_dir() else _add_file)(str(path), digest)
    return digest.hexdigest()


def _add_folder(folder: str, digest: Any) -> None:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: (entry.name.lower(), entry.name))
    for entry in ordered:
        digest.update(entry.name.encode())
        (_add_folder if entry.is_dir() else _add_file)(entry.path, digest)


def _add_file(path: str, digest: Any) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while part := os.read(fd, _READ_BYTES):
            digest.update(part)
    finally:
        os.close(fd)
