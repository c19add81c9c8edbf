"""Discovery of sessions by their paths: in a root, in a tree of folders, around a file.

::

    for path in find_sessions(root):
        ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from recorder.common.errors import SessionError
from recorder.session import layout


def is_session(path: Path) -> bool:
    """Return whether a folder looks like a session or a roverd trace, by its ``config.yaml``."""
    return (path / "config.yaml").is_file() or layout.private(path, layout.SESSION_JSON).is_file()


def find_sessions(root: str | Path) -> list[Path]:
    """Return the sessions directly in a root, sorted by name, without unfinished (hidden) ones.

    Raises:
        SessionError: the root is not a folder that can be read.
    """
    root = Path(root)
    try:
        return sorted(p for p in root.iterdir() if not p.name.startswith(".") and is_session(p))
    except OSError as error:
        raise SessionError(f"{root}: cannot be listed: {error.strerror}") from None


def find_session_around(path: Path) -> Path | None:
    """Return the session that a path lies in, with its folder's links resolved; None if none."""
    folder = path.parent.resolve()
    return next(filter(is_session, (folder, *folder.parents)), None)


def describe_outside_link(path: Path) -> str | None:
    """Return the error for a session that is a symbolic link out of its folder; None if it is not.

    The recorder writes nothing through such a link: its target may belong to another user.
    """
    if not path.is_symlink() or path.resolve().parent == path.parent.resolve():
        return None
    return f"{path}: is a symbolic link to {path.resolve()}, outside of {path.parent}"


def find_sessions_below(root: Path, failed: Callable[[str], None]) -> Iterator[Path]:
    """Yield the sessions in a folder and in its folders, by path.

    Hidden folders and symbolic links are left out, and sessions are not searched.

    Args:
        root: the folder.
        failed: called with a message for each folder that cannot be listed.

    Raises:
        SessionError: the root is not a folder that can be read.
    """
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if is_session(folder):
            yield folder
            continue
        try:
            with os.scandir(folder) as entries:
                found = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        except OSError as error:
            message = f"{folder}: cannot be listed: {error.strerror}"
            if folder is root:
                raise SessionError(message) from None
            failed(message)
            continue
        names = sorted((name for name in found if not name.startswith(".")), reverse=True)
        waiting += [folder / name for name in names]


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
