"""The interface between an archive and the finalizer.

An archive is a package below `recorder.archives` with a module ``packer``, and has the package's
name.  The config's `ARCHIVES` lists the names.  The module has a `Packer` object named ``PACKER``::

    class NcorePacker(Packer):
        options = {"store": Option("str", "itar", "...", choices=("itar", "folder"))}

        def ticks(self, job): ...          # the amount of work
        def pack(self, job): ...           # writes into job.folder

    PACKER = NcorePacker()

A packer writes complete, synced files into `Job.folder` under their final names, and returns the
order in which the finalizer renames them into place.  A packer that ``collects`` has ``pack_all``
instead of ``pack``: its archives hold several sessions.  docs/archives.md is the guide.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from recorder.archives import ArchiveError
from recorder.contract.config.options import OptionTable, check_options, suggest
from recorder.contract.config.settings import ARCHIVES
from recorder.contract.errors import RecorderError, StorageError, UsageError
from recorder.contract.extras import need_extra
from recorder.processing.calibration import Calibration
from recorder.processing.can_bus import holds_can_frames, holds_can_signals
from recorder.processing.datagrams import holds_datagrams
from recorder.processing.frames import kind_of
from recorder.processing.geometry import Floats, rotation_of_quaternion, transform
from recorder.processing.sample_workers import (
    Factory,
    SampleError,
    SampleWorkers,
    Shelf,
    processes_for,
)
from recorder.session.accounts import incomplete_samples, incomplete_text
from recorder.session.layout import RECOVERED
from recorder.session.loss_accounts import losses, lost_events
from recorder.session.reader import Session
from recorder.session.stream import Stream

CAMERA_AHEAD: Floats = transform(
    rotation_of_quaternion(np.array([-0.5, 0.5, -0.5, 0.5])), np.zeros(3)
)
"""``T_sensor_rig`` of a camera in the rig's origin that looks along x: z forward, x right."""


@dataclass
class Notes:
    """Oddities of a session, each listed once.

    Attributes:
        lines: sentences, in the order in which they were added.
    """

    lines: list[str] = field(default_factory=list)

    def add(self, sentence: str, subject: str = "") -> None:
        """Record an oddity of a stream, or of any other named subject."""
        line = f"{subject}: {sentence}" if subject else sentence
        if line not in self.lines:
            self.lines.append(line)

    def of(self, subject: str) -> list[str]:
        """The sentences about a stream, without its name."""
        start = f"{subject}: "
        return [line.removeprefix(start) for line in self.lines if line.startswith(start)]


