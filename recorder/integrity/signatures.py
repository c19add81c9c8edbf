"""Signatures of a session: the records ``sign`` of its journal.

Such a record signs the record before it, and so all records before that, by their chain of digests.
The writer signs the record ``close``, recovery the one that it adds, packing after the session each
record ``pack``.  A signature has the vehicle's next number, and the digest of the signature before
it, which may be of another session, so that a missing session is detected.

Only a session that a writer with the key began is signed.  A signed session must not change.  The
key's register (`recorder.integrity.vehicle_key`) records both.

A statement is JSON with sorted keys:

=================  ==============================================================================
kind               ``session``
session            its name
first              BLAKE3 of its journal's first record
state              ``clean`` or ``recovered``
cause              ``close``, ``recovery`` or ``packing``
head               BLAKE3 of the journal's record before the signature
root               of the tree of the journal's digests
description        BLAKE3 of ``session.json``
files              BLAKE3 of the files of configuration, calibration and declarations, by path
metadata           BLAKE3 of the session's metadata (`digest_metadata`)
samples            by stream, their number
start_ns, end_ns   of the session, epoch ns
clock_ns           epoch ns minus ``t_mono``
next               ``{session, first}`` of the part that continues it; null for the last one
counter            number of the signature, from 1, over all sessions of the vehicle
previous           ``{session, digest}`` of the signature before it; null for the first
deleted            numbers of signatures whose sessions the recorder has deleted, as ranges
register           the link of the register's last entry: it has the digests of deleted signatures
signed_ns          epoch ns
=================  ==============================================================================
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.common.errors import RecorderError, SessionError, UsageError
from recorder.integrity.vehicle_key import (
    DELETE,
    OPEN,
    Entry,
    Signed,
    VehicleKey,
    find_latest_signature,
)
from recorder.integrity.vehicle_key import SIGN as SIGNED
from recorder.session import layout
from recorder.session.journal.digests import digest
from recorder.session.journal.journal import JournalWriter, digest_first_record, walk_journal

SIGN: Final = "sign"
CLOSE, RECOVERY, PACKING = "close", "recovery", "packing"
_AFTER_CLOSE: Final = frozenset(("pack", SIGN))


def register_session(session: Path, header: Mapping[str, Any], first: bytes) -> None:
    """Register the begin of a session whose config names a key; only such a session is signed.

    A key that cannot be used leaves the session unsigned: a line on stderr gives the reason.

    Args:
        session: its folder, which need not have this name yet.
        header: its ``session.json``.
        first: digest of the first record of its journal.
    """
    if (path := header.get("signing_key")) is None:
        return
    try:
        with VehicleKey(Path(path)).register.lock_entries() as entries:
            entries.append(OPEN, first.hex(), {"folder": str(session.absolute())})
    except (RecorderError, OSError) as error:
        print(f"{session}: will not be signed: {error}", file=sys.stderr, flush=True)


def check_not_closed(session: Path, header: Mapping[str, Any], first: bytes) -> None:
    """Check that an open session was not closed before, if its key's register is available.

    Args:
        session: its folder.
        header: its ``session.json``.
        first: digest of the first record of its journal.

    Raises:
        SessionError: it was closed and signed, and was changed since.
    """
    if (path := header.get("signing_key")) is None:
        return
    try:
        with VehicleKey(Path(path)).register.open_entries() as entries:
            signed = find_latest_signature(entries.of(first.hex()))
    except (RecorderError, OSError):
        return  # the session is not signed, then
    if signed is not None:
        number = signed.values.get("counter")
        text = f"was closed and has signature {number}, but is open now: it was changed since, and"
        text += " stays as it is; restore it from a copy, or move it elsewhere"
        raise SessionError(f"{session}: {text}")


def sign_head(journal: JournalWriter, session: Path, cause: str) -> None:
    """Sign the last record of a closed session's journal, where its config names a key.

    A key that cannot be used, or has not registered the session, leaves the session unsigned: a
    line on stderr gives the reason.  The caller syncs the journal.

    Args:
        journal: of the session.
        session: its folder.
        cause: `CLOSE`, `RECOVERY` or `PACKING`.
    """
    if journal.state.signed:
        return
    try:
        header = layout.read_session_json(session)
        if (path := header.get("signing_key")) is None:
            return
        journal.append(SIGN, **_sign(VehicleKey(Path(path)), header, journal, session, cause))
    except (RecorderError, OSError) as error:
        print(f"{session}: is not signed: {error}", file=sys.stderr, flush=True)


def _sign(
    key: VehicleKey, header: dict[str, Any], journal: JournalWriter, session: Path, cause: str
) -> dict[str, str]:
    state, first = journal.state, digest_first_record(journal.file.path).hex()
    name, head = header["name"], state.link.hex()
    with key.register.open_entries() as entries:
        known = entries.of(first)
    if not known:
        text = f"{key.register.path}: does not have its beginning"
        raise UsageError(f"{text}: it began without this key, or with another journal")
    before = [Signed.from_record(entry.content) for entry in known if entry.kind == SIGNED]
    for signed in before:
        if signed.values.get("head") == head:
            return signed.to_record()  # registered, but a power cut took the record
    if before:
        _check_closed(journal.file.path, before[0])
    with key.register.lock_entries() as entries:
        recent = entries.since_signature()
        last = find_latest_signature(recent)
        values = {} if last is None else last.values
        description = layout.private(session, layout.SESSION_JSON).read_bytes()
        following = {"session": state.next, "first": state.next_first.hex()}
        signed = key.sign(
            {
                "kind": "session",
                "session": name,
                "first": first,
                "state": header["state"],
                "cause": cause,
                "head": head,
                "root": state.tree.root.hex(),
                "description": digest(description).hex(),
                "files": {path: value.hex() for path, value in state.metadata.items()},
                "metadata": digest_metadata(header),
                "samples": count_samples(state.positions),
                "start_ns": header["start_ns"],
                "end_ns": header["end_ns"],
                "clock_ns": int(header["start_ns"]) - int(header["start_mono_ns"]),
                "next": None if state.next is None else following,
                "counter": values.get("counter", 0) + 1,
                "previous": last and {"session": values.get("session"), "digest": last.digest},
                "deleted": _merge_deleted(values.get("deleted", ()), recent),
                "register": entries.link,
                "signed_ns": time.time_ns(),
            }
        )
        entries.append(SIGNED, first, signed.to_record())
    return signed.to_record()


def digest_metadata(header: Mapping[str, Any]) -> str:
    """Return the BLAKE3 of a ``session.json``'s metadata, as JSON with sorted keys, in hex."""
    return digest(msgspec.json.encode(header.get("metadata"), order="sorted")).hex()


