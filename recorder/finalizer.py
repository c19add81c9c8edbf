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

    for result in collect([Path("a"), Path("b")], [Step("edgefirst")], Path("data/summer")):
        result.files                            # data/summer/edgefirst/summer
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from recorder.archives.base import Job, Notes, Packer, load_packer
from recorder.archives.staging import empty, publish, size_of, staging
from recorder.contract.config.redact import asks_for_redaction
from recorder.contract.config.settings import ALL_CAMERAS, RedactSettings
from recorder.contract.errors import (
    ConfigError,
    RecorderError,
    RedactionError,
    SessionError,
    StorageError,
    UsageError,
)
from recorder.contract.session_names import check_name
from recorder.contract.streams import TIME_CHANNELS
from recorder.custody.archives import seal_archive
from recorder.processing.calibration import Calibration, read_calibration
from recorder.processing.redaction.pictures import redact_session, sentence
from recorder.processing.sample_workers import (
    SampleWorkers,
    open_part,
    processes_for,
    start_early,
)
from recorder.processing.tuning import tune_memory
from recorder.session.layout import ARCHIVES, RECORDING, SEALED
from recorder.session.lock import reading
from recorder.session.packing_records import PARTS, write_record
from recorder.session.part import WHOLE, Part, SessionPart
from recorder.session.reader import Session, outside
from recorder.session.validation import validate
from recorder.session.validation_report import ERROR

Redact = Sequence[RedactSettings]
AS_CONFIGURED: Redact = ()
"""Pictures as recorded, unless the session's own config asks for redacted ones: then an error."""
ORIGINALS: Redact = (RedactSettings(ALL_CAMERAS, Path()),)
"""Pictures as recorded, whatever the session's own config asks for."""

Progress = Callable[[str, float, float], None]
"""Called with the archive, the work done and all the work, from time to time."""


@dataclass(frozen=True)
class Step:
    """One archive to pack: its name and options, as they were given."""

    archive: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finalized:
    """An archive that is in place.

    Attributes:
        session: the session's folder; of a dataset of several, None.
        sessions: the folders of all that were packed now.
        archive: its kind.
        files: what was put into place.
        bytes: of all that.
        seconds: that it took.
        summary: what is in it.
        notes: what was odd, each once; of several sessions, after the session's name.
        redaction: by session and camera how pictures were redacted; empty if none were.
    """

    session: Path | None
    sessions: tuple[Path, ...]
    archive: str
    files: tuple[Path, ...]
    bytes: int
    seconds: float
    summary: Mapping[str, Any]
    notes: tuple[str, ...]
    redaction: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """A step whose packer is there and whose options are right."""

    packer: Packer
    options: Mapping[str, Any]


def prepare(steps: Iterable[Step]) -> list[Prepared]:
    """Look at the steps before any work is done.

    Raises:
        UsageError: there is no such archive, something is not installed, an option is wrong.
    """
    prepared = []
    for step in steps:
        packer = load_packer(step.archive)
        prepared.append(Prepared(packer, packer.check(step.options)))
    return prepared


Refused = Callable[[Path, RecorderError], None]
"""Called with a session that a dataset of several leaves out, and the reason."""

Failed = Callable[[RecorderError], None]
"""Called with an archive that could not be packed, and the reason."""


