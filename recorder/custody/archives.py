"""The proof of an archive: what it consists of, and the sessions that it was made from.

The record of an archive (`recorder.session.packing_records`) has a part ``custody``, signed by the
vehicle's key where the finalizer can use that::

    {"statement": JSON, "signature": hex or "", "public_key": hex or ""}

The statement has ``kind`` (``archive``), ``archive`` and ``name``, ``files`` (``{path: {bytes,
sha256}}`` relative to the archive's folder), ``sources``, a `source_of` per session, and
``about``, the other values of the record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from recorder.contract.config.settings import ARCHIVES
from recorder.contract.errors import RecorderError, UsageError
from recorder.custody.proof import Proof, Trust
from recorder.custody.sources import FindSource, check_source
from recorder.session import layout
from recorder.session.journal import read_journal
from recorder.session.packing_records import PARTS, encode_record
from recorder.session.signatures import last_signature
from recorder.session.vehicle_key import Signed, VehicleKey

_MOST_BYTES: Final = 256 << 20  # of a record, which names each file of an archive


def source_of(session: Path) -> dict[str, Any]:
    """What proves which session something was made from.

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


def seal_archive(
    archive: str, name: str, files: Sequence[Path], sessions: Sequence[Path], older: Path,
    about: Mapping[str, Any],
) -> dict[str, str]:  # fmt: skip
    """The part ``custody`` of an archive's record.

    Args:
        archive: its kind.
        name: its own.
        files: its files and folders, in one folder.
        sessions: the folders of what was packed.
        older: the record of the archive that these sessions were added to, if there is one.
        about: the other values of the record.

    Raises:
        OSError: a file cannot be read.
    """
    sources = {
        source["session"]: source for source in (*_older_sources(older), *_sources(sessions))
    }
    statement = {
        "kind": "archive",
        "archive": archive,
        "name": name,
        "files": dict(_digests(files)),
        "sources": list(sources.values()),
        "about": json.loads(encode_record(about)),
    }
    for session in sessions:
        try:
            key = layout.read_session_json(session).get("signing_key")
            if key is not None:
                return VehicleKey(Path(key)).signed(statement).to_record()
        except RecorderError:  # not on the vehicle: the archive is not signed
            continue
    text = msgspec.json.encode(statement, order="sorted").decode()
    return Signed(text, "", "").to_record()


def _sources(sessions: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for session in sessions:
        try:
            yield source_of(session)
        except RecorderError:  # a trace of other software has no journal
            yield {"session": session.resolve().name, "head": None, "root": None, "signed": None}


def _older_sources(record: Path) -> list[dict[str, Any]]:
    try:
        values = json.loads(record.read_bytes())
        return list(Signed.from_record(values["custody"]).values["sources"])
    except (OSError, ValueError, LookupError, TypeError, RecorderError):
        return []


def _digests(files: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for top in files:
        for path in (p for p in (top, *top.rglob("*")) if p.is_file()):
            yield path.relative_to(top.parent).as_posix(), _digest(path)


def _digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": sha256}


def records_of(path: Path) -> list[Path]:
    """The records of the archives at a path: of one, of those in its folder, or in a root."""
    path = path.resolve()
    if path.suffix == ".json" and _kind(path) is not None:
        return [path]
    kinds = [folder for folder in (path, path.parent) if folder.name in ARCHIVES]
    for place in kinds:
        found = [record for record in _in(place.parent) if _kind(record) == place.name]
        named = [r for r in found if path.name in _read(r).get("files", ())]
        if named or path == place:
            return named or found
    return [*_in(path), *(r for part in sorted(path.glob(f"{PARTS}/*/")) for r in _in(part))]


def unknown_files(root: Path) -> Iterator[str]:
    """A line for each file of a session's folder of archives that belongs to no record."""
    records = records_of(root)
    known = {*records, *(record.with_name(_kind(record) or "") for record in records)}
    below = sorted(root.resolve().rglob("*"))
    found = (path for path in below if path.is_symlink() or not path.is_dir())
    for path in found:
        if path.is_symlink():
            yield f"{path}: is a symbolic link; the recorder makes none"
        elif known.isdisjoint((path, *path.parents)):
            record = path.parent.with_suffix(".json")
            if path.parent.name in ARCHIVES:
                yield f"{record}: is missing; it would be the record of {path}"
            else:
                yield f"{path}: was added: no archive's record has it"


def _in(root: Path) -> list[Path]:
    return [path for path in sorted(root.glob("*.json")) if _kind(path) is not None]


def _kind(record: Path) -> str | None:
    """The kind of archive by its record's name, ``KIND.json`` or ``KIND.NAME.json``."""
    kind = record.name.partition(".")[0]
    is_one = (record.parent / kind).is_dir() or "files" in _read(record)
    return kind if kind in ARCHIVES and is_one else None


def _read(record: Path) -> dict[str, Any]:
    try:
        if not record.is_file() or record.stat().st_size > _MOST_BYTES:
            return {}
        values = json.loads(record.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def verify_archive(
    record: Path, trust: Trust, find: FindSource, advance: Callable[[int], None] = lambda _: None
) -> Proof:
    """Verify an archive.

    Args:
        record: its record.
        trust: the keys.
        find: gives the sessions that it was made from.
        advance: called with the megabytes read.
    """
    kind = _kind(record) or ""
    proof = Proof(record.parent / kind, "archive")
    values = _read(record)
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
        names = {name.partition("/")[0] for name in files}
        about = {key: value for key, value in values.items() if key != "custody"}
        if about != statement["about"] or encode_record(values) != record.read_bytes():
            raise UsageError("it is not as it was written")
        _check_files(proof, record, kind, files, names, advance)
        _check_signature(proof, record, sealed, trust)
        for source in sources:
            check_source(proof, source, trust, find)
    except (RecorderError, OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        text = str(error) if isinstance(error, RecorderError) else repr(error)
        proof.faults.append(f"{record}: does not tell what the archive was made from: {text}")
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
        elif (found := _digest(path)) != expected:
            text = "is not as it was packed"
            if found["bytes"] != expected["bytes"]:
                text += f": {found['bytes']} bytes, not {expected['bytes']}"
            proof.faults.append(f"{path}: {text}")
        else:
            advance(expected["bytes"] >> 20)
    beside = {n for r in _in(record.parent) if r != record and _kind(r) == kind
              for n in _read(r).get("files", ())}  # fmt: skip
    for path in sorted(p for p in place.rglob("*") if p.is_file() or p.is_symlink()):
        name = path.relative_to(place).as_posix()
        if name not in files and (name in names or name.partition("/")[0] not in beside):
            proof.faults.append(f"{path}: was added: the archive's record does not have it")
    if not proof.faults:
        proof.proven.append(f"every byte of {len(files)} files, by {record.name}")


def _check_signature(proof: Proof, record: Path, sealed: Signed, trust: Trust) -> None:
    if not sealed.signature:
        text = f"{record.name} is not signed: it was packed where the vehicle's key is not, or the "
        text += "signature was removed; whoever can write to both can change the archive"
        proof.unproven.append(text)
    elif (why := trust.why_not(sealed)) is not None:
        proof.faults.append(f"{record}: the signature: {why}")
    else:
        proof.proven.append(f"packed on the vehicle: signed by {trust.describe(sealed)}")
