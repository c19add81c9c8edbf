"""Upload of a session into a store: files in the order of their value, the manifest last.

::

    done = upload_session(Path("sessions/drive-1"), open_store("s3://fleet/vehicle-7"))
    done.files, done.sent

The order is metadata, report, data, archives.  A killed upload resumes at its current part.  An
upload without a manifest is incomplete; with a manifest it is complete, and stays as it is.  With
recipients, the files are encrypted (`recorder.fleet.sealed_upload`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from recorder.common.errors import SessionError, StorageError
from recorder.config.names import check_name
from recorder.fleet.catalog.rows import read_row
from recorder.fleet.encryption import Recipients
from recorder.fleet.sealed_upload import SealedUpload, forget
from recorder.fleet.store.base import (
    ObjectExistsError,
    Pace,
    Source,
    Store,
    check_key,
    disk_errors,
    same_content,
)
from recorder.fleet.store.manifest import ENCRYPTED, VERSION, Entry, Manifest, session_manifest
from recorder.session import layout
from recorder.session.lock import hold_session
from recorder.session.outputs import (
    UPLOAD_PARTS,
    UPLOADED,
    UploadedTo,
    compute_stamp,
    is_irreplaceable,
    read_uploaded,
    write_uploaded,
)
from recorder.session.reader import Session
from recorder.session.validation import validate
from recorder.session.validation_report import ERROR

Progress = Callable[[int], None]
"""Callback that receives the size of each file that is in the store now, in bytes."""

_LOCAL: Final = (layout.LOCK, UPLOADED, UPLOAD_PARTS)  # of `_recorder`: of use here only
_UNFINISHED: Final = re.compile(r"\..*\.part|.*\.tmp")  # of the finalizer, and of a disk's files
_METADATA: Final = (".yaml", ".json", ".jsonl", ".csv")


@dataclass(frozen=True)
class Uploaded:
    """An uploaded session.

    Attributes:
        session: the session's folder.
        url: URL of the store.
        manifest: key of its manifest.
        files, bytes: number and size of the files, before encryption.
        sent: bytes that were sent now; 0 if the upload was complete before.
        read_back: all objects were read back and are correct.
        changed: paths that the session has gained, lost or changed since; they are not in the
            upload.
        seconds: duration of the upload.
    """

    session: Path
    url: str
    manifest: str
    files: int
    bytes: int
    sent: int
    read_back: bool
    changed: tuple[str, ...]
    seconds: float


class Limit:
    """A `Pace` that limits the mean rate.

    Args:
        mbit: 1e6 bits per second.
        now_s, sleep: the clock, injectable.
    """

    def __init__(
        self,
        mbit: float,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = mbit * 1e6 / 8
        self._now_s, self._sleep = now_s, sleep
        self._free_s = now_s()

    def __call__(self, size: int) -> None:
        """Wait until the earlier bytes have had their time."""
        now_s = self._now_s()
        if self._free_s > now_s:
            self._sleep(self._free_s - now_s)
        self._free_s = max(self._free_s, now_s) + size / self._bytes_per_s


def list_files(session: Path) -> list[str]:
    """Return the paths of a session's files, in the order of their upload.

    The list has no unfinished files, such as an archive that is being packed, and no local files,
    such as the lock; links are not followed.
    """
    found = list(_walk(session, ""))
    return sorted(found, key=lambda path: (_rank(path), path))


def _walk(folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if _UNFINISHED.fullmatch(entry.name):
                continue
            if prefix == f"{layout.PRIVATE}/" and entry.name in _LOCAL:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, f"{path}/")
            elif entry.is_file(follow_symlinks=False):
                yield path


def _rank(path: str) -> int:
    top = path.partition("/")[0]
    if top == layout.ARCHIVES:
        return 3
    if top == layout.PRIVATE or path.endswith(_METADATA):
        return 0
    return 1 if path == layout.REPORT else 2


def sort_by_urgency(sessions: Iterable[Path]) -> list[Path]:
    """Sort sessions: clips and sessions kept for an event first, then by name."""

    def rank(session: Path) -> tuple[bool, str]:
        try:
            is_clip = "origin" in layout.read_session_json(session)
        except SessionError:
            is_clip = False
        return not (is_clip or layout.private(session, layout.KEEP).exists()), str(session)

    return sorted(sessions, key=rank)


def upload_session(
    session: Path,
    store: Store,
    *,
    pace: Pace | None = None,
    progress: Progress = lambda _: None,
    read_back: bool = False,
    recipients: Recipients | None = None,
) -> Uploaded:
    """Upload a whole session into a store.

    Args:
        session: the session's folder.
        store: the target.
        pace: called before bytes are sent; may wait, or raise to stop.
        progress: see `Progress`.
        read_back: read all objects back at the end and check their digests.
        recipients: public keys for which the files are encrypted; None: no encryption.

    Raises:
        SessionError: the folder is not a session, or the session is being recorded, not closed, or
            damaged.
        ObjectExistsError: the store has another session of that name.
        StorageError: a file changed meanwhile, or the disk or the store failed; a later call
            resumes the upload.
    """
    started = time.monotonic()
    with hold_session(session) as held, _lock_session(session):
        if not held:
            raise SessionError(f"{session}: is being recorded or recovered; not uploaded")
        name = _check(session)
        key = session_manifest(name)
        sent = 0

        def count(size: int) -> None:
            nonlocal sent
            if pace is not None:
                pace(size)
            sent += size

        with disk_errors(session):
            stamp = compute_stamp(session)
        manifest = None if store.stat(key) is None else Manifest.read(store, key)
        is_new = manifest is None
        if manifest is None:
            _check_soundness(session)
            manifest, changed = _upload(session, name, store, count, progress, recipients)
        else:
            if recipients is not None and manifest.version != ENCRYPTED:
                raise ObjectExistsError(
                    f"{store.url}/{name}: was uploaded before, and is not encrypted; upload into "
                    f"another prefix, or remove {store.url}/{key} and {store.url}/{name} there"
                )
            changed = _find_changes(session, manifest, store)
        if read_back:
            check_objects(store, manifest)
        data = manifest.encode()
        known = read_uploaded(session)
        digest = hashlib.sha256(data).hexdigest()
        same = known is not None and (known.url, known.manifest_sha256) == (store.url, digest)
        if known is not None and same and not is_new:
            read_back = read_back or known.read_back
        if any(is_irreplaceable(path) for path in changed):
            stamp = ""
        write_uploaded(session, UploadedTo(store.url, digest, read_back, stamp))
        forget(session, store)
        for record in layout.private(session, UPLOAD_PARTS).glob("*"):
            store.abandon(record)  # of a file that is no longer there
        with suppress(OSError):
            # Unless an upload into another store is under way.
            layout.private(session, UPLOAD_PARTS).rmdir()
    seconds = time.monotonic() - started
    return Uploaded(
        *(session, store.url, key, len(manifest.files), manifest.size, sent),
        *(read_back, changed, seconds),
    )


@contextmanager
def _lock_session(session: Path) -> Iterator[None]:
    """Lock a session against other uploads, which would share the upload records of its parts."""
    with disk_errors(session):
        folder = os.open(session, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{session}: is being uploaded by another process") from None
        except OSError:
            pass  # a network's file system that cannot lock folders
        yield
    finally:
        os.close(folder)


def _check(session: Path) -> str:
    """Check that a session can be uploaded; return its name."""
    with Session(session) as opened:
        state, name = opened.state, opened.name
    if state not in (layout.CLEAN, layout.RECOVERED):
        raise SessionError(
            f"{session}: was not closed; run `recorder recover {session}` before it is uploaded"
        )
    return check_name(name)


def _check_soundness(session: Path) -> None:
    """Refuse a damaged session: its manifest would declare it complete.

    All counts, stamps and lengths are checked; some payloads are checked.
    """
    with Session(session) as opened:
        parts = (layout.PRIVATE, *opened.streams)
    for part in parts:
        for link in (session / part, *(session / part).rglob("*")):
            if link.is_symlink():
                raise SessionError(
                    f"{link}: is a link; not uploaded, because links are left out, and the session "
                    "would not be complete in the store; put what it leads to in its place"
                )
    for problem in validate(session, digests=False).problems:
        if problem.severity == ERROR:
            raise SessionError(
                f"{session}: is damaged; not uploaded; `recorder validate {session}` lists all "
                f"problems, the first is: {problem.message}"
            )


def _upload(
    session: Path,
    name: str,
    store: Store,
    pace: Pace,
    progress: Progress,
    recipients: Recipients | None,
) -> tuple[Manifest, tuple[str, ...]]:
    """Upload the files; return the manifest, and the paths that changed after they were sent."""
    entries, before = [], {}
    paths = list_files(session)
    for path in paths:
        check_key(f"{name}/{path}")
    with (
        nullcontext() if recipients is None else SealedUpload(session, store, recipients, pace)
    ) as sealed:
        for path in paths:
            source = session / path
            before[path] = _read_stamp(source)
            if sealed is not None:
                entry = sealed.upload(name, path, source)
            else:
                entry = _upload_plain(session, name, path, store, pace)
            entries.append(entry)
            progress(entry.size)
    entries.sort(key=lambda entry: entry.path)
    size = sum(entry.size for entry in entries)
    # Without the values that hold on this machine only.
    row = msgspec.structs.replace(read_row(session), location="", stamp="", bytes=size)
    manifest = Manifest(
        kind="session",
        name=name,
        folder=name,
        files=tuple(entries),
        about=msgspec.to_builtins(row if recipients is None else row.public()),
        recipients=() if recipients is None else recipients.names,
        sealed=b"" if recipients is None else recipients.encrypt_bytes(msgspec.json.encode(row)),
        version=VERSION if recipients is None else ENCRYPTED,
    ).with_digest()
    manifest.put(store)
    after = {path: _read_stamp(session / path) for path in list_files(session)}
    return manifest, tuple(sorted(dict(before.items() ^ after.items())))


def _upload_plain(session: Path, name: str, path: str, store: Store, pace: Pace) -> Entry:
    """Upload a file without encryption."""
    source = session / path
    digest = hashlib.sha256(f"{store.url} {path}".encode()).hexdigest()[:24]
    record = layout.private(session, UPLOAD_PARTS) / digest
    with disk_errors(source):
        size = source.stat().st_size
    try:
        sha256 = store.upload_new(f"{name}/{path}", source, record=record, pace=pace)
    except ObjectExistsError as error:
        raise ObjectExistsError(
            f"{error}; it has no manifest: {path} has changed since an upload that was cut "
            "off, or the object is of another session; upload into another prefix, or remove "
            f"{store.url}/{name} there"
        ) from None
    return Entry(path, size, sha256)


def _read_stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return None


def _find_changes(session: Path, manifest: Manifest, store: Store) -> tuple[str, ...]:
    """Return the paths by which a session differs from its upload, among those that may change.

    Raises:
        ObjectExistsError: the data differ: the upload is of another session.
    """
    here, changed = set(list_files(session)), []
    for entry in manifest.files:
        if entry.path in here and _matches(session / entry.path, entry):
            continue
        if _rank(entry.path) == 2 or entry.path == f"{layout.PRIVATE}/session.json":
            raise ObjectExistsError(
                f"{store.url}/{manifest.folder}: is the upload of another session of this name, or "
                f"this one was changed since: {entry.path} differs"
            )
        changed.append(entry.path)
    return (*changed, *sorted(here - {entry.path for entry in manifest.files}))


def _matches(path: Path, entry: Entry) -> bool:
    with Source(path) as given:
        return given.size == entry.size and given.read_all() == entry.sha256


def check_objects(store: Store, manifest: Manifest) -> None:
    """Read all objects of a manifest back; encrypted objects are not decrypted.

    Raises:
        StorageError: an object is missing or differs from the uploaded bytes; the message names the
            first.
    """
    for each in manifest.objects():
        if not same_content(store, each.path, each.size, each.sha256):
            raise StorageError(f"{store.url}/{each.path}: is missing, or is not what was sent")
