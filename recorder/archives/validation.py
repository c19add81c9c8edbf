"""Checks of packed archives by our own reader and by the format's own software.

::

    for path in find_archives(Path("sessions/rig-1/_archives")):
        report = validate_archive(path)
        report.sound, report.checked, report.unchecked, report.problems

A format's checks are an `ArchiveCheck` in its package's module ``validation``, as ``CHECK``.  The
formats' own software is optional: without it the report says what was not checked.
"""

from __future__ import annotations

import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from recorder.common.errors import RecorderError, UsageError
from recorder.config.settings import ARCHIVES

_DEEPEST = 4  # from a session's _archives to NAME/NAME.arrow of a part


@dataclass
class ArchiveReport:
    """Result of an archive's checks.

    Attributes:
        path: the archive.
        archive: kind of the archive.
        checked: a line per thing that was checked.
        unchecked: a line per thing that was not checked, and why.
        remarks: a line per limitation that is no fault, such as that packing cannot add to it.
        problems: a line per fault.
    """

    path: Path
    archive: str
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True if no fault was found."""
        return not self.problems

    def to_wire(self) -> dict[str, Any]:
        """Return a plain mapping for JSON."""
        return {
            "path": str(self.path),
            "archive": self.archive,
            "sound": self.sound,
            "checked": list(self.checked),
            "unchecked": list(self.unchecked),
            "remarks": list(self.remarks),
            "problems": list(self.problems),
        }


class MissingSoftwareError(Exception):
    """Error: a format's own software is not installed."""


class ArchiveCheck(ABC):
    """The checks of one kind of archive.

    Attributes:
        software: the format's own software.
        left: the checks that only that software makes.
    """

    software: ClassVar[str]
    left: ClassVar[str]

    @abstractmethod
    def find(self, path: Path) -> Path | None:
        """Return the archive that a path belongs to, for `read`; None for another path."""

    @abstractmethod
    def read(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        """Read the archive with our own reader; yield the finished share, 0 to 1.

        Raises:
            RecorderError: the archive is damaged.
        """

    @abstractmethod
    def read_with_software(self, path: Path, report: ArchiveReport) -> Iterator[float]:
        """Read the archive with the format's own software; yield the finished share, 0 to 1.

        Raises:
            MissingSoftwareError: the software is not installed.
            Exception: any error of the software for a damaged archive.
        """


def need(module: str) -> Any:
    """Import a module of a format's own software.

    Raises:
        MissingSoftwareError: a module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed"
        raise MissingSoftwareError(missing) from None


def find_archive(path: Path) -> tuple[str, Path] | None:
    """Return kind and path of the archive at a path; None if the path is not an archive."""
    for name in sorted(ARCHIVES):
        if (found := _check(name).find(path)) is not None:
            return name, found
    return None


def find_archives(path: Path) -> list[Path]:
    """Return the archive at a path, or the archives in a folder and its subfolders."""
    found: dict[Path, None] = {}

    def look(at: Path, depth: int) -> None:
        if (known := find_archive(at)) is not None:
            found[known[1]] = None
        elif at.is_dir() and depth:
            for inner in sorted(at.iterdir()):
                if not inner.name.startswith("."):
                    look(inner, depth - 1)

    look(path, _DEEPEST)
    return list(found)


def validate_archive(
    path: Path, progress: Callable[[str, float], None] = lambda *_: None
) -> ArchiveReport:
    """Check an archive with our own reader, and with its format's own software.

    Damage raises no error: it is in the report.

    Args:
        path: an archive, as `find_archives` returns it.
        progress: called with the software that reads the archive, and the finished share, 0 to 1.

    Raises:
        UsageError: there is no archive.
    """
    found = find_archive(path)
    if found is None:
        raise UsageError(f"{path}: is no archive ({', '.join(ARCHIVES)})")
    name, path = found
    check, report = _check(name), ArchiveReport(path, name)
    try:
        for share in check.read(path, report):
            progress("own reader", share / 2)
    except RecorderError as error:
        report.problems.append(str(error))
    except OSError as error:
        report.problems.append(f"{error.filename or path}: {error.strerror or error}")
    if not report.sound:
        report.unchecked.append(f"{check.left}: it is damaged")
        return report
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the software warns about itself
            for share in check.read_with_software(path, report):
                progress(check.software, 0.5 + share / 2)
    except MissingSoftwareError as error:
        report.unchecked.append(f"{check.left}: {error}")
    except Exception as error:  # noqa: BLE001  (other people's software raises what it likes)
        report.problems.append(f"{path}: {check.software}: {type(error).__name__}: {error}")
    return report


def _check(name: str) -> ArchiveCheck:
    module = importlib.import_module(f"recorder.archives.{name}.validation")
    check = module.CHECK
    assert isinstance(check, ArchiveCheck)
    return check
