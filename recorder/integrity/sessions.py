"""Verification of a session: journal, signatures, every committed byte, and no unknown file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from recorder.common.errors import RecorderError, SessionError, UsageError
from recorder.integrity.proof import Proof, Trust, add_time
from recorder.integrity.signatures import SIGN, count_samples
from recorder.integrity.vehicle_key import Signed
from recorder.session import layout
from recorder.session.discovery import fail, walk
from recorder.session.journal.checks import check_digests, check_journal
from recorder.session.journal.digests import digest
from recorder.session.journal.frames import FIRST
from recorder.session.journal.journal import digest_first_record, walk_journal
from recorder.session.journal.state import JournalState
from recorder.session.lock import hold_session
from recorder.session.reader import Session
from recorder.session.validation_report import ERROR, Problem, Report

Advance = Callable[[int], None]
"""A callback that receives the number of megabytes read."""

# What may be in a session besides what was committed; docs/security.md has the list.
_LATER: Final = re.compile(
    rf"{layout.REPORT}|{layout.ARCHIVES}/.*|_(?!recorder/|archives/)[^/]+/.*"
    r"|_recorder/(lock|keep|checksums\.csv|uploaded\.json|finalize\.json|recorder\.log)"
    r"|_recorder/(upload|salvage|repack)/.*|_recorder/tail\.(0|1|kept|new)"
)
_MOST_METADATA: Final = 64 << 20  # bytes of a file of JSON or YAML, which is read at once


def find_unreadable_files(path: Path) -> list[str]:
    """Return one fault for each file of a session that must not be read.

    Such files are links, devices, pipes, sockets, and metadata files that are too large.  Archives
    are not checked here.

    Args:
        path: the session's folder.
    """
    faults = []
    try:
        for name, found in _walk_files(path):
            if name.startswith(f"{layout.ARCHIVES}/"):
                continue
            if stat.S_ISLNK(found.st_mode):
                faults.append(f"{path / name}: is a symbolic link; the recorder makes none")
            elif not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                faults.append(f"{path / name}: is a device, a pipe or a socket, not a file")
            elif name.endswith((".json", ".yaml")) and found.st_size > _MOST_METADATA:
                faults.append(f"{path / name}: {found.st_size} bytes: too large for such a file")
    except OSError as error:
        faults.append(_describe_error(path, error))
    return faults


def verify_session(path: Path, trust: Trust, advance: Advance = lambda _: None) -> Proof:
    """Verify a session without its archives.

    Args:
        path: its folder.
        trust: the keys.
        advance: see `Advance`.
    """
    proof = Proof(path, "session")
    try:
        for name in (layout.SESSION_JSON, layout.JOURNAL):
            if not (missing := layout.private(path, name)).exists():
                raise SessionError(f"{missing}: is missing; without it nothing proves the session")
        with hold_session(path) as held:
            if not held:
                text = "is being recorded, recovered or deleted; verify it afterwards"
                raise SessionError(f"{path}: {text}")
            journal = _Journal(layout.private(path, layout.JOURNAL))
            proof.faults += _find_changed_metadata(path, journal)  # readers may not name the file
            with Session(path, virtual=True) as session:
                _verify(session, journal, trust, proof, advance)
    except (RecorderError, OSError) as error:
        proof.faults.append(_describe_error(path, error))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        proof.faults.append(f"{path}: cannot be understood: {error!r}")
    except MemoryError:
        proof.faults.append(f"{layout.private(path, layout.JOURNAL)}: does not fit into memory")
    proof.faults = list(dict.fromkeys(proof.faults))
    return proof


def _verify(
    session: Session, journal: _Journal, trust: Trust, proof: Proof, advance: Advance
) -> None:
    path = session.path
    if session.state not in (layout.CLEAN, layout.RECOVERED):
        raise SessionError(f"{path}: was not closed; run `recorder recover {path}`")
    report = Report(path, session.name)
    if check_journal(session, report):
        check_digests(session, report, advance)
    problems = [p for p in report.problems if p.severity == ERROR]
    proof.faults += [_describe_problem(session, problem) for problem in problems]
    if not any(str(journal.path) in fault for fault in proof.faults):
        proof.faults += journal.faults
    proof.faults += [f"{path}/{name}: {error}" for name, error in session.broken.items()]
    proof.unproven += [p.message for p in report.problems if p.severity != ERROR]
    proof.heads = journal.heads
    _check_name(session, proof)
    _check_signatures(session, journal, trust, proof)
    _check_files(session, journal, proof)
    if not proof.faults:
        proof.proven.insert(0, f"every byte of {len(journal.committed)} committed files")


class _Journal:
    """The records of a journal, checked for order.

    Attributes:
        path: of the journal.
        state: its last state.
        heads: digests of its records.
        signatures: with the offset of each record, and the digest of the record before it.
        committed: paths of all files that it has digests of.
        unsigned: the kind and the offset of the first record behind the last signature.
        faults: in the order of records.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.state = path, JournalState()
        self.heads: set[str] = set()
        self.signatures: list[tuple[int, str, Any]] = []
        self.unsigned: tuple[str, int] | None = None
        self.faults: list[str] = []
        link, end, closed = FIRST, 0, False
        for frame, content, state in walk_journal(path):
            if frame.previous != link:
                self._add_fault(
                    f"the record at byte {frame.start} does not follow the one before it"
                )
            link, end, self.state = frame.own, frame.end, state
            self.heads.add(link.hex())
            if frame.kind == SIGN:
                self.signatures.append((frame.start, frame.previous.hex(), content))
                self.unsigned = None
                if not closed:
                    self._add_fault(f"the signature at byte {frame.start} is before the end")
            elif self.unsigned is None:
                self.unsigned = frame.kind, frame.start
            closed |= frame.kind == "close"
        size = path.stat().st_size
        if size != end:
            self._add_fault(f"bytes {end} to {size} hold no record")
        if not closed:
            self._add_fault(f"lacks the record `close`; its last record ends at byte {end}")
        own = f"{layout.PRIVATE}/{layout.JOURNAL}"
        self.committed = {*self.state.written_once, *self.state.files, own}

    def _add_fault(self, text: str) -> None:
        self.faults.append(f"{self.path}: {text}")


