"""Task of a cluster's worker: fetch a session, pack an archive of it, and upload the archive.

Independent workers may run a job twice, and a job may be interrupted at any point: objects are
created but never replaced, the same job makes the same bytes, and the manifest is written last.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import recorder
from recorder.archives.finalize import ArchiveRequest, PackedArchive, finalize
from recorder.common.errors import RecorderError, RedactionError, StorageError, UsageError
from recorder.config.settings import RedactSettings, read_settings
from recorder.fleet.encryption import Identity
from recorder.fleet.fetching import fetch_file
from recorder.fleet.packing_jobs import Job, find_conflict, is_input, plan_redaction
from recorder.fleet.store import open_store
from recorder.fleet.store.base import Store, disk_errors
from recorder.fleet.store.manifest import (
    ENCRYPTED,
    Entry,
    Manifest,
    archive_manifest,
    session_manifest,
)
from recorder.integrity.archives import describe_source

# Multiple of a session's bytes: itself and its archive; once more for redacted pictures.
_SPACE_FACTOR: Final = 2.0


@dataclass(frozen=True)
class Packed:
    """Result of a job.

    Attributes:
        worker: host name of the worker.
        files, bytes: number and size of the archive's files.
        fetch_s, pack_s, store_s: seconds of its steps.
        cpu_s: CPU seconds of the worker's process, of all steps.
        notes: notes of the packer.
        found: the store had the archive already.
    """

    worker: str
    files: int
    bytes: int
    fetch_s: float
    pack_s: float
    store_s: float
    cpu_s: float
    notes: tuple[str, ...]
    found: bool = False


def pack_job(job: Job, scratch: str | None = None) -> Packed:
    """Run a job.

    Args:
        job: the job.
        scratch: folder on the worker's disk; None: that of the Dask worker.

    Raises:
        RecorderError: the job failed; the message names the worker where that matters.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    where = socket.gethostname()
    if job.version != recorder.__version__:
        raise RecorderError(
            f"worker {where} has recorder {recorder.__version__}, this is {job.version}"
        )
    store, key = open_store(job.out), archive_manifest(job.name, job.archive)
    if store.stat(key) is not None:
        if (why := find_conflict(job, store)) is not None:
            raise StorageError(why)
        made = Manifest.read(store, key)
        return Packed(where, len(made.files), made.size, 0, 0, 0, 0, (), found=True)
    if scratch is None:
        from distributed import get_worker

        scratch = str(get_worker().local_directory)
    folder = Path(scratch) / f"{job.identity[:16]}-{os.getpid()}"
    began_cpu_s, began_s = time.process_time(), time.monotonic()
    with _make_scratch(folder):
        session = _fetch_session(job, folder) if job.stored else Path(job.source)
        fetched_s = time.monotonic()
        result = _pack(job, session, folder / "out")
        packed_s = time.monotonic()
        manifest = _upload_archive(job, result, session, folder / "out", store)
    return Packed(
        *(where, len(manifest.files), manifest.size, fetched_s - began_s, packed_s - fetched_s),
        *(time.monotonic() - packed_s, time.process_time() - began_cpu_s, result.notes),
    )


@contextmanager
def _make_scratch(folder: Path) -> Iterator[None]:
    """Provide a folder that is empty at the beginning and removed at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors(folder):
        folder.mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch_session(job: Job, folder: Path) -> Path:
    """Download the session's files that packing needs onto the worker's disk."""
    free = shutil.disk_usage(folder).free
    room = job.size * (_SPACE_FACTOR + bool(job.redact))
    if free < room:
        raise StorageError(
            f"worker {socket.gethostname()}: {folder.parent}: {free / 1e9:.1f} GB are free, "
            f"{job.name} needs {room / 1e9:.1f} GB"
        )
    source, key = open_store(job.source), session_manifest(job.name)
    manifest = Manifest.read(source, key)
    session, identity = folder / job.name, None
    if job.identity_file is not None and manifest.version == ENCRYPTED:
        try:
            identity = Identity(Path(job.identity_file))
        except UsageError as error:
            raise UsageError(f"worker {socket.gethostname()}: {error}") from None
    for entry in manifest.files:
        if is_input(entry.path):
            fetch_file(source, manifest, entry, session / entry.path, identity)
    return session


def _pack(job: Job, session: Path, out: Path) -> PackedArchive:
    calibration = None
    if job.calibration is not None:
        calibration = out.with_name("calibration.yaml")
        with disk_errors(calibration):
            calibration.write_bytes(job.calibration)
    step = ArchiveRequest(job.archive, job.options)
    redact = tuple(read_settings(entry, RedactSettings) for entry in job.redact)
    if plan_redaction(redact) != job.redaction:
        raise RedactionError(
            f"worker {socket.gethostname()}: the programs of --redact are not those of the machine "
            "that planned: the same files must be in the same folder on both"
        )
    (result,) = finalize(
        session, [step], out=out, calibration=calibration, redact=redact, processes=0
    )
    return result


def _upload_archive(
    job: Job, result: PackedArchive, session: Path, out: Path, store: Store
) -> Manifest:
    """Upload an archive into the store; return its manifest, which is written last."""
    try:
        source = describe_source(session)
    except RecorderError:  # a trace of other software has no journal
        source = None
    folder = out / job.archive
    entries = []
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = str(path.relative_to(folder))
        sha256 = store.upload_new(f"{job.name}/{job.archive}/{name}", path)
        entries.append(Entry(name, path.stat().st_size, sha256))
    manifest = Manifest(
        kind="archive",
        name=job.name,
        folder=f"{job.name}/{job.archive}",
        files=tuple(sorted(entries, key=lambda entry: entry.path)),
        about={
            "identity": job.identity,
            "inputs": job.inputs,
            "archive": job.archive,
            "options": job.options,
            "software": job.version,
            "source": source,
            "notes": list(result.notes),
            **({"redaction": result.redaction} if result.redaction else {}),
        },
    ).with_digest()
    manifest.put(store)
    return manifest
