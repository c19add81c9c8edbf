"""Plan of packing on a cluster: one job for each session and archive, with its identity.

::

    plan = plan_jobs(["s3://fleet/vehicle-7"], [ArchiveRequest("ncore")], "s3://fleet/packed")
    plan.jobs, plan.finished, plan.refused

The identity is a digest of the session's data, the archive, its options and the recorder's version.
The manifest of the result holds it, so that finished work is not repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

import recorder
from recorder.archives.finalize import AS_CONFIGURED, ORIGINALS, ArchiveRequest, Redact, prepare
from recorder.common.errors import FormatError, RecorderError, SessionError
from recorder.config.settings import plain_settings
from recorder.fleet.store import open_store
from recorder.fleet.store.base import (
    Source,
    Store,
    StoreRefusedError,
    StoreUnreachableError,
    canonical_json,
    is_store,
)
from recorder.fleet.store.manifest import (
    ENCRYPTED,
    Entry,
    Manifest,
    archive_manifest,
    list_manifests,
    session_manifest,
)
from recorder.fleet.uploading import list_files
from recorder.perception.calibration import read_calibration
from recorder.perception.redaction.pictures import describe
from recorder.session import layout
from recorder.session.discovery import find_sessions_below
from recorder.session.reader import Session

_READERS: Final = 16  # manifests that are read at a time
_JOURNAL: Final = f"{layout.PRIVATE}/{layout.JOURNAL}"
# The journal has digests of all data.
_TELLING: Final = (
    *(_JOURNAL, f"{layout.PRIVATE}/{layout.SESSION_JSON}", f"{layout.PRIVATE}/{layout.EVENTS}"),
    *("config.yaml", "calibration.yaml"),
)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Job to pack one archive of one session; it holds all inputs except the store's keys.

    Attributes:
        name: name of the session.
        source: URL of its store, or its folder.
        stored: the source is a store.
        inputs: digest of the session's data.
        size: bytes to pack.
        archive, options: as for `recorder.archives.finalize.ArchiveRequest`.
        calibration: content of the calibration file instead of the session's own.
        out: URL of the store for the result.
        redact: entries of ``redact`` (`RedactSettings`), for archives with pictures.
        redaction: the part of `redact` that the result depends on, by camera; see
            `plan_redaction`.
        version: version of the recorder that plans.
        identity_file: path, on the worker, of the secret keys that decrypt the session; no job
            holds the keys themselves.
    """

    name: str
    source: str
    stored: bool
    inputs: str
    size: int
    archive: str
    options: dict[str, Any]
    calibration: bytes | None
    out: str
    redact: tuple[dict[str, Any], ...] = ()
    redaction: dict[str, Any] = {}
    version: str = recorder.__version__
    identity_file: str | None = None

    @property
    def identity(self) -> str:
        """Digest of everything that the result depends on, in hex."""
        given = self.calibration
        about = {
            "inputs": self.inputs,
            "archive": self.archive,
            "options": self.options,
            "calibration": None if given is None else hashlib.sha256(given).hexdigest(),
            "version": self.version,
        }
        if self.redaction:
            about["redaction"] = self.redaction
        return hashlib.sha256(canonical_json(about)).hexdigest()

    @property
    def title(self) -> str:
        """Session and archive, for messages."""
        return f"{self.name}: {self.archive}"


@dataclass(frozen=True)
class Plan:
    """Result of planning.

    Attributes:
        jobs: jobs to run; jobs of one session are adjacent.
        finished: jobs whose result is in the store.
        refused: reason by session or job that cannot be packed.
    """

    jobs: tuple[Job, ...]
    finished: tuple[Job, ...]
    refused: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Found:
    """A session that can be packed."""

    name: str
    source: str
    stored: bool
    inputs: str
    size: int


