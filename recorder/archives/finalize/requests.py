"""Archive requests and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.archives.base import Packer, load_packer
from recorder.common.errors import RecorderError, UsageError
from recorder.config.names import check_name

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
class Finalized:
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
class PreparedRequest:
    """A request with its loaded packer and its checked options."""

    packer: Packer
    options: Mapping[str, Any]


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
