"""Permission check for files with secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from recorder.common.errors import UsageError


def check_private(path: Path) -> None:
    """Check that other users cannot read a file of secrets.

    Raises:
        UsageError: the file cannot be read, belongs to another user, or has permissions for others.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if found.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{path}: belongs to another user (uid {found.st_uid})")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(f"{path}: others can read it; run `chmod 600 {path}`")
