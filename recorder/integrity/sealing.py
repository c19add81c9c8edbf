"""The part ``custody`` of an archive's record, signed with the vehicle's key where it is available.

The vehicle's signature states that the archive was packed on the vehicle, from a session that
matched its signature.  The session is therefore verified before it is packed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recorder.common.errors import RecorderError
from recorder.integrity.archives import verify_archive
from recorder.integrity.proof import Trust
from recorder.integrity.sessions import find_unreadable_files, verify_session
from recorder.integrity.signatures import last_signature
from recorder.integrity.vehicle_key import Signed, VehicleKey
from recorder.session import layout
from recorder.session.journal.journal import read_journal
from recorder.session.outputs import encode_record


def describe_source(session: Path) -> dict[str, Any]:
    """Return the values that identify a source session and prove its content.

    Returns:
        ``session``, its name; ``head``, the digest of its journal's last record, ``root``, of the
        tree of digests, and ``signed``, its last signature, None without one.

    Raises:
        SessionError: the journal cannot be read.
    """
    path = layout.private(session, layout.JOURNAL)
    state, signed = read_journal(path), last_signature(path)
    name = layout.read_session_json(session)["name"]
    digests = {"head": state.link.hex(), "root": state.tree.root.hex()}
    return {"session": name, **digests, "signed": signed and signed.to_record()}


def find_signer(session: Path) -> VehicleKey | None:
    """Return the key that signed a session, if it may sign the session's archives too.

    Return None where the key is not available: archives are not signed there.  Also return None for
    a session that does not match its signature; a line on stderr gives the reason.
    """
    try:
        if (path := layout.read_session_json(session).get("signing_key")) is None:
            return None
        key = VehicleKey(Path(path))
    except RecorderError:  # not on the vehicle
        return None
    faults = (
        find_unreadable_files(session) or verify_session(session, Trust([key.fingerprint])).faults
    )
    if faults:
        text = f"{session}: its archives will not be signed: {faults[0]}"
        print(text, file=sys.stderr, flush=True)
        return None
    return key


def find_common_signer(sessions: Iterable[Path]) -> VehicleKey | None:
    """Return the key that may sign an archive of several sessions; see `find_signer`.

    Return None unless one key may sign for every session.
    """
    keys = [find_signer(session) for session in sessions]
    if any(key is None or key.public != keys[0].public for key in keys if keys[0] is not None):
        return None
    return keys[0] if keys else None


def is_proven_by(record: Path, key: VehicleKey) -> bool:
    """Return whether a key proves an archive; print the reason on stderr if it does not."""
    proof = verify_archive(record, Trust([key.fingerprint]), lambda _: None)
    if proof.faults:
        text = f"{record}: will not be signed: what is added to is not proven: {proof.faults[0]}"
        print(text, file=sys.stderr, flush=True)
    return not proof.faults


def seal_archive(
    archive: str, name: str, files: Mapping[str, Any], sessions: Sequence[Path], older: Path,
    about: Mapping[str, Any], key: VehicleKey | None,
) -> dict[str, str]:  # fmt: skip
    """Return the part ``custody`` of an archive's record.

    Args:
        archive: its kind.
        name: its own.
        files: `digest_files` of its files.
        sessions: the folders of the packed sessions.
        older: the record of the archive that these sessions were added to, if there is one.
        about: the other values of the record.
        key: signs it; None: it is not signed.
    """
    sources = {
        source["session"]: source
        for source in (*_read_older_sources(older), *_describe_sources(sessions))
    }
    statement = {
        "kind": "archive",
        "archive": archive,
        "name": name,
        "files": dict(files),
        "sources": list(sources.values()),
        "about": json.loads(encode_record(about)),
    }
    if key is not None:
        return key.sign(statement).to_record()
    text = msgspec.json.encode(statement, order="sorted").decode()
    return Signed(text, "", "").to_record()


def _describe_sources(sessions: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for session in sessions:
        try:
            yield describe_source(session)
        except RecorderError:  # a trace of other software has no journal
            yield {"session": session.resolve().name, "head": None, "root": None, "signed": None}


def _read_older_sources(record: Path) -> list[dict[str, Any]]:
    try:
        values = json.loads(record.read_bytes())
        return list(Signed.from_record(values["custody"]).values["sources"])
    except (OSError, ValueError, LookupError, TypeError, RecorderError):
        return []
