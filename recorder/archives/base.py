"""The interface between an archive and the finalizer.

An archive is a package below `recorder.archives` with a module ``packer``, and has the package's
name.  The config's `ARCHIVES` lists the names.  The module has a `Packer` object named ``PACKER``::

    class NcorePacker(Packer):
        options = {"store": Option("str", "itar", "...", choices=("itar", "folder"))}

        def ticks(self, context): ...          # the amount of work
        def pack(self, context): ...           # writes into context.folder

    PACKER = NcorePacker()

A packer writes complete, synced files into `PackingContext.folder` under their final names, and
returns the order in which the finalizer renames them into place.  A packer that ``collects`` has
``pack_all`` instead of ``pack``: its archives hold several sessions.  The guide is
docs/archives.md.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from recorder.archives.context import PackingContext
from recorder.common.errors import RecorderError, UsageError, need_extra
from recorder.config.names import check_name
from recorder.config.options import OptionTable, check_options, suggest
from recorder.config.settings import ARCHIVES


@dataclass(frozen=True)
class PackedFiles:
    """The files that a packer has written.

    Attributes:
        files: names of files and folders in `PackingContext.folder`, in the order in which they
            are renamed into place: a file that names other files comes last.
        stale: names that an older archive of the same name may have and this one does not.  The
            finalizer removes them after all files are in place.
        summary: the archive's contents, for the report.
        kept: names of files of the older archive that stay in place, unchanged, as parts of this
            one.
    """

    files: tuple[str, ...]
    stale: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    kept: tuple[str, ...] = ()


ONLY = "only"
"""Option of packers that can pack a part of an archive again, beside files that are kept."""


class Packer(ABC):
    """Base class of the packers: packs sessions as one kind of archive.

    Attributes:
        name: the value of ``--to``; the package's name unless set.
        options: the options that the packer accepts.
        collects: whether one archive can hold several sessions.  Such a packer implements
            `pack_all`, every other packer implements `pack`.
        worker_modules: modules that the packer's encoders need; workers import them early.
        has_pictures: whether its archives contain pictures of cameras, which may be redacted.
        has_all_labels: whether its archives have a place for labels per pixel, point clouds and
            several calibrations; else the finalizer notes those that a session has.
    """

    name: ClassVar[str]
    options: ClassVar[OptionTable] = {}
    collects: ClassVar[bool] = False
    worker_modules: ClassVar[tuple[str, ...]] = ()
    has_pictures: ClassVar[bool] = True
    has_all_labels: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "name"):
            cls.name = cls.__module__.split(".")[-2]
        needed = "pack_all" if cls.collects else "pack"
        if getattr(cls, needed) is getattr(Packer, needed):
            raise TypeError(f"{cls.__name__} has no {needed}")

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check the options and the installed packages; return the options with defaults.

        Raises:
            ConfigError: an option is unknown or wrong.
            UsageError: a package is not installed; the message names the extra.
        """
        return check_options(self.options, options, self.name)

    @abstractmethod
    def ticks(self, context: PackingContext) -> float:
        """Return the amount of work, in the unit that `PackingContext.advance` is called with."""

    def pack(self, context: PackingContext) -> PackedFiles:
        """Pack one session as an archive named like the session.

        Raises:
            ArchiveError, FormatError: the session cannot be packed; names stream and sample.
            StorageError: the disk reported an error.
        """
        return self.pack_all([context], context.session.name, None)

    def pack_all(
        self, contexts: Sequence[PackingContext], name: str, existing: Path | None
    ) -> PackedFiles:
        """Pack sessions as one archive; only for packers that `collects`.

        An error inside `PackingContext.locate_errors` or `PackingContext.fault_scope`
        marks the session: the finalizer then empties the folder and calls this method again without
        the session.  The files of many sessions cannot all be open at once: close each one after
        packing it.

        Args:
            contexts: one per session, at least one, in the order of the command line; all share
                `PackingContext.folder` and the options.
            name: the archive's name.
            existing: the folder of an older archive of the same name, to which the sessions are
                added.  The new archive also gets the older archive's sessions, except those that
                `contexts` contains (same name and start).  The packer never changes the older
                archive.  The new archive must be complete without it, because it replaces the
                older one.  None: begin a new archive.

        Raises:
            ArchiveError, FormatError: a session cannot be packed, or the older archive cannot be
                extended; names session, stream and sample.
            StorageError: the disk reported an error.
        """
        raise NotImplementedError


def available() -> list[str]:
    """Return the names of the available archives, sorted."""
    return sorted(ARCHIVES)


def load_packer(name: str) -> Packer:
    """Return the packer of an archive.

    Raises:
        UsageError: the archive does not exist, or a package that it needs is not installed.
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


Progress = Callable[[str, float, float], None]
"""Function that is called from time to time with the archive, the work done and the total work."""


Refused = Callable[[Path, RecorderError], None]
"""Function that is called with a session that a dataset leaves out, and the reason."""


Failed = Callable[[RecorderError], None]
"""Function that is called with the error of an archive that could not be packed."""


@dataclass(frozen=True)
class ArchiveRequest:
    """One archive to pack: its name and its options as given."""

    archive: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PackedArchive:
    """An archive that is in place.

    Attributes:
        session: the session's folder; None if several sessions were packed.
        sessions: the folders of all sessions that were packed now.
        archive: name of the archive.
        files: the files and folders that were put into place.
        bytes: total size of the files.
        seconds: duration of packing.
        summary: the archive's contents.
        notes: irregularities, each once; with several sessions, each after its session's name.
        digests: size and SHA-256 of each file, by path in the archive's folder.
        redaction: by session and camera how pictures were redacted; empty if none were.
        kept: names of files of the older archive that are parts of this one.
    """

    session: Path | None
    sessions: tuple[Path, ...]
    archive: str
    files: tuple[Path, ...]
    bytes: int
    seconds: float
    summary: Mapping[str, Any]
    notes: tuple[str, ...]
    digests: Mapping[str, Any]
    redaction: Mapping[str, Any] = field(default_factory=dict)
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedRequest:
    """A request with its loaded packer and its checked options."""

    packer: Packer
    options: Mapping[str, Any]

    @property
    def has_pictures(self) -> bool:
        """Whether the archive gets pictures, which may be redacted."""
        return self.packer.has_pictures and not self.keeps

    @property
    def keeps(self) -> bool:
        """Whether the archive keeps files of the older archive (the option ``only``)."""
        return bool(self.options.get(ONLY))


def prepare(requests: Iterable[ArchiveRequest]) -> list[PreparedRequest]:
    """Load the packers and check the options, before any work is done.

    Raises:
        UsageError: an archive does not exist, a package is not installed, or an option is wrong.
    """
    prepared = []
    for request in requests:
        packer = load_packer(request.archive)
        prepared.append(PreparedRequest(packer, packer.check(request.options)))
    return prepared


def dataset_name(out: Path) -> str:
    """Return the name of a dataset in a folder: the folder's name.

    Raises:
        UsageError: the folder's name cannot be the name of a dataset.
    """
    try:
        return check_name(out.resolve().name)
    except UsageError as error:
        raise UsageError(f"{out}: a dataset takes its folder's name, but {error}") from None
