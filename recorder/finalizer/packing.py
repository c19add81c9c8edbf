"""Packs locked sessions as one archive, puts it into place, and keeps its record."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from recorder.archives.base import Packer
from recorder.archives.context import Job
from recorder.archives.staging import empty, publish, size_of, staging
from recorder.contract.errors import RecorderError, StorageError, UsageError
from recorder.custody.archives import digest_files
from recorder.custody.sealing import seal_archive
from recorder.finalizer.requests import Finalized, Prepared, Progress, Refused
from recorder.finalizer.sessions import LockedSession
from recorder.processing.redaction.pictures import sentence
from recorder.processing.sample_workers import SampleWorkers
from recorder.session.packing_records import write_record
from recorder.session.reader import Session
from recorder.session.session_part import SessionPart
from recorder.session.vehicle_key import VehicleKey


def pack(
    sessions: Sequence[LockedSession],
    step: Prepared,
    place: Path,
    name: str,
    refused: Refused | None,
    progress: Progress,
    *,
    adds: bool = False,
    workers: SampleWorkers | None = None,
) -> Finalized:
    """Pack sessions as one archive, and put the archive into place.

    Args:
        sessions: the sessions; more than one only for a packer that collects.
        step: the archive.
        place: the archive's folder.
        name: the archive's name.
        refused: called with each session that is left out; None: the error is raised.
        progress: see `Progress`.
        adds: add the sessions to an older archive of the same name.
        workers: those of the only session; None: each session has its own.
    """
    started = time.monotonic()
    with staging(place, name) as folder, contextlib.ExitStack() as stack:
        jobs = [_make_job(s, stack.enter_context(s.open()), step) for s in sessions]
        for job in jobs:
            stack.callback(job.close)
            job.folder, job.workers = folder, workers
        # Not before the place is ours: another process may have been making it.
        existing = existing_archive(place, name) if adds else None
        while True:
            _count_progress(jobs, step.packer, progress)
            try:
                if step.packer.collects:
                    packed = step.packer.pack_all(jobs, name, existing)
                else:
                    packed = step.packer.pack(jobs[0])
                digests = digest_files(folder / name for name in packed.files)
                files = publish(folder, place, packed)
                break
            except UsageError:
                raise
            except RecorderError as error:
                at_fault = [job for job in jobs if job.at_fault]
                path = (at_fault or jobs)[0].session.path if len(jobs) == 1 or at_fault else place
                named = type(error)(f"{path}: {step.packer.name}: {error}")
                if refused is None or not at_fault or len(jobs) == 1:
                    raise named from error
                refused(path, named)
                jobs = [job for job in jobs if not job.at_fault]
                empty(folder)
            except OSError as error:
                path = jobs[0].session.path if len(jobs) == 1 else place
                reason = f"{error.filename or folder}: {error.strerror or error}"
                raise StorageError(f"{path}: {step.packer.name}: {reason}") from error
    paths = tuple(job.session.path for job in jobs)
    return Finalized(
        paths[0] if len(paths) == 1 else None,
        paths,
        step.packer.name,
        files,
        sum(size_of(path) for path in files),
        time.monotonic() - started,
        packed.summary,
        tuple(_notes(jobs)),
        digests,
        {job.session.name: job.redaction for job in jobs if job.redaction},
    )


def keep_record(
    root: Path, step: Prepared, made: Finalized, suffix: str, key: VehicleKey | None
) -> None:
    """Keep what is known about an archive beside it, for reports and as a proof of its origin.

    Args:
        root: the folder of the archive's folder.
        step: what was asked for.
        made: the archive.
        suffix: of the record's name, where archives of several sessions are in one folder.
        key: signs the record; None: it is not signed.
    """
    kept = {key: getattr(made, key) for key in ("bytes", "seconds", "summary", "notes")}
    files = [path.name for path in made.files]
    about = {"packed_ns": time.time_ns(), "options": step.options, "files": files}
    record = f"{made.archive}{suffix}"
    try:
        name, older = suffix[1:] or made.files[-1].stem, root / f"{record}.json"
        about |= kept | ({"redaction": made.redaction} if made.redaction else {})
        custody = seal_archive(made.archive, name, made.digests, made.sessions, older, about, key)
        write_record(root, record, about | {"custody": custody})
    except OSError as error:
        reason = f"{error.filename or root}: {error.strerror or error}"
        raise StorageError(f"{made.session}: {made.archive}: {reason}") from error


def existing_archive(place: Path, name: str) -> Path | None:
    """The place, if an older archive of that name lies in it."""
    try:
        names = [path.name for path in place.iterdir()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{place}: cannot be read: {error.strerror}") from None
    return place if any(n == name or n.startswith(name + ".") for n in names) else None


def _make_job(locked: LockedSession, session: Session, step: Prepared) -> Job:
    about = locked.redaction if step.packer.has_pictures else {}
    calibration, warnings = locked.calibration, locked.warnings
    job = Job(session, Path(), step.options, calibration, warnings, redaction=about)
    if isinstance(session, SessionPart):
        job.notes.add(f"packed in part: {session.part}", "session")
        for name in session.empty:
            job.notes.add("has no sample in the packed part", name)
    for camera, facts in about.items():
        job.notes.add(sentence(facts), camera)
    return job


def _count_progress(jobs: Sequence[Job], packer: Packer, progress: Progress) -> None:
    """Report the combined progress of all jobs."""
    done, total = 0.0, sum(packer.ticks(job) for job in jobs)

    def advance(amount: float) -> None:
        nonlocal done
        done += amount
        progress(packer.name, done, total)

    for job in jobs:
        job.advance = advance
    progress(packer.name, 0.0, total)


def _notes(jobs: Sequence[Job]) -> Iterator[str]:
    for job in jobs:
        for line in job.notes.lines:
            yield line if len(jobs) == 1 else f"{job.session.name}: {line}"