def plan_jobs(
    sources: Sequence[str],
    steps: Sequence[ArchiveRequest],
    out: str,
    calibration: Path | None = None,
    identity_file: str | None = None,
    redact: Redact = AS_CONFIGURED,
) -> Plan:
    """Plan the jobs for all sessions of some sources.

    Args:
        sources: URLs of stores into which sessions were uploaded, folders of sessions, sessions.
        steps: the archives.
        out: URL of the store for the results.
        calibration: a calibration file that replaces the sessions' own.
        identity_file: see `Job`; None: encrypted sessions are refused.
        redact: as for `recorder.archives.finalize.finalize`; the programs must be on the workers,
        too.

    Raises:
        RedactionError: the file of a program cannot be read.
        UsageError: as `prepare`, the calibration is wrong, or a URL is no store.
        StorageError: a store cannot be read.
    """
    prepared = prepare(steps)
    given = None
    if calibration is not None:
        read_calibration(calibration)  # checks it
        given = calibration.read_bytes()
    store = open_store(out)
    refused: dict[str, str] = {}
    found: dict[str, _Found] = {}
    for source in sources:
        readable = identity_file is not None
        for session in (
            _find_stored(source, refused, readable)
            if is_store(source)
            else _find_local(source, refused)
        ):
            if session.name in found:
                refused[f"{session.source}: {session.name}"] = (
                    f"another session of this name is in {found[session.name].source}"
                )
            else:
                found[session.name] = session
    programs = tuple(map(plain_settings, redact))
    planned = plan_redaction(redact)
    there = {(name, archive) for name, archive, _ in list_manifests(store) if archive}
    jobs, known = list[Job](), list[Job]()
    for session in found.values():
        for step in prepared:
            job = Job(
                **{name: getattr(session, name) for name in session.__slots__},
                archive=step.packer.name,
                options=dict(step.options),
                calibration=given,
                out=out,
                identity_file=identity_file,
                redact=programs if step.packer.has_pictures else (),
                redaction=planned if step.packer.has_pictures else {},
            )
            (known if (job.name, job.archive) in there else jobs).append(job)
    with ThreadPoolExecutor(_READERS) as pool:
        reasons = list(pool.map(lambda job: find_conflict(job, store), known))
    refused |= {job.title: why for job, why in zip(known, reasons, strict=True) if why is not None}
    finished = [job for job, why in zip(known, reasons, strict=True) if why is None]
    return Plan(tuple(jobs), tuple(finished), refused)


def plan_redaction(redact: Redact) -> dict[str, Any]:
    """Describe the redaction that the pictures depend on, by camera; empty for recorded pictures.

    Raises:
        RedactionError: the file of a program cannot be read.
    """
    return {} if redact == ORIGINALS else {entry.camera: describe(entry) for entry in redact}


def find_conflict(job: Job, store: Store) -> str | None:
    """Return the reason why the stored result is not the job's result; None if it is."""
    key = archive_manifest(job.name, job.archive)
    try:
        made = Manifest.read(store, key)
    except FormatError as error:
        return str(error)
    if made.about.get("identity") == job.identity:
        return None
    return (
        f"{store.url}/{key}: was packed from other data, with other options, or by another "
        "version; give another --out"
    )


def is_input(path: str) -> bool:
    """Check that packing reads a file of a session."""
    return path.partition("/")[0] != layout.ARCHIVES and path != layout.REPORT


def _hash_inputs(entries: Iterable[Entry]) -> str:
    """Return the digest of a session's data, in hex."""
    files = {entry.path: entry.sha256 for entry in entries if is_input(entry.path)}
    if _JOURNAL in files:
        files = {path: files[path] for path in _TELLING if path in files}
    return hashlib.sha256(canonical_json(files)).hexdigest()


def _find_stored(url: str, refused: dict[str, str], readable: bool) -> Iterator[_Found]:
    store = open_store(url)

    def read(key: str) -> _Found | None:
        try:
            manifest = Manifest.read(store, key)
        except (StoreRefusedError, StoreUnreachableError):
            raise
        except RecorderError as error:
            refused[f"{store.url}/{key}"] = str(error)
            return None
        if manifest.version == ENCRYPTED and not readable:
            refused[f"{store.url}/{manifest.name}"] = "is encrypted; give --identity"
            return None
        size = sum(entry.size for entry in manifest.files if is_input(entry.path))
        return _Found(manifest.name, store.url, True, _hash_inputs(manifest.files), size)

    keys = [session_manifest(name) for name, archive, _ in list_manifests(store) if not archive]
    if not keys:
        refused[store.url] = "has no uploaded sessions"
    with ThreadPoolExecutor(_READERS) as pool:
        for found in pool.map(read, sorted(keys)):
            if found is not None:
                yield found


def _find_local(folder: str, refused: dict[str, str]) -> Iterator[_Found]:
    nothing = True
    for path in find_sessions_below(
        Path(folder).absolute(), lambda text: refused.update({folder: text})
    ):
        nothing = False
        try:
            yield _read_folder(path)
        except (RecorderError, OSError) as error:
            refused[str(path)] = str(error)
    if nothing:
        refused[folder] = "has no sessions"


def _read_folder(path: Path) -> _Found:
    with Session(path) as session:
        name, state = session.name, session.state
    if state not in (layout.CLEAN, layout.RECOVERED):
        raise SessionError(f"was not closed; run `recorder recover {path}` first")
    paths = [file for file in list_files(path) if is_input(file)]
    telling = [file for file in paths if file in _TELLING] if _JOURNAL in paths else paths
    entries = []
    for file in telling:
        with Source(path / file) as source:
            entries.append(Entry(file, source.size, source.read_all()))
    size = sum((path / file).stat().st_size for file in paths)
    return _Found(name, str(path), False, _hash_inputs(entries), size)
