"""Checks of a session's journal against its files, and of its checksums."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path

from recorder.common.errors import SessionError
from recorder.session.checksums import CHECKSUMS, data_files
from recorder.session.journal.journal import read_journal
from recorder.session.journal.packed_channels import find_packed
from recorder.session.journal.state import JournalState
from recorder.session.layout import CLEAN, JOURNAL, RECOVERED, REPACK, private
from recorder.session.reader import Session
from recorder.session.validation_report import Report

_BLOCK = 1 << 20


def check_journal(session: Session, report: Report) -> bool:
    """Check a session's journal: readable, and consistent with its files and ``session.json``.

    A closed session's files have the length of the last commit, to the byte.  An open session's
    files have at least the committed length, and its journal may end in a torn record.

    Returns:
        Whether the journal can be read.
    """
    path = private(session.path, JOURNAL)
    try:
        journal = read_journal(path)
        size = path.stat().st_size
    except (SessionError, OSError) as error:
        report.error(str(error) if str(path) in str(error) else f"{path}: {error}")
        return False
    closed = session.state in (CLEAN, RECOVERED)
    if closed:
        if size != journal.length:
            text = f"{size - journal.length} bytes from byte {journal.length} on are no record"
            if private(session.path, REPACK).is_dir():  # packing was interrupted
                report.warning(f"{path}: {text}; `recorder finalize --pending` removes them")
            else:
                report.error(f"{path}: {text}")
        if journal.closed is None:
            report.warning(f"{path}: lacks its last record; run `recorder recover`")
        elif journal.closed != session.state:
            text = f"closed as {journal.closed}, but session.json says {session.state}"
            report.error(f"{path}: {text}")
    elif journal.closed is not None:
        report.error(f"{path}: closed as {journal.closed}, but session.json says {session.state}")
    _check_lengths(session, journal, report, closed)
    if closed:
        _check_declarations(session, journal, report)
    report.checked.append(f"_recorder/commits: {journal.commits} commits")
    return True


def _check_lengths(session: Session, journal: JournalState, report: Report, closed: bool) -> None:
    reported = {(problem.stream, problem.channel) for problem in report.problems}
    packed = find_packed(session.path, journal.packed)
    for name, length in journal.files.items():
        path = session.path / name
        if name in packed and name == packed[name].channel:
            continue  # its length is how it is known
        folder, _, file = name.partition("/")
        stream = folder if folder in session.streams else None
        if stream is not None and {(stream, file), (stream, file.removesuffix("_i"))} & reported:
            continue  # the rule of its format reports it better
        try:
            size = path.stat().st_size
        except OSError as error:
            report.error(f"{path}: was committed: {error.strerror}", stream, channel=file)
            continue
        if size < length or (closed and size != length):
            text = f"{size} bytes, where {length} were committed"
            report.error(f"{path}: {text}", stream, channel=file)


def _check_declarations(session: Session, journal: JournalState, report: Report) -> None:
    path = private(session.path, JOURNAL)
    for name, stream in session.streams.items():
        if stream.spec is None:
            continue
        if journal.specs.get(name) != stream.spec:
            report.error(f"{path}: {name}: not declared as session.json has it", name)
        journalled = journal.epochs.get(name, [])
        for entry in stream.epochs or ():
            reported = (entry.get("epoch"), entry.get("first_sample"))
            if reported not in journalled and session.state == CLEAN:
                text = f"epoch {reported[0]} from sample {reported[1]} on is not in the journal"
                report.error(f"{path}: {name}: {text}", name)


def check_checksums(
    session: Session, report: Report, deep: bool, advance: Callable[[int], None]
) -> None:
    """Check ``checksums.csv``, if it exists: every file is listed, and unchanged if `deep`.

    Args:
        session: to check.
        report: receives the faults.
        deep: read every file and compare.
        advance: called with the megabytes read.
    """
    path = private(session.path, CHECKSUMS)
    try:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
    except FileNotFoundError:
        report.checked.append(f"_recorder/{CHECKSUMS}: none written")
        return
    except (OSError, ValueError, csv.Error) as error:
        report.error(f"{path}: cannot be read: {error}")
        return
    if not rows or rows[0] != ["file", "md5"] or any(len(row) != 2 for row in rows):
        report.error(f"{path}: not a list of checksums: needs the columns file,md5")
        return
    listed: dict[str, str] = dict(rows[1:])
    found = {str(relative) for relative in data_files(session.path)}
    for name in sorted(listed.keys() - found):
        report.error(
            f"{session.path / name}: is missing; {path.name} lists it", _find_stream(session, name)
        )
    for name in sorted(found - listed.keys()):
        report.warning(f"{session.path / name}: is not in {path.name}", _find_stream(session, name))
    if deep:
        packed = _read_packed_md5(session.path)
        for name in sorted(listed.keys() & found):
            try:
                digest = _compute_md5(session.path / name, advance)
            except OSError as error:
                text = f"{session.path / name}: cannot be read: {error.strerror}"
                report.error(text, _find_stream(session, name))
                continue
            if digest != listed[name] and digest != packed.get(name):
                text = f"{session.path / name}: has changed since it was closed: MD5 {digest}"
                report.error(f"{text}, not {listed[name]}", _find_stream(session, name))
    kind = "compared" if deep else "listed"
    report.checked.append(f"_recorder/{CHECKSUMS}: {len(listed)} files {kind}")


def _read_packed_md5(session: Path) -> dict[str, str]:
    """Return MD5 of files that were packed after the session; the list may not have them yet."""
    try:
        journal = read_journal(private(session, JOURNAL))
    except SessionError:  # it was reported
        return {}
    packed = find_packed(session, journal.packed).values()
    return {name: md5 for p in packed for name, md5 in zip(p.files, p.md5, strict=True)}


def checksum_ticks(session: Session) -> int:
    """Return the megabytes, rounded up per file, that a deep check of the checksums reads."""
    if not private(session.path, CHECKSUMS).is_file():
        return 0
    sizes = ((session.path / name).stat().st_size for name in data_files(session.path))
    return sum(-(-size // _BLOCK) for size in sizes)


def _find_stream(session: Session, name: str) -> str | None:
    folder = Path(name).parts[0] if name else ""
    return folder if folder in session.streams else None


def _compute_md5(path: Path, advance: Callable[[int], None]) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            advance(1)
    return digest.hexdigest()
