"""MD5 checksums of a session's data, in the CSV format of ``roverd checksum``.

``python -m recorder.session.checksums SESSION`` writes ``_recorder/checksums.csv`` at idle
priority, in CPU and I/O.  It covers all files outside ``_recorder`` and ``_archives``,
except the report.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from recorder.contract.syscalls import be_idle
from recorder.formats.disk import PosixDisk
from recorder.session.layout import ARCHIVES, PRIVATE, REPORT, private

CHECKSUMS = "checksums.csv"


def data_files(session: Path) -> Iterator[Path]:
    """Every file of the session's data, relative to it, sorted."""
    for path in sorted(session.rglob("*")):
        relative = path.relative_to(session)
        if path.is_file() and relative.parts[0] not in (PRIVATE, ARCHIVES, REPORT):
            yield relative


def write_checksums(session: Path) -> Path:
    """Write the session's checksums, durably and atomically.

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


if __name__ == "__main__":
    be_idle()
    try:
        write_checksums(Path(sys.argv[1]))
    except OSError as error:
        print(f"{error.filename or sys.argv[1]}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