@dataclass(frozen=True)
class _Held:
    """A session that is verified and locked."""

    path: Path
    odd: Sequence[str]
    calibration: Calibration
    part: Part
    redacted: Path | None = None
    redaction: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Session:
        """The session, or the part of it that is packed; SessionError for an empty part."""
        return open_part(self.path, self.part, self.redacted)


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
    with _hold(path):
        if processes is None:
            processes = processes_for(path)
        if processes:
            _start_workers_early(prepared)
        held = _Held(path, verify(path), _calibration(path, calibration), part)
        if out is not None:
            root = out
        else:
            root = path / ARCHIVES if part.is_whole else path / ARCHIVES / PARTS / part.folder
        own_name = _archive_name(path)
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(_redacted(held, prepared, redact, root, own_name, progress))
            workers = stack.enter_context(
                SampleWorkers(
                    *(path, part, processes), is_shared=len(prepared) > 1, redacted=held.redacted
                )
            )

            def make(step: Prepared, progress: Progress) -> Finalized:
                place = root / step.packer.name
                adds = datasets and step.packer.collects
                name = dataset_name(root) if adds else own_name
                made = _pack([held], step, place, name, None, progress, adds=adds, workers=workers)
                _record(root, step, made, "" if out is None else f".{name}")
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
        held: list[_Held] = []
        for number, path in enumerate(paths, start=1):
            try:
                stack.enter_context(_hold(path))
                if processes_for(path):
                    _start_workers_early(prepared)
                odd = verify(path)
                one = _Held(path, odd, _calibration(path, calibration), part)
                one.open().close()
                redacted = _redacted(one, prepared, redact, out, f"{name}.{number}", progress)
                held.append(stack.enter_context(redacted))
            except (UsageError, RedactionError):
                raise
            except RecorderError as error:
                if refused is None or (number == len(paths) and not held):
                    raise
                refused(path, error)
        for step in prepared:
            place = out / step.packer.name
            made = _pack(held, step, place, name, refused, progress, adds=True)
            _record(out, step, made, f".{name}")
            yield made


@contextlib.contextmanager
def _redacted(
    held: _Held,
    steps: Sequence[Prepared],
    redact: Redact,
    root: Path,
    name: str,
    progress: Progress,
) -> Iterator[_Held]:
    """The session with its pictures redacted into a folder of `root`, which is removed at the end.

    Raises:
        RedactionError: they cannot be; the session's config asks for it, and `redact` is empty.
    """
    if not any(step.packer.has_pictures for step in steps) or redact == ORIGINALS:
        yield held
        return
    if not redact:
        if asks_for_redaction(held.path / "config.yaml"):
            raise RedactionError(
                f"{held.path}: its config asks for redacted pictures (redact): name the programs "
                "with --redact FILE, or ask for recorded pictures with --originals"
            )
        yield held
        return
    with staging(root, f"{name}.redacted") as folder:
        try:
            with held.open() as session:
                tick = partial(progress, "redaction")
                about = redact_session(session, redact, folder, tick)
        except RecorderError as error:
            raise type(error)(f"{held.path}: {error}") from error
        yield replace(held, redacted=folder, redaction=about)


def _start_workers_early(prepared: Iterable[Prepared]) -> None:
    """Let what workers are forked from import the packers' modules, while sessions are verified."""
    start_early([name for step in prepared for name in step.packer.worker_modules])


def _archive_name(path: Path) -> str:
    """The name of a session, which its archives take; it must not lead out of their folder."""
    with Session(path) as session:
        name = session.name
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise SessionError(f"{path}: no archive can have the name {name!r}")
    return name


def dataset_name(out: Path) -> str:
    """The name of a dataset in a folder: the folder's own.

    Raises:
        UsageError: it has none that can be one.
    """
    try:
        return check_name(out.resolve().name)
    except UsageError as error:
        raise UsageError(f"{out}: a dataset takes its folder's name, but {error}") from None


def _existing(place: Path, name: str) -> Path | None:
    """The place, if an older archive of that name lies in it."""
    try:
        names = [path.name for path in place.iterdir()]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{place}: cannot be read: {error.strerror}") from None
    return place if any(n == name or n.startswith(name + ".") for n in names) else None


@contextlib.contextmanager
def _hold(path: Path) -> Iterator[None]:
    """Keep recovery and other writers from the session while it is read."""
    if not path.is_dir():
        raise SessionError(f"{path}: no such session folder")
    if (elsewhere := outside(path)) is not None:
        raise SessionError(f"{elsewhere}; not packed: name that folder instead")
    with reading(path) as held:
        if not held:
            raise SessionError(f"{path}: is being recorded or recovered; not packed")
        yield


