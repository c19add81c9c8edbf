"""What an archive is to the finalizer: a package below `recorder.archives` with a ``packer``.

A packer's module has a `Packer` by the name of ``PACKER``::

    class NcorePacker(Packer):
        name = "ncore"
        options = {"store": Option("str", "itar", "...", choices=("itar", "folder"))}

        def ticks(self, job): ...          # how much work there is
        def pack(self, job): ...           # writes into job.folder

    PACKER = NcorePacker()

It writes complete, synced files into `Job.folder` under their final names, and says in which
order they are to be put into place; the finalizer renames them.  docs/archives.md is the guide.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import recorder.archives
from recorder.archives import ArchiveError
from recorder.contract.errors import RecorderError, StorageError, UsageError
from recorder.contract.options import OptionTable, check_options, suggest
from recorder.processing.calibration import Calibration
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
    """One archive of one session, to be packed.

    Attributes:
        session: opened with virtual sensors, for reading only.
        folder: where the files go; empty.
        options: of the packer, checked.
        calibration: of the session, or the one that was given instead; may be empty.
        notes: what is odd goes here.
        advance: is told of work that is done, in the unit of `Packer.ticks`.
    """

    session: Session
    folder: Path
    options: Mapping[str, Any]
    calibration: Calibration
    notes: Notes = field(default_factory=Notes)
    advance: Callable[[float], None] = lambda _: None

    @contextmanager
    def at(self, stream: str, sample: int | None = None) -> Iterator[None]:
        """Errors inside get the stream and the sample.

        Raises:
            ArchiveError: instead of any error of a file or format.
            StorageError: the disk's errors stay what they are.
        """
        where = stream if sample is None else f"{stream}, sample {sample}"
        try:
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
        stale: names that an older archive of the session may have and this one has not; removed
            when all is in place.
        summary: what is in it, for the report.
    """

    files: tuple[str, ...]
    stale: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)


class Packer(ABC):
    """Packs sessions as one kind of archive."""

    name: ClassVar[str]
    options: ClassVar[OptionTable] = {}

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

    @abstractmethod
    def pack(self, job: Job) -> Packed:
        """Pack the session.

        Raises:
            ArchiveError, FormatError: something cannot be packed; names stream and sample.
            StorageError: the disk refused.
        """


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
