"""New files and folders that appear under their names when they are complete.

::

    check_place(path, session, folder=False)
    with new_file(path) as temporary:            # .NAME.HOST.PID.part beside it
        temporary.write_bytes(data)

Existing files are never replaced.  After an exception, incomplete files are removed.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recorder.common.errors import UsageError
from recorder.common.files import FOLDER_MODE, PosixDisk, make_empty, make_folders
from recorder.session.discovery import find_session_around


def check_place(path: Path, session: Path, *, folder: bool) -> None:
    """Check that a new file or folder may have this path.

    Args:
        path: the path.
        session: folder of the session; nothing is written into it, or into another session.
        folder: whether it is a folder, which may exist if it is empty.

    Raises:
        UsageError: something has this path already, or the path is in a session.
    """
    inside = path.resolve().is_relative_to(session.resolve())
    if around := session if inside else find_session_around(path):
        raise UsageError(f"{path}: is in the session {around}; name another place with --out")
    if not path.exists() and not path.is_symlink():
        return
    if not folder:
        raise UsageError(f"{path}: exists; remove it, or name another file with --out")
    if not path.is_dir():
        raise UsageError(f"{path}: is a file; the pictures or points need a folder")
    if any(path.iterdir()):
        raise UsageError(f"{path}: is not empty; empty it, or name another folder with --out")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Create a file: yield a temporary path, and rename the file at the end.

    Raises:
        OSError: the file cannot be made.
    """
    temporary = _reserve_temporary(path)
    make_empty(temporary)
    try:
        with _name_errors(path):
            yield temporary
        PosixDisk().rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a folder: yield a temporary one, and rename the folder at the end.

    Raises:
        OSError: the folder cannot be made, or the path is not an empty folder.
    """
    temporary = _reserve_temporary(path)
    temporary.mkdir(FOLDER_MODE)
    try:
        with _name_errors(path):
            yield temporary
        temporary.rename(path)  # never replaces files or folders that are not empty
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file; FileExistsError if it exists."""
    make_empty(path)
    path.write_bytes(data)


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    """Add the path to errors of the kernel that name no file, such as of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        raise


def _reserve_temporary(path: Path) -> Path:
    """Return a temporary path beside a path; remove what killed processes left of the same path."""
    folder = path.absolute().parent
    make_folders(folder)
    begin = f".{path.name[:150]}.{os.uname().nodename[:64]}."
    for left in folder.glob(f"{glob.escape(begin)}*.part"):
        pid = left.name[len(begin) : -len(".part")]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
    return path.with_name(f"{begin}{os.getpid()}.part")