def verify(path: Path) -> list[str]:
    """Whether a session can be packed; returns what is odd but no hindrance.

    Raises:
        SessionError: it was not closed, or something in it is damaged; says what to do.
    """
    with Session(path) as session:
        state = session.state
    if state in (RECORDING, SEALED):
        why = "was sealed when its disk failed" if state == SEALED else "was not closed"
        raise SessionError(f"{path}: {why}; run `recorder recover {path}` first")
    report = validate(path, digests=False)
    odd: dict[tuple[str | None, str | None], list[str]] = {}
    for problem in report.problems:
        if problem.severity != ERROR:
            continue
        virtual = problem.stream is not None and problem.stream.startswith("_")
        if problem.channel not in TIME_CHANNELS and not virtual:
            more = sum(p.severity == ERROR for p in report.problems) - 1
            rest = f" (and {more} more; see `recorder validate`)" if more else ""
            raise SessionError(f"{path}: is damaged, not packed: {problem.message}{rest}")
        odd.setdefault((problem.stream, problem.channel), []).append(problem.message)
    others = " (and more; see `recorder validate`)"
    return [
        f"{stream}: {messages[0]}{others if len(messages) > 1 else ''}"
        for (stream, _), messages in odd.items()
    ]


def _calibration(path: Path, given: Path | None) -> Calibration:
    if given is not None:
        return read_calibration(given)
    own = path / "calibration.yaml"
    try:
        return read_calibration(own) if own.is_file() else Calibration()
    except ConfigError as error:  # the session's fault, not that of who calls
        raise SessionError(str(error)) from None


def _pack(
    held: Sequence[_Held],
    step: Prepared,
    place: Path,
    name: str,
    refused: Refused | None,
    progress: Progress,
    *,
    adds: bool = False,
    workers: SampleWorkers | None = None,
) -> Finalized:
    """Pack sessions that are held as one archive and put it into place.

    With `adds` an older one of that name is added to; `workers` are those of the only session.
    """
    started = time.monotonic()
    with staging(place, name) as folder, contextlib.ExitStack() as stack:
        jobs = [_job(h, stack.enter_context(h.open()), step) for h in held]
        for job in jobs:
            stack.callback(job.close)
            job.folder, job.workers = folder, workers
        # Not before the place is ours: another process may have been making it.
        existing = _existing(place, name) if adds else None
        while True:
            _count_progress(jobs, step.packer, progress)
            try:
                if step.packer.collects:
                    packed = step.packer.pack_all(jobs, name, existing)
                else:
                    packed = step.packer.pack(jobs[0])
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
        {job.session.name: job.redaction for job in jobs if job.redaction},
    )


def _record(root: Path, step: Prepared, made: Finalized, suffix: str) -> None:
    """Keep what is known about an archive beside it, for reports and as a proof of its origin.

    Args:
        root: the folder of the archive's folder.
        step: what was asked for.
        made: the archive.
        suffix: of the record's name, where archives of several sessions are in one folder.
    """
    kept = {key: getattr(made, key) for key in ("bytes", "seconds", "summary", "notes")}
    files = [path.name for path in made.files]
    about = {"packed_ns": time.time_ns(), "options": step.options, "files": files}
    record = f"{made.archive}{suffix}"
    try:
        name, older = suffix[1:] or made.files[-1].stem, root / f"{record}.json"
        about |= kept | ({"redaction": made.redaction} if made.redaction else {})
        custody = seal_archive(made.archive, name, made.files, made.sessions, older, about)
        write_record(root, record, about | {"custody": custody})
    except OSError as error:
        reason = f"{error.filename or root}: {error.strerror or error}"
        raise StorageError(f"{made.session}: {made.archive}: {reason}") from error


def _job(held: _Held, session: Session, step: Prepared) -> Job:
    notes = Notes(list(held.odd))
    if isinstance(session, SessionPart):
        notes.add(f"packed in part: {session.part}", "session")
        for name in session.empty:
            notes.add("has no sample in the packed part", name)
    about = held.redaction if step.packer.has_pictures else {}
    for camera, facts in about.items():
        notes.add(sentence(facts), camera)
    return Job(session, Path(), step.options, held.calibration, notes, redaction=about)


def _count_progress(jobs: Sequence[Job], packer: Packer, progress: Progress) -> None:
    """Let the jobs together say how far they are."""
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
