"""Signature and verification of an archive.

The record of an archive (`recorder.session.outputs`) has a part ``custody``, signed by the
vehicle's key where the finalizer has access to it::

    {"statement": JSON, "signature": hex or "", "public_key": hex or ""}

The statement has ``kind`` (``archive``), ``archive`` and ``name``, ``files`` (``{path: {bytes,
sha256}}`` relative to the archive's folder), ``sources``, a `describe_source` per session, and
``about``, the other values of the record.  The vehicle's signature states that the archive was
packed on the vehicle, from a session that matched its signature: it is verified before packing.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.common.errors import RecorderError, UsageError
from recorder.config.settings import ARCHIVES
from recorder.integrity.proof import FindSource, Proof, Trust, check_source
from recorder.integrity.sessions import find_unreadable_files, verify_session
from recorder.integrity.signatures import last_signature
from recorder.integrity.vehicle_key import Signed, VehicleKey
from recorder.session import layout
from recorder.session.journal.journal import read_journal
from recorder.session.outputs import PACKED_PARTS, encode_record

_MOST_BYTES: Final = 256 << 20  # of a record, which names each file of an archive
_LEFTOVER: Final = re.compile(r"\.[^/]+\.part|[a-z0-9]+(\.[^/]+)?\.json\.tmp")
_DEPTH: Final = 4  # of PACKED_PARTS/PART/KIND/.NAME.part


def digest_files(files: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of all files of an archive, by path in the archive's folder; OSError.

    Args:
        files: its files and folders, in one folder.
    """
    return {
        path.relative_to(top.parent).as_posix(): _digest_file(path)
        for top in files
        for path in (top, *top.rglob("*"))
        if path.is_file()
    }


def _digest_file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": sha256}


def find_records(path: Path) -> list[Path]:
    """Return the records at a path: of an archive, of a folder of archives, or of a root."""
    path = path.resolve()
    if path.suffix == ".json" and _parse_kind(path) is not None:
        return [path]
    kinds = [folder for folder in (path, path.parent) if folder.name in ARCHIVES]
    for place in kinds:
        found = [
            record for record in _list_records(place.parent) if _parse_kind(record) == place.name
        ]
        named = [r for r in found if path.name in _read_record(r).get("files", ())]
        if named or path == place:
            return named or found
    return [
        *_list_records(path),
        *(r for part in sorted(path.glob(f"{PACKED_PARTS}/*/")) for r in _list_records(part)),
    ]


def find_unknown_files(root: Path) -> Iterator[str]:
    """Yield a line for each file in a session's folder of archives that belongs to no record.

    Files of an interrupted packing are not among them: see `find_leftovers`.
    """
    records = find_records(root)
    known = {*records, *(record.with_name(_parse_kind(record) or "") for record in records)}
    below = sorted(root.resolve().rglob("*"))
    found = (path for path in below if path.is_symlink() or not path.is_dir())
    for path in found:
        if path.is_symlink():
            yield f"{path}: is a symbolic link; the recorder makes none"
        elif _is_leftover(path.relative_to(root.resolve())):
            continue
        elif known.isdisjoint((path, *path.parents)):
            record = path.parent.with_suffix(".json")
            if path.parent.name in ARCHIVES:
                yield f"{record}: is missing; it would be the record of {path}"
            else:
                yield f"{path}: was added: no archive's record has it"


def find_leftovers(root: Path) -> Iterator[str]:
    """Yield a line for each folder or file that an interrupted packing left behind."""
    top = root.resolve()
    for path in sorted([*top.rglob(".*.part"), *top.rglob("*.json.tmp")]):
        if _is_leftover(path.relative_to(top)) and not _is_leftover(path.parent.relative_to(top)):
            yield f"{path}: left by packing that was cut off; the next packing replaces it"


def _is_leftover(path: Path) -> bool:
    """Return whether a path in a folder of archives is, or is in, a temporary file of packing."""
    return any(_LEFTOVER.fullmatch(part) for part in path.parts[:_DEPTH])


def _list_records(root: Path) -> list[Path]:
    return [path for path in sorted(root.glob("*.json")) if _parse_kind(path) is not None]


def _parse_kind(record: Path) -> str | None:
    """Return the kind of an archive by its record's name, ``KIND.json`` or ``KIND.NAME.json``."""
    kind = record.name.partition(".")[0]
    is_one = (record.parent / kind).is_dir() or "files" in _read_record(record)
    return kind if kind in ARCHIVES and is_one else None


