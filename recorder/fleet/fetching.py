"""Download of a session from a store, with digest checks and decryption.

::

    done = download_session(open_store("s3://fleet/vehicle-7"), "drive-1", Path("sessions"))
    done.session
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recorder.common.errors import StorageError, UsageError
from recorder.common.files import make_empty
from recorder.common.syscalls import rename_new, sync_file_system
from recorder.config.names import check_name
from recorder.fleet.encryption import Identity, Tee
from recorder.fleet.store.base import Source, Store, disk_errors, download, make_private_folders
from recorder.fleet.store.manifest import ENCRYPTED, Entry, Manifest, session_manifest


@dataclass(frozen=True)
class Downloaded:
    """A downloaded session.

    Attributes:
        session: the session's folder.
        files, bytes: number and size of its files.
        fetched: bytes of the files that were downloaded now, not by an earlier call.
    """

    session: Path
    files: int
    bytes: int
    fetched: int


def fetch_file(
    store: Store, manifest: Manifest, entry: Entry, target: Path, identity: Identity | None
) -> None:
    """Download a file of a manifest into a new file, without sync.

    Raises:
        StorageError: an object is missing, differs from the uploaded bytes, or cannot be decrypted.
        UsageError: the file is encrypted, and there is no identity.
    """
    where = f"{store.url}/{manifest.folder}/{entry.path}"
    if not entry.segments:
        sha256 = download(store, f"{manifest.folder}/{entry.path}", target, entry.size)
    elif identity is None:
        raise UsageError(f"{where}: is encrypted; --identity FILE decrypts it")
    else:
        sha256 = _fetch_decrypted(store, manifest.folder, entry, target, identity)
    if sha256 != entry.sha256:
        raise StorageError(f"{where}: is not what was uploaded")


def _fetch_decrypted(
    store: Store, folder: str, entry: Entry, target: Path, identity: Identity
) -> str:
    cipher = target.with_name(f".{hashlib.sha256(target.name.encode()).hexdigest()[:24]}.part")
    with disk_errors(target):
        make_private_folders(target.parent)
        try:
            make_empty(target)
            with target.open("wb") as file:
                plain = Tee(file)
                for segment in entry.segments:
                    key = f"{folder}/{segment.path}"
                    cipher.unlink(missing_ok=True)
                    if download(store, key, cipher, segment.size) != segment.sha256:
                        raise StorageError(f"{store.url}/{key}: is not what was uploaded")
                    identity.decrypt(cipher, plain, f"{store.url}/{key}")
        finally:
            cipher.unlink(missing_ok=True)
    return plain.sha256


def download_session(
    store: Store,
    name: str,
    folder: Path,
    *,
    identity: Identity | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Downloaded:
    """Download a whole session from a store into a folder.

    The files are written into a hidden folder, which gets the session's name when it is complete.
    An interrupted call leaves the hidden folder; the next call keeps its correct files.

    Args:
        store: the source.
        name: name of the session.
        folder: parent of the new session.
        identity: decrypts; required if the session is encrypted.
        progress: called with the bytes of a downloaded file, and with the bytes of all files.

    Raises:
        UsageError: the store has no such session, the folder has it already, or the session is
            encrypted and there is no identity.
        StorageError: an object is missing or differs from the uploaded bytes, or the disk failed.
    """
    key, session = session_manifest(check_name(name)), folder / name
    if session.exists():
        raise UsageError(f"{session}: is there already; nothing was changed")
    if store.stat(key) is None:
        raise UsageError(f"{store.url}: has no session {name} (no {key})")
    manifest = Manifest.read(store, key)
    if manifest.version == ENCRYPTED and identity is None:
        raise UsageError(f"{store.url}/{name}: is encrypted; --identity FILE decrypts it")
    part, fetched = folder / f".{name}.part", 0
    with disk_errors(part):
        make_private_folders(part)
        for entry in manifest.files:
            target = part / entry.path
            if not _check_local(target, entry):
                fetch_file(store, manifest, entry, target, identity)
                fetched += entry.size
            progress(entry.size, manifest.size)
        wanted = {part / entry.path for entry in manifest.files}
        for path in part.rglob("*"):  # what an interrupted call left beside the files
            if path not in wanted and not path.is_dir():
                path.unlink()
        sync_file_system(part)
        if not rename_new(part, session):
            raise UsageError(f"{session}: is there already; nothing was changed")
        sync_file_system(folder)
    return Downloaded(session, len(manifest.files), manifest.size, fetched)


def _check_local(target: Path, entry: Entry) -> bool:
    """Check that a file came in an earlier call; remove it if it is wrong."""
    if target.is_symlink() or not target.exists():
        target.unlink(missing_ok=True)
        return False
    if target.is_dir():
        shutil.rmtree(target)
        return False
    with Source(target) as here:
        if here.size == entry.size and here.read_all() == entry.sha256:
            return True
    target.unlink()
    return False