def count_samples(positions: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return the samples of a commit's positions by stream, without streams that have none."""
    samples = {name: int(position.get("samples", 0)) for name, position in positions.items()}
    return {name: count for name, count in samples.items() if count}


def _check_closed(path: Path, signed: Signed) -> None:
    """Check that only packing followed the signed record; UsageError."""
    head, later = signed.values.get("head"), None
    for frame, _, state in walk_journal(path):
        if state.link.hex() == head:
            later = set[str]()
        elif later is not None:
            later.add(frame.kind)
    if later is None or not later <= _AFTER_CLOSE:
        number = signed.values.get("counter")
        raise UsageError(f"its journal is not the one that was closed with signature {number}")


def _merge_deleted(before: Iterable[Sequence[int]], recent: Sequence[Entry]) -> list[list[int]]:
    """Return numbers of deleted sessions as sorted ranges: of the last signature, and later ones.

    Args:
        before: the ranges of the last signature.
        recent: the register's entries from that one on.
    """
    later = [n for entry in recent if entry.kind == DELETE for n in entry.content["numbers"]]
    ranges: list[list[int]] = []
    for first, last in sorted([*(tuple(r) for r in before), *((n, n) for n in later)]):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1][1] = max(last, ranges[-1][1])
        else:
            ranges.append([first, last])
    return ranges


def register_deletion(session: Path) -> None:
    """Register that the recorder deletes a session, before it is deleted.

    Its signatures may then be missing.  The deletion of a copy is not registered.  Without the
    vehicle's key the session counts as missing; a line on stderr gives the reason.
    """
    try:
        header = layout.read_session_json(session)
        if (path := header.get("signing_key")) is None:
            return
        register = VehicleKey(Path(path)).register
        first = digest_first_record(layout.private(session, layout.JOURNAL)).hex()
        with register.open_entries() as entries:
            known = entries.of(first)
        if signed := _find_own_signatures(session, header["name"], first, known):
            numbers = [each.values["counter"] for each in signed]
            digests = [each.digest for each in signed]
            with register.lock_entries() as entries:
                entries.append(DELETE, first, {"numbers": numbers, "digests": digests})
    except (RecorderError, OSError, LookupError) as error:
        print(f"{session}: its deletion is not counted: {error}", file=sys.stderr, flush=True)


def _find_own_signatures(
    session: Path, name: str, first: str, known: Sequence[Entry]
) -> list[Signed]:
    """Return the signatures of a session that is to be deleted; UsageError for a copy of it.

    Args:
        session: its folder.
        name: the name in its ``session.json``.
        first: digest of the first record of its journal.
        known: its entries in the register.
    """
    signed = [Signed.from_record(entry.content) for entry in known if entry.kind == SIGNED]
    if not signed:
        return []
    if (session.absolute().name, signed[0].values.get("session")) != (name, name):
        raise UsageError(f"it is a copy of {signed[0].values.get('session')} under another name")
    began = Path(known[0].content["folder"])
    if began != session.absolute() and _has_session(began, first):
        raise UsageError(f"it is a copy of {began}, which is still there")
    _check_closed(layout.private(session, layout.JOURNAL), signed[0])
    return signed


def _has_session(folder: Path, first: str) -> bool:
    """Return whether a folder has the session whose journal begins with that record."""
    return digest_first_record(layout.private(folder, layout.JOURNAL)).hex() == first


def last_signature(path: Path) -> Signed | None:
    """Return the signature at the end of a session's journal; None without one.

    Args:
        path: of the journal.

    Raises:
        SessionError: the journal cannot be read.
    """
    found = None
    for frame, content, _ in walk_journal(path):
        found = Signed.from_record(content) if frame.kind == SIGN else None
    return found