def _read_record(record: Path) -> dict[str, Any]:
    try:
        if not record.is_file() or record.stat().st_size > _MOST_BYTES:
            return {}
        values = json.loads(record.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def verify_archive(
    record: Path,
    trust: Trust,
    find: FindSource,
    advance: Callable[[int], None] = lambda _: None,
    owner: str | None = None,
) -> Proof:
    """Verify an archive.

    Args:
        record: its record.
        trust: the keys.
        find: returns the proofs of its source sessions.
        advance: called with the megabytes read.
        owner: name of the session whose folder has the archive; None: it is elsewhere.
    """
    kind = _parse_kind(record) or ""
    proof = Proof(record.parent / kind, "archive")
    values = _read_record(record)
    try:
        if not values:
            raise UsageError("it cannot be read")
        if "custody" not in values:
            raise UsageError("an earlier version packed it; pack it again")
        sealed = Signed.from_record(values["custody"])
        statement = sealed.values
        files, sources = dict(statement["files"]), list(statement["sources"])
        named = record.stem.partition(".")[2]
        is_it = (statement.get("kind"), statement.get("archive")) == ("archive", kind)
        if not is_it or (named and statement["name"] != named):
            raise UsageError("is of another archive")
        made_from = [str(source["session"]) for source in sources]
        if owner is not None and made_from != [owner]:
            raise UsageError(f"is of {', '.join(made_from)}, in the session {owner}")
        if outside := [name for name in files if not _is_inside(name)]:
            raise UsageError(f"names a file that is elsewhere: {outside[0]}")
        names = {name.partition("/")[0] for name in files}
        about = {key: value for key, value in values.items() if key != "custody"}
        # The signature covers these values, and a record has one form: other bytes are a change.
        if about != statement["about"] or encode_record(values) != record.read_bytes():
            raise UsageError("it is not as it was written")
        _check_files(proof, record, kind, files, names, advance)
        _check_signature(proof, record, sealed, trust)
        for source in sources:
            check_source(proof, source, trust, find)
    except (RecorderError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        text = str(error) if isinstance(error, RecorderError) else repr(error)
        proof.faults.append(f"{record}: does not identify the archive's sources: {text}")
    return proof


def _check_files(
    proof: Proof, record: Path, kind: str, files: dict[str, Any], names: set[str],
    advance: Callable[[int], None],
) -> None:  # fmt: skip
    place = record.parent / kind
    for name, expected in sorted(files.items()):
        path = place / name
        if path.is_symlink() or not path.is_file():
            proof.faults.append(f"{path}: is missing")
        elif (found := _digest_file(path)) != expected:
            text = "is not as it was packed"
            if found["bytes"] != expected["bytes"]:
                text += f": {found['bytes']} bytes, not {expected['bytes']}"
            proof.faults.append(f"{path}: {text}")
        else:
            advance(expected["bytes"] >> 20)
    beside = {n for r in _list_records(record.parent) if r != record and _parse_kind(r) == kind
              for n in _read_record(r).get("files", ())}  # fmt: skip
    for path in sorted(p for p in place.rglob("*") if p.is_symlink() or not p.is_dir()):
        name = path.relative_to(place).as_posix()
        if _LEFTOVER.fullmatch(name.partition("/")[0]) and not path.is_symlink():
            continue
        if name not in files and (name in names or name.partition("/")[0] not in beside):
            proof.faults.append(f"{path}: was added: the archive's record does not have it")
    if not proof.faults:
        proof.proven.append(f"every byte of {len(files)} files, by {record.name}")


def _is_inside(name: str) -> bool:
    """Return whether the name of a file leads into the archive's folder."""
    return not name.startswith("/") and ".." not in name.split("/")


def _check_signature(proof: Proof, record: Path, sealed: Signed, trust: Trust) -> None:
    if not sealed.signature:
        text = f"{record.name} is not signed: it was packed where the vehicle's key is not, or the "
        text += "signature was removed; anyone with write access can change the archive"
        (proof.faults if trust.fingerprints else proof.unproven).append(text)
    elif (why := trust.find_fault(sealed)) is not None:
        proof.faults.append(f"{record}: the signature: {why}")
    else:
        proof.signed = True
        proof.proven.append(f"packed on the vehicle: signed by {trust.describe(sealed)}")


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


def read_digests(record: Path, place: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return `digest_files` of files that an older record has; of other files, as they lie there.

    Args:
        record: the older record.
        place: the archive's folder.
        names: the names of files and folders in it.
    """
    try:
        values = json.loads(record.read_bytes())
        known = dict(Signed.from_record(values["custody"]).values["files"])
    except (OSError, ValueError, LookupError, TypeError, RecorderError):
        known = {}
    tops = set(names)
    found = {file: about for file, about in known.items() if file.partition("/")[0] in tops}
    missing = tops - {file.partition("/")[0] for file in found}
    return found | digest_files(place / name for name in sorted(missing))


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
