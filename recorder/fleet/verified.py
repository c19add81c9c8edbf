"""Verification of a store: every object, the journal of each session, and its archives.

Each session is downloaded into a temporary folder, verified, and removed: the store's actual bytes
are verified, and the disk holds one session at a time.  For an encrypted session without an
identity, the proof covers only the stored age files.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from recorder.common.errors import RecorderError, StorageError
from recorder.config.settings import ARCHIVES
from recorder.fleet.encryption import Identity
from recorder.fleet.fetching import fetch_file
from recorder.fleet.store.base import Store, same_content
from recorder.fleet.store.manifest import (
    ENCRYPTED,
    LEFT_SEGMENT,
    MANIFESTS,
    Manifest,
    archive_manifest,
    is_manifest,
    session_manifest,
)
from recorder.fleet.uploading import check_objects
from recorder.integrity.proof import Proof, Trust, check_source
from recorder.integrity.verify import check_rows, verify


def verify_store(
    store: Store,
    trust: Trust,
    scratch: Path | None = None,
    identity: Identity | None = None,
) -> Proof:
    """Verify everything that has a manifest in a store, and report objects without one.

    Args:
        store: the store.
        trust: trusted keys.
        scratch: folder for one session at a time; None: the system's temporary folder.
        identity: decrypts; None: for encrypted sessions only the age files are checked against the
            manifest.

    Raises:
        StorageError: the store cannot be listed or reached.
    """
    proof, known = Proof(store.url, "store"), set[str]()
    objects = {found.key for found in store.list()}
    manifests: dict[str, Manifest] = {}
    keys = sorted(filter(is_manifest, objects))
    if not keys:
        raise StorageError(f"{store.url}: has no manifest; nothing was uploaded there")
    for key in keys:
        known.add(key)
        try:
            data = store.read(key)
            found = Manifest.decode(data, f"{store.url}/{key}")
            if (why := _find_mismatch(found, key, data)) is not None:
                proof.faults.append(f"{store.url}/{key}: {why}")
                if found.key != key:
                    continue
            manifests[key] = found
        except RecorderError as error:
            proof.faults.append(str(error))
    sessions: dict[str, Proof] = {}
    for key, manifest in sorted(manifests.items(), key=lambda item: item[1].kind != "session"):
        known |= {each.path for each in manifest.objects()}
        if manifest.kind == "session":
            part = sessions[manifest.name] = _verify_session(
                store, manifest, trust, scratch, identity
            )
        else:
            part = _verify_archive(store, manifest, key, trust, sessions)
        proof.parts.append(part)
    _check_others(proof, objects, known, manifests.values())
    check_rows(proof, list(sessions.values()), whole=False)
    return proof


def _find_mismatch(manifest: Manifest, key: str, data: bytes) -> str | None:
    """Return the reason why a manifest differs from what was written under its key, or None."""
    if manifest.key != key:
        text = f"is the manifest of the {manifest.kind} {manifest.name}"
        return f"{text}, whose files are below {manifest.folder}"
    if manifest.encode() != data:
        return "is not as it was written"
    if manifest.digest and manifest.with_digest() != manifest:
        return "is not as it was written: its digest is another one"
    return None


def _check_others(
    proof: Proof, objects: set[str], known: set[str], manifests: Iterable[Manifest]
) -> None:
    """Judge the objects that no manifest names."""
    manifests = list(manifests)
    versions = {each.folder: each.version for each in manifests if each.kind == "session"}
    folders = {each.folder for each in manifests}
    alone: dict[str, list[str]] = {}
    for key in sorted(objects - known):
        top, *rest = key.split("/")
        where = f"{proof.path}/{key}"
        if versions.get(top) == ENCRYPTED and LEFT_SEGMENT.search(key):
            text = "belongs to no manifest; an upload that was cut off can have left it"
            proof.unproven.append(f"{where}: {text}")
        elif len(rest) > 1 and rest[0] in ARCHIVES and f"{top}/{rest[0]}" not in folders:
            alone.setdefault(archive_manifest(top, rest[0]), []).append(where)
        elif top in versions or not rest or key.startswith(MANIFESTS):
            proof.faults.append(f"{where}: was added: it belongs to no manifest")
        else:
            alone.setdefault(session_manifest(top), []).append(where)
    for manifest, places in alone.items():
        if manifest not in objects:  # else it has a fault of its own
            text = f"is missing, but {len(places)} of its objects are here, first {places[0]}"
            text += ": the upload is not complete, or the manifest was removed"
            proof.faults.append(f"{proof.path}/{manifest}: {text}")


def _verify_session(
    store: Store,
    manifest: Manifest,
    trust: Trust,
    scratch: Path | None,
    identity: Identity | None,
) -> Proof:
    url = f"{store.url}/{manifest.folder}"
    proof = Proof(url, "session")
    if manifest.version == ENCRYPTED and identity is None:
        return _verify_sealed(store, manifest, proof)
    with tempfile.TemporaryDirectory(prefix="recorder-verify-", dir=scratch) as folder:
        session = Path(folder).resolve() / manifest.name
        if shutil.disk_usage(folder).free < manifest.size:
            text = f"{folder}: {manifest.size / 1e9:.1f} GB do not fit there; set TMPDIR"
            raise StorageError(f"{url}: {text}")
        for entry in manifest.files:
            try:
                fetch_file(store, manifest, entry, session / entry.path, identity)
            except StorageError as error:
                proof.faults.append(str(error))
        if proof.faults:
            return proof
        return _rewrite_paths(verify(session, trust), str(session), url)


def _verify_sealed(store: Store, manifest: Manifest, proof: Proof) -> Proof:
    """Check an encrypted session without its key."""
    key, count = session_manifest(manifest.name), 0
    for each in manifest.objects():
        count += 1
        try:
            if not same_content(store, each.path, each.size, each.sha256):
                text = f"{store.url}/{each.path}: is missing, or is not what was sent"
                proof.faults.append(text)
        except StorageError as error:
            proof.faults.append(str(error))
    if not proof.faults:
        proof.proven.append(f"every byte of {count} encrypted objects, by {key}")
    proof.unproven.append(f"{key} is not signed, and the content is encrypted; give --identity")
    return proof


def _rewrite_paths(proof: Proof, here: str, url: str) -> Proof:
    """Rewrite the paths in a proof of a copy so that it names the original."""

    def rewrite(lines: Iterable[str]) -> list[str]:
        return [line.replace(here, url) for line in lines]

    return dataclasses.replace(
        proof,
        path=str(proof.path).replace(here, url),
        proven=rewrite(proof.proven),
        unproven=rewrite(proof.unproven),
        faults=rewrite(proof.faults),
        parts=[_rewrite_paths(part, here, url) for part in proof.parts],
    )


def _verify_archive(
    store: Store, manifest: Manifest, key: str, trust: Trust, sessions: dict[str, Proof]
) -> Proof:
    """Verify an archive from a cluster, by its manifest and the session's journal."""
    proof = Proof(f"{store.url}/{manifest.folder}", "archive")
    try:
        check_objects(store, manifest)
        proof.proven.append(f"every byte of {len(manifest.files)} files, by {key}")
        proof.unproven.append(f"{key} is not signed: a cluster packed it")
        source = manifest.about.get("source")
        if source is None:
            proof.unproven.append(f"{key} does not name its source")
        else:
            check_source(proof, source, trust, sessions.get)
    except (RecorderError, LookupError, TypeError) as error:
        proof.faults.append(str(error) if isinstance(error, RecorderError) else f"{key}: {error!r}")
    return proof