def _find_changed_metadata(path: Path, journal: _Journal) -> Iterator[str]:
    for name, value in journal.state.written_once.items():
        file = path / name
        if file.is_file() and digest(file.read_bytes()) != value:
            yield f"{file}: is not as it was recorded"


def _check_name(session: Session, proof: Proof) -> None:
    found = session.path.resolve().name
    if found != session.name:
        proof.faults.append(f"{session.path}: is the session {session.name}, under another name")


def _check_signatures(session: Session, journal: _Journal, trust: Trust, proof: Proof) -> None:
    description = digest(layout.private(session.path, layout.SESSION_JSON).read_bytes()).hex()
    expected = {
        "kind": "session",
        "session": session.name,
        "first": digest_first_record(journal.path).hex(),
        "state": session.state,
        "samples": count_samples(journal.state.positions),
        "root": journal.state.tree.root.hex(),
        "description": description,
    }
    for at, head, content in journal.signatures:
        try:
            signed = Signed.from_record(content)
            why = trust.find_fault(signed)
        except UsageError as error:
            proof.faults.append(f"{journal.path}: the record at byte {at}: {error}")
            continue
        wrong = [k for k, v in (expected | {"head": head}).items() if signed.values.get(k) != v]
        if why is None and wrong:
            why = f"is of another {', '.join(wrong)}"
        if why is not None:
            proof.faults.append(f"{journal.path}: the signature at byte {at}: {why}")
            continue
        proof.signatures.append(signed)
    if not journal.signatures:
        header = session.header or {}
        if header.get("signing_key") or (trust.fingerprints and not header.get("origin")):
            proof.faults.append(f"{journal.path}: has no signature")
        else:
            text = "not signed: anyone with write access can change it with its digests"
            proof.unproven.append(text)
        return
    if journal.unsigned is not None:
        kind, at = journal.unsigned
        text = f"the record `{kind}` at byte {at}, and what follows, is not signed"
        proof.faults.append(f"{journal.path}: {text}")
    elif proof.signatures and not proof.faults:
        last = proof.signatures[-1]
        number, cause = last.values.get("counter"), last.values.get("cause")
        who = trust.describe(last)
        how = " after recovery" if session.state == layout.RECOVERED else ""
        proof.signed = True
        proof.proven.append(f"signed{how} (cause {cause}, signature {number}) by {who}")


def _check_files(session: Session, journal: _Journal, proof: Proof) -> None:
    """List the files that were not committed, and report unknown ones as faults."""
    path, later = session.path, dict[str, int]()
    sensors = ((session.header or {}).get("sensors") or {}).values()
    is_simulated = any(sensor.get("source") == "sim" for sensor in sensors)
    for name, found in _walk_files(path):
        if name in journal.committed:
            continue
        if stat.S_ISDIR(found.st_mode):
            if not _LATER.fullmatch(f"{name}/"):
                proof.faults.append(f"{path / name}: is an empty folder; the recorder makes none")
        elif _LATER.fullmatch(name) or (is_simulated and name == "calibration.yaml"):
            folder = name.rpartition("/")[0]
            group = name if folder in ("", layout.PRIVATE) else f"{folder.partition('/')[0]}/"
            if folder.startswith(f"{layout.PRIVATE}/"):
                group = "/".join(name.split("/")[:2]) + "/"
            later[group] = later.get(group, 0) + 1
        else:
            proof.faults.append(f"{path / name}: was added: the journal does not have it")
    later.pop(f"{layout.ARCHIVES}/", None)  # they have a proof of their own
    if later:
        names = (f"{n} ({count} files)" if n.endswith("/") else n for n, count in later.items())
        proof.unproven.append(f"not committed, may change: {', '.join(sorted(names))}")


def _walk_files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file, link and empty folder of a session, relative to it; OSError."""
    for folder, folders, files in walk(path, fail):
        found = sorted(Path(entry.path) for entry in files)
        for each in found or ([] if folders else [Path(folder)]):
            yield each.relative_to(path).as_posix(), each.lstat()


def _describe_problem(session: Session, problem: Problem) -> str:
    """Return a problem's message with the time of its sample."""
    stream = session.streams.get(problem.stream or "")
    if stream is None or problem.sample is None:
        return problem.message
    return add_time(stream, problem.sample, problem.message)


def _describe_error(path: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or path}: cannot be read: {error.strerror or error}"
    return str(error) if str(path) in str(error) else f"{path}: {error}"
