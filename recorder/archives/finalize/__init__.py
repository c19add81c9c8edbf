"""Packing of finished sessions as archives.

::

    for result in finalize(Path("sessions/rig-1"), [ArchiveRequest("ncore", {})]):
        result.files, result.notes

The finalizer verifies a session first: the session must be closed or recovered.  The session's data
are only read.  Each archive is made in a hidden folder beside its place, ``.NAME.part``.  The
complete, synced files are renamed into place and replace older ones.  The next run removes the
files of an interrupted run and starts that archive again.  The record of an archive, with its
notes, is stored beside it (`recorder.session.outputs`).

`collect` packs several sessions as one dataset in a given folder::

    for result in collect([Path("a"), Path("b")], [ArchiveRequest("edgefirst")], Path("data/all")):
        result.files                            # data/all/edgefirst/all
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from recorder.archives.base import (
    ArchiveRequest,
    Failed,
    PackedArchive,
    PreparedRequest,
    Progress,
    Refused,
    dataset_name,
    prepare,
)
from recorder.archives.finalize.packing import find_existing_archive, keep_record, pack
from recorder.archives.finalize.sessions import (
    AS_CONFIGURED,
    ORIGINALS,
    LockedSession,
    Redact,
    lock_session,
    redact_session,
)
from recorder.archives.sample_workers import (
    SampleWorkers,
    processes_for,
    start_early,
    tune_memory,
)
from recorder.common.errors import RecorderError, RedactionError, UsageError
from recorder.common.memory import release_memory
from recorder.integrity.archives import find_common_signer, find_signer, is_proven_by
from recorder.integrity.vehicle_key import VehicleKey
from recorder.session.layout import ARCHIVES
from recorder.session.outputs import PACKED_PARTS
from recorder.session.part import WHOLE, Part

__all__ = [
    "AS_CONFIGURED",
    "ORIGINALS",
    "ArchiveRequest",
    "PackedArchive",
    "Redact",
    "collect",
    "dataset_name",
    "finalize",
    "prepare",
]

_AT_ONCE: Final = 2
"""Archives of a session that are packed at the same time."""


def finalize(
    path: Path,
    requests: Sequence[ArchiveRequest],
    *,
    out: Path | None = None,
    datasets: bool = False,
    calibration: Path | None = None,
    part: Part = WHOLE,
    redact: Redact = AS_CONFIGURED,
    progress: Progress = lambda *_: None,
    failed: Failed | None = None,
    processes: int | None = None,
) -> Iterator[PackedArchive]:
    """Pack a session's archives, each under the session's name.

    Archives of a large session are packed at the same time, so that each sample is decoded once.

    Archives of a part are stored in ``_archives/parts/PART``: they never replace archives of the
    whole session.

    Args:
        path: the session's folder.
        requests: the archives to pack.
        out: folder of the archives instead of the session's ``_archives``.
        datasets: pack archives that can hold several sessions as datasets of `out`: see `collect`.
        calibration: a calibration file instead of the session's own.
        part: the part of the session to pack.
        redact: programs that redact pictures first, or `ORIGINALS`.
        progress: see `Progress`.
        failed: called with the error of each archive that cannot be packed; None: the error is
            raised.
        processes: workers beside this process; None: a number that fits the session's size.

    Yields:
        each archive when it is in place, in the order of the requests.

    Raises:
        UsageError: see `prepare`; ConfigError: the given calibration is wrong.
        SessionError: the session is being recorded, was not closed, or is damaged, its
            calibration included.
        RedactionError: a picture could not be redacted, or the session's config asks for redaction
            and `redact` has no programs; no archive is packed.
        ArchiveError, FormatError, StorageError: names archive, stream and sample; the files of that
            archive are removed, and an older archive is unchanged.
    """
    tune_memory()
    prepared = prepare(requests)
    with lock_session(path):
        if processes is None:
            processes = processes_for(path)
        if processes:
            _start_workers_early(prepared)
        session = LockedSession.verify(path, calibration, part)
        if out is not None:
            root = out
        else:
            root = (
                path / ARCHIVES if part.is_whole else path / ARCHIVES / PACKED_PARTS / part.folder
            )
        own_name, key = session.archive_name, find_signer(path)
        with contextlib.ExitStack() as stack:
            session = stack.enter_context(
                redact_session(session, prepared, redact, root, own_name, progress)
            )
            workers = stack.enter_context(
                SampleWorkers(
                    *(path, part, processes), is_shared=len(prepared) > 1, redacted=session.redacted
                )
            )

            def make(request: PreparedRequest, progress: Progress) -> PackedArchive:
                place = root / request.packer.name
                adds = datasets and request.packer.collects
                name = dataset_name(root) if adds else own_name
                suffix = "" if out is None else f".{name}"
                proves = adds or request.keeps
                signer = _choose_signer(root, request, suffix, key) if proves else key
                made = pack(
                    [session], request, place, name, None, progress, adds=adds, workers=workers
                )
                keep_record(root, request, made, suffix, signer)
                release_memory()  # the other archives need it
                return made

            shared = workers if processes else None
            # Closed before the workers are: an interrupt ends the other archives' threads first.
            with contextlib.closing(_pack_concurrently(make, prepared, progress, shared)) as packed:
                for made in packed:
                    try:
                        yield made()
                    except UsageError:
                        raise
                    except RecorderError as error:
                        if failed is None:
                            raise
                        failed(error)


def _pack_concurrently(
    make: Callable[[PreparedRequest, Progress], PackedArchive],
    prepared: Sequence[PreparedRequest],
    progress: Progress,
    workers: SampleWorkers | None,
) -> Generator[Callable[[], PackedArchive]]:
    """Yield functions that return each archive, in order; with workers, pack two at the same time.

    More would take memory, but no less time: their own code runs in one process.  Without workers
    each function packs its archive in the caller's thread.  Closing the generator early stops all
    archives.
    """
    if workers is None or len(prepared) == 1:
        yield from (partial(make, request, progress) for request in prepared)
        return
    turn, stopped = threading.Lock(), threading.Event()

    def report(archive: str, done: float, total: float) -> None:
        if stopped.is_set():
            raise RecorderError("packing was stopped")
        with turn:
            progress(archive, done, total)

    with ThreadPoolExecutor(_AT_ONCE, "archive") as pool:
        futures: list[Future[PackedArchive]] = []
        try:
            futures.extend(pool.submit(make, request, report) for request in prepared)
            yield from (future.result for future in futures)
        finally:
            if len(futures) < len(prepared) or not all(future.done() for future in futures):
                stopped.set()
                for future in futures:
                    future.cancel()  # those that have not begun
                workers.close()


def collect(
    paths: Sequence[Path],
    requests: Sequence[ArchiveRequest],
    out: Path,
    *,
    calibration: Path | None = None,
    part: Part = WHOLE,
    redact: Redact = AS_CONFIGURED,
    progress: Progress = lambda *_: None,
    refused: Refused | None = None,
) -> Iterator[PackedArchive]:
    """Pack sessions as one dataset per archive, ``OUT/ARCHIVE/NAME``; NAME is the name of `out`.

    Sessions that the dataset holds stay in it; a session of the same name and start is replaced.
    All sessions are verified and locked before anything is packed.

    Args:
        paths: the sessions' folders.
        requests: the archives to pack; every packer must collect.
        out: the folder; created if it is missing.
        calibration: a calibration file instead of the sessions' own.
        part: the part of each session to pack.
        redact: as for `finalize`.
        progress: see `Progress`.
        refused: called with each session that cannot be packed, and the error.  The error is raised
            if this is None, or if no session can be packed.

    Yields:
        each archive when it is in place.

    Raises:
        UsageError: a packer does not collect, a session is given twice, and as for `finalize`.
        SessionError, RedactionError, ArchiveError, FormatError, StorageError: as `finalize`; a
            session that cannot be redacted is not left out: no archive is packed.
    """
    tune_memory()
    prepared = prepare(requests)
    for request in prepared:
        if not request.packer.collects:
            raise UsageError(f"{request.packer.name}: holds one session, not several")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a session is given twice")
    name = dataset_name(out)
    with contextlib.ExitStack() as stack:
        sessions: list[LockedSession] = []
        for number, path in enumerate(paths, start=1):
            try:
                stack.enter_context(lock_session(path))
                if processes_for(path):
                    _start_workers_early(prepared)
                one = LockedSession.verify(path, calibration, part)
                # An empty part is an error here, before any archive is begun.
                one.open().close()
                redacted = redact_session(one, prepared, redact, out, f"{name}.{number}", progress)
                sessions.append(stack.enter_context(redacted))
            except (UsageError, RedactionError):
                raise
            except RecorderError as error:
                if refused is None or (number == len(paths) and not sessions):
                    raise
                refused(path, error)
        key = find_common_signer(one.path for one in sessions)
        for request in prepared:
            place = out / request.packer.name
            signer = _choose_signer(out, request, f".{name}", key)
            made = pack(sessions, request, place, name, refused, progress, adds=True)
            keep_record(out, request, made, f".{name}", signer)
            yield made


def _choose_signer(
    root: Path, request: PreparedRequest, suffix: str, key: VehicleKey | None
) -> VehicleKey | None:
    """Return the key that signs an archive; None if it does not prove the older archive."""
    record = root / f"{request.packer.name}{suffix}.json"
    older = (
        request.keeps
        or find_existing_archive(root / request.packer.name, dataset_name(root))
        or record.exists()
    )
    return key if key is not None and (not older or is_proven_by(record, key)) else None


def _start_workers_early(prepared: Iterable[PreparedRequest]) -> None:
    """Start importing the packers' modules for the workers while sessions are verified."""
    start_early([name for request in prepared for name in request.packer.worker_modules])