@dataclass
class Job:
    """One session to pack, as one archive or into a shared archive.

    Attributes:
        session: opened with virtual sensors, for reading only.
        folder: an empty folder for the files.  Jobs that are packed together share the folder.
        options: the packer's options, checked.
        calibration: the session's calibration, or the one given instead; may be empty.
        notes: the packer adds oddities of the session here.
        advance: called with the amount of finished work, in the unit of `Packer.ticks`.
        workers: the processes that make products of samples for all archives of the session;
            None: the job makes its own.
        shelf: in a worker, what its makers share.
        at_fault: whether this session is the one that could not be packed; see `fault_scope`.
        redaction: by camera, how its pictures were redacted (`redact_session`); else empty.
    """

    session: Session
    folder: Path
    options: Mapping[str, Any]
    calibration: Calibration
    notes: Notes = field(default_factory=Notes)
    advance: Callable[[float], None] = lambda _: None
    workers: SampleWorkers | None = None
    shelf: Shelf | None = None
    at_fault: bool = False
    redaction: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    _own: SampleWorkers | None = None

    def products(
        self, stream: str, factory: Factory, indices: Iterable[int], *, group: int
    ) -> Generator[Any]:
        """The products of a stream's samples, in order; see `SampleWorkers.products`.

        Raises:
            ArchiveError, StorageError: as by `at`.
        """
        remark = partial(self.notes.add, subject=stream)
        made = self._pool().products(stream, factory, indices, group=group, remark=remark)
        try:
            yield from made
        except SampleError as error:
            with self.at(stream, error.index):
                raise error.error from None

    def submit(
        self, stream: str, factory: Factory, indices: Sequence[int], *, group: int
    ) -> Callable[[], list[Any]]:
        """Begin to make products of samples in one group; the result waits for them.

        Raises:
            ArchiveError, StorageError: as by `at`, when they are taken.
        """
        remark = partial(self.notes.add, subject=stream)
        pending = self._pool().submit(stream, factory, indices, group=group, remark=remark)

        def taken() -> list[Any]:
            try:
                return pending.result()
            except SampleError as error:
                with self.at(stream, error.index):
                    raise error.error from None

        return taken

    def _pool(self) -> SampleWorkers:
        if self.workers is None:
            path, part = self.session.path, self.session.part
            self.workers = self._own = SampleWorkers(
                path, part, processes_for(path), redacted=self.session.redacted
            )
        return self.workers

    def close(self) -> None:
        """Close the session's files; for archives of many sessions."""
        self.session.close()
        if self._own is not None:
            self._own.close()
            self.workers = self._own = None

    @property
    def streams(self) -> list[Stream]:
        """The streams of the session's sensors, without the virtual ones."""
        return [s for s in self.session.streams.values() if not s.name.startswith("_")]

    def contains(self, t_ns: int) -> bool:
        """Whether a time, epoch ns, is in the part of the session that is packed."""
        begin_ns, end_ns = self.session.interval_ns
        return (begin_ns is None or t_ns >= begin_ns) and (end_ns is None or t_ns < end_ns)

    def note_absent(self, unreadable: str = "cannot be read, left out") -> None:
        """Note the streams that cannot be read, and the streams without a recorded sample."""
        session = self.session
        for name, fault in session.broken.items():
            self.notes.add(f"{unreadable}: {fault}", name)
        for name in sorted(
            session.declared.keys() - session.streams.keys() - session.broken.keys()
        ):
            self.notes.add("no sample was recorded", name)

    def note_bus_streams(self) -> None:
        """Note the streams of datagrams and of CAN, for an archive that cannot hold them."""
        kinds = (
            (holds_datagrams, "datagrams"),
            (holds_can_frames, "frames of a CAN bus"),
            (holds_can_signals, "signals of a CAN bus"),
        )
        for stream in self.streams:
            for holds, what in kinds:
                if holds(stream):
                    self.notes.add(f"has {what}: left out", stream.name)

    def has_samples(self, stream: Stream) -> bool:
        """Whether a stream has samples with times; notes a stream that has none."""
        with self.at(stream.name):
            missing = not len(stream)
        if not stream.has_times:
            self.notes.add("has no times: left out", stream.name)
        elif missing:
            self.notes.add("no sample was recorded", stream.name)
        return stream.has_times and not missing

    def pose_of(self, stream: Stream, *, noted: bool = True) -> Floats:
        """``T_sensor_rig``; with `noted`, notes a stream that the calibration does not have.

        Such a stream is placed at the rig's origin.  A camera looks ahead there; other sensors have
        the rig's axes.
        """
        if (pose := self.calibration.of(stream.name).pose) is not None:
            return pose
        camera = kind_of(stream) == "camera"
        if noted:
            ahead = " and looks ahead" if camera else ""
            self.notes.add(
                f"not in the calibration: placed at the rig's origin{ahead}", stream.name
            )
        return CAMERA_AHEAD.copy() if camera else np.eye(4)

    def note_recovery(self) -> None:
        """Note that the session was recovered instead of closed by its writer."""
        if self.session.state == RECOVERED:
            self.notes.add("recovered: its writer died, or its disk failed", "session")

    def note_losses(self) -> dict[str, Any]:
        """Note losses and incomplete samples; returns the losses by stream, for the archive."""
        lost: dict[str, Any] = {}
        recorded = list(self.session.events())
        for name, incomplete in incomplete_samples(recorded).items():
            self.notes.add(f"incomplete samples: {incomplete_text(incomplete)}", name)
        for name, events in lost_events(recorded).items():
            causes, intervals = losses(events)
            counted = {cause: count for cause, count in causes.items() if count}
            parts = [f"{count} ({cause})" for cause, count in counted.items()]
            if intervals:
                times = "an interval" if len(intervals) == 1 else f"{len(intervals)} intervals"
                parts.append(f"{times} that nobody counted")
            if parts:
                lost[name] = {"counted": counted, "uncounted_intervals": len(intervals)}
                self.notes.add("lost samples: " + ", ".join(parts), name)
        return lost

    @contextmanager
    def fault_scope(self) -> Iterator[None]:
        """Mark this session as at fault when an error is raised inside.

        A dataset of several sessions is then packed without this session.  Errors of the disk
        (`StorageError`) and wrong usage mark no session.
        """
        try:
            yield
        except (StorageError, UsageError):
            raise
        except RecorderError:
            self.at_fault = True
            raise

    @contextmanager
    def at(self, stream: str, sample: int | None = None) -> Iterator[None]:
        """Add the stream and the sample to errors raised inside, and act as `fault_scope`.

        Raises:
            ArchiveError: replaces any error of a file or format.
            StorageError: errors of the disk keep their type.
        """
        try:
            with self.fault_scope():
                yield
        except (_PlacedArchiveError, _PlacedStorageError):
            raise  # the inner place is more precise
        except OSError as error:
            place = f"{error.filename}: " if error.filename is not None else ""
            message = f"{self._where(stream, sample)}: {place}{error.strerror or error}"
            raise _PlacedStorageError(message) from error
        except StorageError as error:
            raise _PlacedStorageError(f"{self._where(stream, sample)}: {error}") from error
        except UsageError:
            raise
        except RecorderError as error:
            raise _PlacedArchiveError(f"{self._where(stream, sample)}: {error}") from error

    def _where(self, stream: str, sample: int | None) -> str:
        """A place in the recording; samples of a part have numbers of their own."""
        if sample is None:
            return stream
        known = self.session.streams.get(stream)
        return f"{stream}, sample {sample + (0 if known is None else known.first)}"


