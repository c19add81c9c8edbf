"""Sessions that are packed: verified, locked, and with their pictures redacted where asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from recorder.archives.staging import staging
from recorder.contract.config.redact import asks_for_redaction
from recorder.contract.config.settings import ALL_CAMERAS, RedactSettings
from recorder.contract.errors import ConfigError, RecorderError, RedactionError, SessionError
from recorder.contract.streams import TIME_CHANNELS
from recorder.finalizer.steps import Prepared, Progress
from recorder.processing.calibration import Calibration, read_calibration
from recorder.processing.redaction.pictures import redact_session
from recorder.processing.sample_workers import open_part
from recorder.session.layout import RECORDING, SEALED
from recorder.session.lock import reading
from recorder.session.part import Part
from recorder.session.reader import Session
from recorder.session.search import outside
from recorder.session.validation import validate
from recorder.session.validation_report import ERROR

Redact = Sequence[RedactSettings]
AS_CONFIGURED: Redact = ()
"""Pictures as recorded, unless the session's own config asks for redacted ones: then an error."""
ORIGINALS: Redact = (RedactSettings(ALL_CAMERAS, Path()),)
"""Pictures as recorded, whatever the session's own config asks for."""


@dataclass(frozen=True)
class Held:
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


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
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


def calibration_of(path: Path, given: Path | None) -> Calibration:
    """The calibration in a given file, or else the session's own, which may be empty.

    Raises:
        ConfigError: the given file is wrong; SessionError: the session's own is.
    """
    if given is not None:
        return read_calibration(given)
    own = path / "calibration.yaml"
    try:
        return read_calibration(own) if own.is_file() else Calibration()
    except ConfigError as error:  # the session's fault, not that of who calls
        raise SessionError(str(error)) from None


def archive_name(path: Path) -> str:
    """The name of a session, which its archives take; it must not lead out of their folder."""
    with Session(path) as session:
        name = session.name
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise SessionError(f"{path}: no archive can have the name {name!r}")
    return name


@contextlib.contextmanager
def redacted_session(
    held: Held,
    steps: Sequence[Prepared],
    redact: Redact,
    root: Path,
    name: str,
    progress: Progress,
) -> Iterator[Held]:
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
