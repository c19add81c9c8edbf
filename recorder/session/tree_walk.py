"""Traversal of all files below a folder, at any depth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

_Entries = list[os.DirEntry[str]]


def fail(error: OSError) -> None:
    """Raise the error of a folder that cannot be read; for `walk`."""
    raise error


def walk(
    top: str | Path, failed: Callable[[OSError], None] = lambda _: None
) -> Iterator[tuple[str, _Entries, _Entries]]:
    """Yield all folders and files, as ``os.walk`` does, without recursion.

    ``os.walk`` calls itself for each nested folder before Python 3.12.

    Args:
        top: the first folder.
        failed: called with the error of a folder that cannot be read, which is passed over.

    Yields:
        a folder's path, the folders in it, and all else in it: files, and links, also to folders.
    """
    waiting = [os.fspath(top)]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                found = list(entries)
        except OSError as error:
            failed(error)
            continue
        folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        yield place, folders, [e for e in found if not e.is_dir(follow_symlinks=False)]
        waiting += [entry.path for entry in folders]