class _PlacedArchiveError(ArchiveError):
    """Its message already names the place."""


class _PlacedStorageError(StorageError):
    """Its message already names the place."""


@dataclass(frozen=True)
class Packed:
    """The files that a packer has written.

    Attributes:
        files: names of files and folders in `Job.folder`, in the order in which the finalizer
            renames them into place: a file that names other files comes last.
        stale: names that an older archive of the same name may have and this one does not.  The
            finalizer removes them after all files are in place.
        summary: the archive's contents, for the report.
    """

    files: tuple[str, ...]
    stale: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)


class Packer(ABC):
    """Packs sessions as one kind of archive.

    Attributes:
        name: the value of ``--to``; the package's name unless set.
        options: the options that the packer accepts.
        collects: whether one archive can hold several sessions.  Such a packer implements
            `pack_all`, every other packer implements `pack`.
        worker_modules: modules that the packer's makers need, which workers import early.
        has_pictures: whether its archives have the pictures of cameras, which may be redacted.
    """

    name: ClassVar[str]
    options: ClassVar[OptionTable] = {}
    collects: ClassVar[bool] = False
    worker_modules: ClassVar[tuple[str, ...]] = ()
    has_pictures: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "name"):
            cls.name = cls.__module__.split(".")[-2]
        needed = "pack_all" if cls.collects else "pack"
        if getattr(cls, needed) is getattr(Packer, needed):
            raise TypeError(f"{cls.__name__} has no {needed}")

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check the options and the installed packages; returns the options with defaults.

        Raises:
            ConfigError: an option is unknown or wrong.
            UsageError: a package is not installed; the message names the extra.
        """
        return check_options(self.options, options, self.name)

    @abstractmethod
    def ticks(self, job: Job) -> float:
        """The amount of work, in the unit that `Job.advance` is called with."""

    def pack(self, job: Job) -> Packed:
        """Pack one session as an archive named like the session.

        Raises:
            ArchiveError, FormatError: the session cannot be packed; names stream and sample.
            StorageError: the disk reported an error.
        """
        return self.pack_all([job], job.session.name, None)

    def pack_all(self, jobs: Sequence[Job], name: str, existing: Path | None) -> Packed:
        """Pack sessions as one archive; only for packers that `collects`.

        An error inside `Job.at` or `Job.fault_scope` marks the session of that job: the finalizer
        then empties the folder and calls this method again without the session.  The files of
        many sessions cannot all be open at once: close each `Job` after packing it.

        Args:
            jobs: one per session, at least one, in the order of the command line; all share
                `Job.folder` and the options.
            name: the archive's name.
            existing: the folder of an older archive of the same name, to which the sessions are
                added.  The new archive also gets the older archive's sessions, except those that
                `jobs` contains (same name and start).  The packer never changes the older
                archive.  The new archive must be complete without it, because it replaces the
                older one.  None: begin a new archive.

        Raises:
            ArchiveError, FormatError: a session cannot be packed, or the older archive cannot be
                extended; names session, stream and sample.
            StorageError: the disk reported an error.
        """
        raise NotImplementedError


def available() -> list[str]:
    """Names of the available archives, sorted."""
    return sorted(ARCHIVES)


def load_packer(name: str) -> Packer:
    """The packer of an archive.

    Raises:
        UsageError: the archive does not exist, or a package that it needs.
    """
    known = available()
    if name not in known:
        near = suggest(name, known)
        raise UsageError(f"no archive {name!r}{near}; known archives: {', '.join(known)}")
    try:
        packer = importlib.import_module(f"recorder.archives.{name}.packer").PACKER
    except ModuleNotFoundError as error:
        if (error.name or "recorder").startswith("recorder"):
            raise
        raise UsageError(f"{name}: {need_extra('archives')}: no {error.name}") from None
    assert isinstance(packer, Packer)
    return packer
