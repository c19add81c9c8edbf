"""MD5 checksums of a session's data, in the CSV format of ``roverd checksum``.

``python -m recorder.session.checksums SESSION`` writes ``_recorder/checksums.csv`` at idle
priority, in CPU and I/O.  It covers all files outside ``_recorder`` and ``_archives``, except the
report.  With ``--wait`` after SESSION it reads the present files first, and completes its work when
a byte arrives on its standard input, so that files added meanwhile are covered too.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from recorder.common.files import PosixDisk
from recorder.common.syscalls import be_idle
from recorder.session.discovery import fail, walk
from recorder.session.layout import ARCHIVES, PRIVATE, REPORT, private

CHECKSUMS = "checksums.csv"
_Known = tuple[tuple[int, int], str]


def data_files(session: Path) -> Iterator[Path]:
    """Yield every file of the session's data, relative to it, sorted."""
    for path in sorted(Path(e.path) for _, _, files in walk(session, fail) for e in files):
        relative = path.relative_to(session)
        if path.is_file() and relative.parts[0] not in (PRIVATE, ARCHIVES, REPORT):
            yield relative


def write_checksums(session: Path, others: Callable[[], object] = lambda: None) -> Path:
    """Write the session's checksums, durably and atomically; sync the listed files first.

    Args:
        session: its folder.
        others: called once all files are read; returns when no other process adds files.  Files
            that are new or changed by then are read again.

    Returns:
        The CSV: columns ``file`` (relative to the session) and ``md5``.
    """
    known: dict[Path, _Known] = {}
    for relative in data_files(session):
        with contextlib.suppress(FileNotFoundError):  # renamed, now that it is complete
            known[relative] = _read(session / relative)
    others()
    final = {file: _read(session / file, known.get(file)) for file in data_files(session)}
    for folder in {session / parent for file in final for parent in file.parents}:
        PosixDisk().sync_folder(folder)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["file", "md5"])
    rows.writerows((str(relative), digest) for relative, (_, digest) in final.items())
    path = private(session, CHECKSUMS)
    PosixDisk().write_file(path, text.getvalue().encode())
    return path


def _read(path: Path, before: _Known | None = None) -> _Known:
    """Return size, time of change and digest of a file; reuse the digest of an unchanged file."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        state = found.st_size, found.st_mtime_ns
        if before is not None and before[0] == state:
            return before
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
        return state, digest.hexdigest()


def _wait_for_go() -> None:
    """Wait for a byte on the standard input; end this process if the other side has ended."""
    if not sys.stdin.buffer.read(1):
        sys.exit(1)


if __name__ == "__main__":
    be_idle()
    session, *flags = sys.argv[1:]
    try:
        if flags == ["--wait"]:
            write_checksums(Path(session), _wait_for_go)
        else:
            write_checksums(Path(session))
    except OSError as error:
        print(f"{error.filename or session}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)
