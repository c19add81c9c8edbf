"""Signatures of a session: the records ``sign`` of its journal.

Such a record signs the record before it, and so all records before that, by their chain of digests.
The writer signs the record ``close``, recovery the one that it adds, packing after the session each
record ``pack``.  A signature has the vehicle's next number, and the digest of the signature before
it, which may be of another session: so a session that is missing shows.

A statement is JSON with sorted keys:

=================  ==============================================================================
kind               ``session``
session            its name
state              ``clean`` or ``recovered``
cause              ``close``, ``recovery`` or ``packing``
head               BLAKE3 of the journal's record before the signature
root               of the tree of the journal's digests
description        BLAKE3 of ``session.json``
counter            number of the signature, from 1, over all sessions of the vehicle
previous           ``{session, digest}`` of the signature before it; null for the first
deleted            numbers of signatures whose sessions the recorder has deleted, as ranges
signed_ns          epoch ns
=================  ==============================================================================
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

from recorder.contract.errors import RecorderError, UsageError
from recorder.formats.digests import digest
from recorder.session import layout
from recorder.session.journal import JournalWriter, walk_journal
from recorder.session.vehicle_key import Counter, Signed, VehicleKey

SIGN: Final = "sign"
CLOSE, RECOVERY, PACKING = "close", "recovery", "packing"


def sign_head(journal: JournalWriter, session: Path, cause: str) -> None:
    """Sign the last record of a closed session's journal, where its config names a key.

    A key that cannot be used leaves the session unsigned: a line on stderr says why.  The caller
    syncs the journal.

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
    name, head = header["name"], journal.state.link.hex()
    with key.counting() as counter:
        last = counter.last
        before = {} if last is None else last.values
        if last is not None and (before.get("session"), before.get("head")) == (name, head):
            return last.to_record()  # counted, but a power cut took the record
        description = layout.private(session, layout.SESSION_JSON).read_bytes()
        signed = key.signed(
            {
                "kind": "session",
                "session": name,
                "state": header["state"],
                "cause": cause,
                "head": head,
                "root": journal.state.tree.root.hex(),
                "description": digest(description).hex(),
                "counter": before.get("counter", 0) + 1,
                "previous": last and {"session": before.get("session"), "digest": last.digest},
                "deleted": counter.deleted,
                "signed_ns": time.time_ns(),
            }
        )
        key.count(Counter(signed, counter.deleted))
    return signed.to_record()


def note_deletion(session: Path) -> None:
    """Count a session as deleted by the recorder, before it is deleted: its signatures may miss.

    Without the vehicle's key the session counts as missing; a line on stderr says why.
    """
    try:
        if (path := layout.read_session_json(session).get("signing_key")) is None:
            return
        records = walk_journal(layout.private(session, layout.JOURNAL))
        signed = [
            Signed.from_record(content) for frame, content, _ in records if frame.kind == SIGN
        ]
        if signed:
            key, name = VehicleKey(Path(path)), layout.read_session_json(session)["name"]
            for each in signed:  # others may have written them, to hide what they delete themselves
                each.check()
                if (each.public_key, each.values.get("session")) != (key.public.hex(), name):
                    raise UsageError("a signature in it is of another session or key")
            with key.counting() as counter:
                key.count(counter.without(each.values["counter"] for each in signed))
    except (RecorderError, OSError, LookupError) as error:
        print(f"{session}: its deletion is not counted: {error}", file=sys.stderr, flush=True)


def last_signature(path: Path) -> Signed | None:
    """The signature at the end of a session's journal; None without one.

    Args:
        path: of the journal.

    Raises:
        SessionError: the journal cannot be read.
    """
    found = None
    for frame, content, _ in walk_journal(path):
        found = Signed.from_record(content) if frame.kind == SIGN else None
    return found
