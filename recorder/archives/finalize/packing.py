"""Packing of locked sessions as one archive, its publication and its record."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from recorder.archives.base import PackedArchive, Packer, PreparedRequest, Progress, Refused
from recorder.archives.context import PackingContext
from recorder.archives.finalize.sessions import LockedSession
from recorder.archives.sample_workers import SampleWorkers
from recorder.archives.staging import empty, measure_size, publish, staging
from recorder.common.errors import RecorderError, StorageError, UsageError
from recorder.integrity.archives import digest_files, read_digests, seal_archive
from recorder.integrity.vehicle_key import VehicleKey
from recorder.perception.redaction.pictures import sentence
from recorder.session.outputs import write_record
from recorder.session.reader import Session
from recorder.session.session_part import SessionPart

_MORE_LABELS: Final = (
    "_labels/[!.]*/[!.]*/index.jsonl",
    "_point_clouds/[!.]*/index.jsonl",
    "_calibrations/[!.]*.yaml",
)
"""Files of a session for which not every archive has a place; see `Packer.has_all_labels`."""


def pack(
    sessions: Sequence[LockedSession],
    request: PreparedRequest,
    place: Path,
    name: str,
    refused: Refused | None,
    progress: Progress,
    *,
    adds: bool = False,
    workers: SampleWorkers | None = None,
) -> PackedArchive:
    """Pack sessions as one archive, and put the archive into place.

    Args:
        sessions: the sessions; several only for a packer that collects.
        request: the archive request.
        place: the archive's folder.
        name: the archive's name.
        refused: called with each session that is left out; None: the error is raised.
        progress: see `Progress`.
        adds: add the sessions to an older archive of the same name.
        workers: the workers of the only session; None: each session starts its own.
    """
    started = time.monotonic()
    with staging(place, name) as folder, contextlib.ExitStack() as stack:
        contexts = [_make_context(s, stack.enter_context(s.open()), request) for s in sessions]
        for context in contexts:
            stack.callback(context.close)
            context.folder, context.workers = folder, workers
        # Not before the place is ours: another process may have been making it.
        existing = find_existing_archive(place, name) if adds else None
        while True:
            _count_progress(contexts, request.packer, progress)
            try:
                if request.packer.collects:
                    packed = request.packer.pack_all(contexts, name, existing)
                else:
                    packed = request.packer.pack(contexts[0])
                digests = digest_files(folder / name for name in packed.files)
                files = publish(folder, place, packed)
                break
            except UsageError:
                raise
            except RecorderError as error:
                at_fault = [context for context in contexts if context.at_fault]
                path = (
                    (at_fault or contexts)[0].session.path
                    if len(contexts) == 1 or at_fault
                    else place
                )
                named = type(error)(f"{path}: {request.packer.name}: {error}")
                if refused is None or not at_fault or len(contexts) == 1:
                    raise named from error
                # The packer begins again without the sessions at fault.
                refused(path, named)
                contexts = [context for context in contexts if not context.at_fault]
                empty(folder)
            except OSError as error:
                path = contexts[0].session.path if len(contexts) == 1 else place
                reason = f"{error.filename or folder}: {error.strerror or error}"
                raise StorageError(f"{path}: {request.packer.name}: {reason}") from error
    paths = tuple(context.session.path for context in contexts)
    return PackedArchive(
        paths[0] if len(paths) == 1 else None,
        paths,
        request.packer.name,
        files,
        sum(measure_size(path) for path in files),
        time.monotonic() - started,
        packed.summary,
        tuple(_notes(contexts)),
        digests,
        {context.session.name: context.redaction for context in contexts if context.redaction},
        packed.kept,
    )


def keep_record(
    root: Path, request: PreparedRequest, made: PackedArchive, suffix: str, key: VehicleKey | None
) -> None:
    """Write an archive's record beside it, for reports and as a proof of its origin.

    Args:
        root: the parent of the archive's folder.
        request: the archive request.
        made: the archive.
        suffix: suffix of the record's name, where one folder has archives of several sessions.
        key: the key that signs the record; None: it is not signed.
    """
    kept = {key: getattr(made, key) for key in ("bytes", "seconds", "summary", "notes")}
    files = [*made.kept, *(path.name for path in made.files)]
    about = {"packed_ns": time.time_ns(), "options": request.options, "files": files}
    record = f"{made.archive}{suffix}"
    try:
        name, older = suffix[1:] or made.files[-1].stem, root / f"{record}.json"
        about |= kept | ({"redaction": made.redaction} if made.redaction else {})
        digests, place = dict(made.digests), root / made.archive
        if made.kept:
            digests |= read_digests(older, place, made.kept)
            about["bytes"] = made.bytes + sum(measure_size(place / file) for file in made.kept)
        custody = seal_archive(made.archive, name, digests, made.sessions, older, about, key)
        write_record(root, record, about | {"custody": custody})
    except OSError as error:
        reason = f"{error.filename or root}: {error.strerror or error}"
        raise StorageError(f"{made.session}: {made.archive}: {reason}") from error


def find_existing_archive(place: Path, name: str) -> Path | None:
    """Return the place if it contains an older archive of that name, else None."""
    try:
        names = [path.name for path in place.iterdir()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{place}: cannot be read: {error.strerror}") from None
    return place if any(n == name or n.startswith(name + ".") for n in names) else None


def _make_context(
    locked: LockedSession, session: Session, request: PreparedRequest
) -> PackingContext:
    about = locked.redaction if request.has_pictures else {}
    calibration, warnings = locked.calibration, locked.warnings
    context = PackingContext(
        session, Path(), request.options, calibration, warnings, redaction=about
    )
    if isinstance(session, SessionPart):
        context.notes.add(f"packed in part: {session.part}", "session")
        for name in session.empty:
            context.notes.add("has no sample in the packed part", name)
    for camera, facts in about.items():
        context.notes.add(sentence(facts), camera)
    if not request.packer.has_all_labels:
        for pattern in _MORE_LABELS:
            for path in sorted(session.path.glob(pattern)):
                place = path.parent if path.name == "index.jsonl" else path
                subject = place.relative_to(session.path).as_posix()
                context.notes.add("left out: the archive has no place for it", subject)
    return context


def _count_progress(contexts: Sequence[PackingContext], packer: Packer, progress: Progress) -> None:
    """Report the combined progress of all contexts."""
    done, total = 0.0, sum(packer.ticks(context) for context in contexts)

    def advance(amount: float) -> None:
        nonlocal done
        done += amount
        progress(packer.name, done, total)

    for context in contexts:
        context.advance = advance
    progress(packer.name, 0.0, total)


def _notes(contexts: Sequence[PackingContext]) -> Iterator[str]:
    for context in contexts:
        for line in context.notes.lines:
            yield line if len(contexts) == 1 else f"{context.session.name}: {line}"
