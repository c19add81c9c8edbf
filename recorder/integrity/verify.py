"""Verification of a path: a session, a clip, archives, or a folder of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from recorder.common.errors import RecorderError, UsageError
from recorder.integrity.archives import (
    find_leftovers,
    find_records,
    find_unknown_files,
    verify_archive,
)
from recorder.integrity.clips import check_clip
from recorder.integrity.proof import SHOWN, Proof, Trust
from recorder.integrity.sessions import find_unreadable_files, verify_session
from recorder.integrity.vehicle_key import Signed
from recorder.session import layout
from recorder.session.discovery import find_session_around, find_sessions_below, is_session
from recorder.session.journal.journal import read_journal


def check_rows(folder: Proof, sessions: Sequence[Proof], *, whole: bool = True) -> None:
    """Check the signatures of several sessions together, one sequence for each key.

    Args:
        folder: receives proven facts and faults.
        sessions: proofs of all sessions.
        whole: a session that is missing is a fault; False: sessions may be elsewhere.
    """
    damaged = {Path(each.path).name for each in sessions if each.faults and not each.signatures}
    rows: dict[str, dict[int, tuple[Signed, Path | str]]] = {}
    for session in sessions:
        for signed in session.signatures:
            row = rows.setdefault(signed.fingerprint, {})
            number = int(signed.values.get("counter", 0))
            if number in row and row[number][0].digest != signed.digest:
                text = f"and {session.path} both have signature {number} of one key"
                folder.faults.append(f"{row[number][1]} {text}: the key's counter was set back")
            elif number in row:
                text = "is a copy of"
                folder.faults.append(f"{session.path}: {text} {row[number][1]}")
            row.setdefault(number, (signed, session.path))
    for key, row in rows.items():
        _check_row(folder, key, row, damaged, whole)


def _check_row(
    folder: Proof, key: str, row: dict[int, tuple[Signed, Path | str]], damaged: set[str],
    whole: bool,
) -> None:  # fmt: skip
    key = key[:SHOWN]
    numbers = sorted(row)
    last = row[numbers[-1]][0]
    deleted = [(int(a), int(b)) for a, b in last.values.get("deleted") or ()]
    faults, gone, missing = len(folder.faults), 0, 0
    number = numbers[-1]
    # From the last signature down, every number is a session here, a stated deletion, or missing.
    while number >= 1:
        if number in row:
            number -= 1
            continue
        found = next((r for r in deleted if r[0] <= number <= r[1]), None)
        if found is not None:
            below = max((n for n in numbers if n < number), default=0)
            stop = max(found[0] - 1, below)
            gone += number - stop
            number = stop
            continue
        after = row.get(number + 1)
        previous = (after[0].values.get("previous") or {}) if after else {}
        name = previous.get("session")
        if name in damaged:  # its own proof has the fault
            folder.unproven.append(f"signature {number}: cannot be read in {name}")
            missing += 1
        else:
            who = f"of the session {name} " if name else ""
            text = f"signature {number} {who}is missing: it was deleted, or is elsewhere"
            found_in = folder.faults if whole else folder.unproven
            found_in.append(f"{folder.path}: {text} (key {key})")
            missing += 1
        number -= 1
    for low, high in pairwise(numbers):
        signed, path = row[high]
        previous = signed.values.get("previous") or {}
        if high == low + 1 and previous.get("digest") != row[low][0].digest:
            text = f"signature {high} does not follow signature {low} of {row[low][1]}"
            folder.faults.append(f"{path}: {text}")
    if len(folder.faults) == faults and not missing:
        text = f"signatures 1 to {numbers[-1]} of the key {key} follow each other"
        text += f"; {gone} of them are of sessions that the recorder deleted" if gone else ""
        folder.proven.append(text)
    ends = f"nothing here proves that signature {numbers[-1]} is the last one of the key {key}"
    folder.unproven.append(f"{ends}; `recorder keys show` on the vehicle shows it")


Begin = Callable[[Path], Callable[[int], None]]
"""A callback that receives the next path; it returns a callback for the megabytes read."""


def verify(
    path: Path,
    trust: Trust,
    sources: Sequence[Path] = (),
    begin: Begin = lambda _: lambda __: None,
) -> Proof:
    """Verify the session, clip, archives or folder at a path.

    Args:
        path: a session, a clip, an archive or its record, a folder of archives or of sessions.
        trust: the keys.
        sources: folders of the source sessions of archives and clips, in addition to those found
            around the path.
        begin: see `Begin`.

    Raises:
        UsageError: there is nothing that can be verified.
    """
    return _Verifying(trust, sources, begin).run(path)


class _Verifying:
    def __init__(self, trust: Trust, sources: Sequence[Path], begin: Begin) -> None:
        self._trust = trust
        self._sources = list(sources)
        self._begin = begin
        self._known: dict[Path, Proof] = {}
        self._begun: set[Path] = set()

    def run(self, path: Path) -> Proof:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
        if is_session(path) or (path / layout.PRIVATE).is_dir():
            return self._verify_whole(path)
        if records := find_records(path):
            proofs = [self._verify_archive(record) for record in records]
            return proofs[0] if len(proofs) == 1 else Proof(path, "folder", parts=proofs)
        return self._verify_folder(path)

    def _verify_folder(self, path: Path) -> Proof:
        proof = Proof(path, "folder")
        if not path.is_dir():
            raise UsageError(f"{path}: is no session and no archive with a record")
        sessions = list(find_sessions_below(path, proof.faults.append))
        if not sessions:
            raise UsageError(f"{path}: has no session, and no archive with a record")
        self._sources.append(path)
        proof.parts = [self._verify_whole(session) for session in sessions]
        check_rows(proof, proof.parts)
        for session in sessions:
            self._check_next(session, proof)
        return proof

    def _check_next(self, session: Path, proof: Proof) -> None:
        if self._verify_session(session).faults:
            return
        try:
            following = read_journal(layout.private(session, layout.JOURNAL)).find_next_session(
                session
            )
        except RecorderError:  # its own proof has it
            return
        if following is not None and not any(self._find_places(following.name, session.parent)):
            text = f"continues in {following.name}, which is not here"
            proof.unproven.append(f"{session}: {text}")

    def _verify_session(self, path: Path) -> Proof:
        key = path.resolve()
        if key not in self._known:
            self._begun.add(key)
            if faults := find_unreadable_files(path):
                self._known[key] = Proof(path, "session", faults=faults)
                return self._known[key]
            proof = verify_session(path, self._trust, self._begin(path))
            try:
                origin = layout.read_session_json(path).get("origin")
            except RecorderError:
                origin = None
            if origin is not None:
                check_clip(proof, self._trust, lambda name: self._find(name, path.parent))
            self._known[key] = proof
        return self._known[key]

    def _verify_whole(self, path: Path) -> Proof:
        """Verify a session with its archives."""
        proof = self._verify_session(path)
        for record in find_records(path / layout.ARCHIVES):
            proof.parts.append(self._verify_archive(record))
        proof.faults += find_unknown_files(path / layout.ARCHIVES)
        proof.unproven += find_leftovers(path / layout.ARCHIVES)
        return proof

    def _verify_archive(self, record: Path) -> Proof:
        around = find_session_around(record)
        beside = around.parent if around is not None else record.parent
        begin, owner = self._begin(record), None

        def find(name: str) -> Proof | None:
            if around is not None:
                return self._verify_session(around)
            return self._find(name, beside)

        if around is not None:  # another name than the folder's is a fault of the session
            owner = around.name
        return verify_archive(record, self._trust, find, begin, owner)

    def _find(self, name: str, beside: Path) -> Proof | None:
        """Return the proof of a session by its name; None if it is missing.

        A session whose verification has not finished proves nothing, and is left out.
        """
        for path in self._find_places(name, beside):
            key = path.resolve()
            if key in self._known or key not in self._begun:
                return self._verify_session(path)
        return None

    def _find_places(self, name: str, *more: Path) -> Iterator[Path]:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            return
        for folder in (*self._sources, *more):
            for path in (folder / name, *([folder] if folder.name == name else [])):
                if is_session(path):
                    yield path
