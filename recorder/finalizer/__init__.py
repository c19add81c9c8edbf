"""Finished sessions become archives.

::

    for result in finalize(Path("sessions/rig-1"), [Step("ncore", {})]):
        result.files, result.notes

A session is verified first: only what is closed or recovered is packed, and it is only read.  Each
archive is made in a hidden folder beside its place, ``.NAME.part``; complete and synced, its files
are renamed into place, over older ones.  What an interrupted run left in that folder is removed by
the next one, which starts that archive again.  The record of an archive, with its notes, is kept
beside it (`recorder.session.packing_records`).

Archives that can hold several sessions become one dataset in a given folder::

    for result in collect([Path("a"), Path("b")], [Step("edgefirst")], Path("data/all")):
        result.files                            # data/all/edgefirst/all
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from recorder.contract.errors import RecorderError, RedactionError, UsageError
from recorder.custody.sealing import find_common_signer, find_signer, is_proven_by
from recorder.finalizer.packing import existing_archive, keep_record, pack
from recorder.finalizer.requests import (
    Failed,
    Finalized,
    Prepared,
    Progress,
    Refused,
    Step,
    dataset_name,
    prepare,
)
from recorder.finalizer.sessions import (
    AS_CONFIGURED,
    ORIGINALS,
    LockedSession,
    Redact,
    lock_session,
    redact_session,
)
from recorder.processing.sample_workers import (
    SampleWorkers,
    processes_for,
    start_early,
    tune_memory,
)
from recorder.session.layout import ARCHIVES
from recorder.session.packing_records import PARTS
from recorder.session.part import WHOLE, Part
from recorder.session.vehicle_key import VehicleKey

__all__ = [
    "AS_CONFIGURED",
    "ORIGINALS",
    "Finalized",
    "Redact",
    "Step",
    "collect",
    "dataset_name",
    "finalize",
    "prepare",
]


def finalize(
    path: Path,
    steps: Sequence[Step],
    *,
    out: Path | None = None,
    datasets: bool = False,
    calibration: Path | None = None,
    part: Part = WHOLE,
    redact: Redact = AS_CONFIGURED,
    progress: Progress = lambda *_: None,
    failed: Failed | None = None,
    processes: int | None = None,
) -> Iterator[Finalized]:
    """Pack a session's archives, each under the session's name.

    Those of a large session are packed at the same time, so that each sample is decoded once.

    Archives of a part are in ``_archives/parts/PART``: they never replace those of the session.

    Args:
        path: the session's folder.
        steps: which archives.
        out: folder for them instead of the session's ``_archives``.
        datasets: archives that can hold several sessions become datasets of `out`: see `collect`.
        calibration: a calibration file instead of the session's own.
        part: the part of the session to pack.
        redact: programs that redact pictures first, or `ORIGINALS`.
        progress: see `Progress`.
        failed: called with each archive that cannot be packed; None: the error is
            raised.
        processes: workers beside this process; None: as many as the session is worth.

    Yields:
        each archive when it is in place, in the order of the steps.

    Raises:
        UsageError: see `prepare`; ConfigError: the given calibration is wrong.
        SessionError: the session is being recorded, was not closed, or is damaged, its
            calibration included.
        RedactionError: a picture could not be redacted, or the session's config asks for redaction
            and `redact` has no programs; no archive is packed.
        ArchiveError, FormatError, StorageError: names archive, stream and sample; nothing of that
            archive is left, and an older one is as it was.
    """
    tune_memory()
    prepared = prepare(steps)
    with lock_session(path):
        if processes is None:
            processes = processes_for(path)
        if processes:
            _start_workers_early(prepared)
        session = LockedSession.verify(path, calibration, part)
        if out is not None:
            root = out
        else:
            root = path / ARCHIVES if part.is_whole else path / ARCHIVES / PARTS / part.folder
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

            def make(step: Prepared, progress: Progress) -> Finalized:
                place = root / step.packer.name
                adds = datasets and step.packer.collects
                name = dataset_name(root) if adds else own_name
                suffix = "" if out is None else f".{name}"
                signer = _signer(root, step, suffix, key) if adds else key
                made = pack(
                    [session], step, place, name, None, progress, adds=adds, workers=workers
                )
                keep_record(root, step, made, suffix, signer)
                return made

            shared = workers if processes else None
            # Closed before the workers are: an interrupt ends the other archives' threads first.
            with contextlib.closing(_at_once(make, prepared, progress, shared)) as packed:
                for made in packed:
                    try:
                        yield made()
                    except UsageError:
                        raise
                    except RecorderError as error:
                        if failed is None:
                            raise
                        failed(error)


def _at_once(
    make: Callable[[Prepared, Progress], Finalized],
    prepared: Sequence[Prepared],
    progress: Progress,
    workers: SampleWorkers | None,
) -> Generator[Callable[[], Finalized]]:
    """Functions that return each archive, in order; they are packed at once if there are workers.

    Without workers they are packed one after the other, by the caller's thread.  Who stops before
    the end stops all of them.
    """
    if workers is None or len(prepared) == 1:
        yield from (partial(make, step, progress) for step in prepared)
        return
    turn, stopped = threading.Lock(), threading.Event()

    def report(archive: str, done: float, total: float) -> None:
        if stopped.is_set():
            raise RecorderError("packing was stopped")
        with turn:
            progress(archive, done, total)

    with ThreadPoolExecutor(len(prepared), "archive") as pool:
        futures: list[Future[Finalized]] = []
        try:
            futures.extend(pool.submit(make, step, report) for step in prepared)
            yield from (future.result for future in futures)
        finally:
            if len(futures) < len(prepared) or not all(future.done() for future in futures):
                stopped.set()
                workers.close()


def collect(
    paths: Sequence[Path],
    steps: Sequence[Step],
    out: Path,
    *,
    calibration: Path | None = None,
    part: Part = WHOLE,
    redact: Redact = AS_CONFIGURED,
    progress: Progress = lambda *_: None,
    refused: Refused | None = None,
) -> Iterator[Finalized]:
    """Pack sessions as one dataset per archive, ``OUT/ARCHIVE/NAME``; NAME is that of `out`.

    Sessions that the dataset holds stay in it; one of the same name and start is replaced.  All
    sessions are verified and locked before anything is packed.

    Args:
        paths: the sessions' folders.
        steps: which archives; all must collect.
        out: the folder; created if it is missing.
        calibration: a calibration file instead of the sessions' own.
        part: the part of each session to pack.
        redact: as for `finalize`.
        progress: see `Progress`.
        refused: called with each session that cannot be packed; None, or only
            such sessions: that is raised.

    Yields:
        each archive when it is in place.

    Raises:
        UsageError: a step's packer does not collect, a session is given twice, and as `finalize`.
        SessionError, RedactionError, ArchiveError, FormatError, StorageError: as `finalize`; a
            session that cannot be redacted is not left out: no archive is packed.
    """
    tune_memory()
    prepared = prepare(steps)
    for step in prepared:
        if not step.packer.collects:
            raise UsageError(f"{step.packer.name}: holds one session, not several")
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
        for step in prepared:
            place = out / step.packer.name
            signer = _signer(out, step, f".{name}", key)
            made = pack(sessions, step, place, name, refused, progress, adds=True)
            keep_record(out, step, made, f".{name}", signer)
            yield made


def _signer(root: Path, step: Prepared, suffix: str, key: VehicleKey | None) -> VehicleKey | None:
    """The key that signs an archive, unless what it is added to is not proven by that key."""
    record = root / f"{step.packer.name}{suffix}.json"
    older = existing_archive(root / step.packer.name, dataset_name(root)) or record.exists()
    return key if key is not None and (not older or is_proven_by(record, key)) else None


def _start_workers_early(prepared: Iterable[Prepared]) -> None:
    """Let what workers are forked from import the packers' modules, while sessions are verified."""
    start_early([name for step in prepared for name in step.packer.worker_modules])
