"""What an archive is to the finalizer: a package below `recorder.archives` with a ``packer``.

A packer's module has a `Packer` by the name of ``PACKER``::

    class NcorePacker(Packer):
        name = "ncore"
        options = {"store": Option("str", "itar", "...", choices=("itar", "folder"))}

        def ticks(self, job): ...          # how much work there is
        def pack(self, job): ...           # writes into job.folder

    PACKER = NcorePacker()

It writes complete, synced files into `Job.folder` under their final names, and says in which
order they are to be put into place; the finalizer renames them.  One that ``collects`` has
``pack_all`` instead of ``pack``: its archives hold several sessions.  docs/archives.md is the
guide.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import recorder.archives
from recorder.archives import ArchiveError
from recorder.contract.config.options import OptionTable, check_options, suggest
from recorder.contract.errors import RecorderError, StorageError, UsageError
from recorder.processing.calibration import Calibration
from recorder.processing.losses import stream_losses
from recorder.session.layout import RECOVERED
from recorder.session.reader import Session


@dataclass
class Notes:
    """What was odd about a session, each once.

    Attributes:
        lines: sentences, in the order of being found.
    """

    lines: list[str] = field(default_factory=list)

    def say(self, sentence: str, subject: str = "") -> None:
        """Tell of an oddity of a stream (or of anything else that has a name)."""
        line = f"{subject}: {sentence}" if subject else sentence
        if line not in self.lines:
            self.lines.append(line)

    def of(self, subject: str) -> list[str]:
        """What was said of a stream, without its name."""
        start = f"{subject}: "
        return [line.removeprefix(start) for line in self.lines if line.startswith(start)]


@dataclass
class Job:
    """One session, to be packed as, or into, one archive.

    Attributes:
        session: opened with virtual sensors, for reading only.
        folder: where the files go; empty.  Jobs that are packed together share it.
        options: of the packer, checked.
        calibration: of the session, or the one that was given instead; may be empty.
        notes: what is odd goes here.
        advance: is told of work that is done, in the unit of `Packer.ticks`.
        at_fault: whether it was this session that could not be packed; see `blamed`.
    """

    session: Session
    folder: Path
    options: Mapping[str, Any]
    calibration: Calibration
    notes: Notes = field(default_factory=Notes)
    advance: Callable[[float], None] = lambda _: None
    at_fault: bool = False

    def note_absent(self, unreadable: str = "cannot be read, left out") -> None:
        """Note the streams that cannot be read, and those of which no sample was recorded."""
        session = self.session
        for name, fault in session.broken.items():
            self.notes.say(f"{unreadable}: {fault}", name)
        for name in sorted(
            session.declared.keys() - session.streams.keys() - session.broken.keys()
        ):
            self.notes.say("no sample was recorded", name)

    def note_recovery(self) -> None:
        """Note that the session was not closed by its writer."""
        if self.session.state == RECOVERED:
            self.notes.say("recovered: its writer died, or its disk failed", "session")

    def note_losses(self) -> dict[str, Any]:
        """Note what each stream lost; returns it for the archive, by stream."""
        lost: dict[str, Any] = {}
        for found in stream_losses(self.session):
            lost[found.stream] = {
                "counted": dict(found.counted),
                "uncounted_intervals": found.intervals,
            }
            self.notes.say(found.sentence, found.stream)
        return lost

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Errors inside are this session's: a dataset of several is packed without it.

        The disk's errors (`StorageError`) and wrong usage are nobody's.
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
        """Errors inside get the stream and the sample, and are this session's (see `blamed`).

        Raises:
            ArchiveError: instead of any error of a file or format.
            StorageError: the disk's errors stay what they are.
        """
        where = stream if sample is None else f"{stream}, sample {sample}"
        try:
            with self.blamed():
                yield
        except (_PlacedArchiveError, _PlacedStorageError):
            raise  # the inner place is the better one
        except OSError as error:
            place = f"{error.filename}: " if error.filename is not None else ""
            message = f"{where}: {place}{error.strerror or error}"
            raise _PlacedStorageError(message) from error
        except StorageError as error:
            raise _PlacedStorageError(f"{where}: {error}") from error
        except UsageError:
            raise
        except RecorderError as error:
            raise _PlacedArchiveError(f"{where}: {error}") from error


class _PlacedArchiveError(ArchiveError):
    """Says where already."""


class _PlacedStorageError(StorageError):
    """Says where already."""


@dataclass(frozen=True)
class Packed:
    """What a packer has written.

    Attributes:
        files: names in `Job.folder`, of files and folders, in the order in which they are to be
            put into place: what names the others comes last.
        stale: names that an older archive of that name may have and this one has not; removed
            when all is in place.
        summary: what is in it, for the report.
    """

    files: tuple[str, ...]
    stale: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)


class Packer(ABC):
    """Packs sessions as one kind of archive.

    Attributes:
        name: as in ``--to``; the package's name.
        options: that it takes.
        collects: whether one archive can hold several sessions.  Such a packer has `pack_all`,
            any other one `pack`.
    """

    name: ClassVar[str]
    options: ClassVar[OptionTable] = {}
    collects: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        needed = "pack_all" if cls.collects else "pack"
        if getattr(cls, needed) is getattr(Packer, needed):
            raise TypeError(f"{cls.__name__} has no {needed}")

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with their defaults; also that everything needed is installed.

        Raises:
            ConfigError: an option is unknown or wrong.
            UsageError: something is not installed; names the extra.
        """
        return check_options(self.options, options, self.name)

    @abstractmethod
    def ticks(self, job: Job) -> float:
        """How much work there is, in the unit that `Job.advance` is called with."""

    def pack(self, job: Job) -> Packed:
        """Pack one session as an archive of its name.

        Raises:
            ArchiveError, FormatError: something cannot be packed; names stream and sample.
            StorageError: the disk refused.
        """
        return self.pack_all([job], job.session.name, None)

    def pack_all(self, jobs: Sequence[Job], name: str, existing: Path | None) -> Packed:
        """Pack sessions as one archive; only packers that `collects`.

        What fails inside `Job.at` or `Job.blamed` is that session's fault: the finalizer empties
        the folder and calls again without it.  With many sessions not all their files can be open
        at once: close each `Job.session` when it is packed.

        Args:
            jobs: one per session, in the order of the command line, at least one; all have the
                same `Job.folder` and options.
            name: of the archive.
            existing: the folder in which an older archive of that name lies, to be added to: its
                sessions come into the new archive, but for those that `jobs` have, too (same name
                and start).  It is never changed; the new archive is complete without it, since
                the old one goes when the new one comes into its place.  None: begin a new one.

        Raises:
            ArchiveError, FormatError: something cannot be packed, or the older archive cannot be
                added to; names session, stream and sample.
            StorageError: the disk refused.
        """
        raise NotImplementedError


def available() -> list[str]:
    """Names of the archives that there are, found without importing one."""
    (folder,) = recorder.archives.__path__
    return sorted(path.parent.name for path in Path(folder).glob("[!_]*/packer.py"))


def load_packer(name: str) -> Packer:
    """The packer of an archive.

    Raises:
        UsageError: there is no such archive.
    """
    known = available()
    if name not in known:
        there = f"there are {', '.join(known)}" if known else "there are none"
        raise UsageError(f"there is no archive {name!r}{suggest(name, known)}; {there}")
    module = importlib.import_module(f"recorder.archives.{name}.packer")
    packer = module.PACKER
    assert isinstance(packer, Packer)
    return packer
