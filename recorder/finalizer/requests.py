"""What is packed: steps, and the archives that come of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.archives.base import Packer, load_packer
from recorder.contract.errors import RecorderError, UsageError
from recorder.contract.session_names import check_name

Progress = Callable[[str, float, float], None]
"""Called with the archive, the work done and all the work, from time to time."""


Refused = Callable[[Path, RecorderError], None]
"""Called with a session that a dataset of several leaves out, and the reason."""


Failed = Callable[[RecorderError], None]
"""Called with an archive that could not be packed, and the reason."""


@dataclass(frozen=True)
class ArchiveRequest:
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
        digests: size and SHA-256 of each file, by path in the archive's folder.
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
    digests: Mapping[str, Any]
    redaction: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """A step whose packer is there and whose options are right."""

    packer: Packer
    options: Mapping[str, Any]


def prepare(steps: Iterable[ArchiveRequest]) -> list[Prepared]:
    """Look at the steps before any work is done.

    Raises:
        UsageError: there is no such archive, something is not installed, an option is wrong.
    """
    prepared = []
    for step in steps:
        packer = load_packer(step.archive)
        prepared.append(Prepared(packer, packer.check(step.options)))
    return prepared


def dataset_name(out: Path) -> str:
    """The name of a dataset in a folder: the folder's own.

    Raises:
        UsageError: it has none that can be one.
    """
    try:
        return check_name(out.resolve().name)
    except UsageError as error:
        raise UsageError(f"{out}: a dataset takes its folder's name, but {error}") from None
