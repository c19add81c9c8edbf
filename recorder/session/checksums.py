"""MD5 checksums of a session's data, in the CSV that ``roverd checksum`` writes and compares.

``python -m recorder.session.checksums SESSION`` writes ``_recorder/checksums.csv`` at idle
priority, in CPU and I/O.  Checked are all files outside ``_recorder`` and ``_archives``.
"""

from __future__ import annotations

import csv
import ctypes
import hashlib
import io
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from recorder.formats.disk import PosixDisk
from recorder.session.layout import private

CHECKSUMS = "checksums.csv"

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # linux syscall numbers of ioprio_set(2)
_IOPRIO_IDLE = 3 << 13


def data_files(session: Path) -> Iterator[Path]:
    """Every file of the session's data, relative to it, sorted."""
    for path in sorted(session.rglob("*")):
        relative = path.relative_to(session)
        if path.is_file() and relative.parts[0] not in ("_recorder", "_archives"):
            yield relative


def write_checksums(session: Path) -> Path:
    """Write the session's checksums, durably and whole.

    Returns:
        The CSV: columns ``file`` (relative to the session) and ``md5``.
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["file", "md5"])
    for relative in data_files(session):
        with (session / relative).open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
            rows.writerow([str(relative), digest.hexdigest()])
    path = private(session, CHECKSUMS)
    PosixDisk().write_file(path, text.getvalue().encode())
    return path


def _be_idle() -> None:
    os.nice(19)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:  # elsewhere the niceness has to do
        ctypes.CDLL(None).syscall(number, 1, 0, _IOPRIO_IDLE)


if __name__ == "__main__":
    _be_idle()
    try:
        write_checksums(Path(sys.argv[1]))
    except OSError as error:
        print(f"{error.filename or sys.argv[1]}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
