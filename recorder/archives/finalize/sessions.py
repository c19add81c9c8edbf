"""Verification, locking and redaction of sessions that are packed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from recorder.archives.base import PreparedRequest, Progress
from recorder.archives.sample_workers import open_part
from recorder.archives.staging import staging
from recorder.codecs.streams import TIME_CHANNELS
from recorder.common.errors import RecorderError, RedactionError, SessionError
from recorder.config.loading import asks_for_redaction
from recorder.config.settings import ALL_CAMERAS, RedactSettings
from recorder.perception.calibration import Calibration, read_calibration, session_calibration
from recorder.perception.redaction.pictures import redact_session as redact_pictures
from recorder.session.discovery import describe_outside_link
from recorder.session.layout import RECORDING, SEALED
from recorder.session.lock import hold_session
from recorder.session.part import WHOLE, Part
from recorder.session.reader import Session
from recorder.session.validation import validate
from recorder.session.validation_report import ERROR

Redact = Sequence[RedactSettings]
AS_CONFIGURED: Redact = ()
"""Pack pictures as recorded; an error if the session's own config asks for redaction."""
ORIGINALS: Redact = (RedactSettings(ALL_CAMERAS, Path()),)
"""Pack pictures as recorded, even if the session's own config asks for redaction."""


@dataclass(frozen=True)
class LockedSession:
    """A session that is verified, and locked while it is packed.

    Attributes:
        path: the session's folder.
        name: the session's name.
        warnings: irregularities that do not prevent packing.
        calibration: the session's calibration, or the given one instead; may be empty.
        part: the part of the session to pack.
        redacted: a folder with the redacted pictures; None: pictures are packed as recorded.
        redaction: by camera, how its pictures were redacted.
    """

    path: Path
    name: str
    warnings: Sequence[str]
    calibration: Calibration
    part: Part
    redacted: Path | None = None
    redaction: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def verify(cls, path: Path, calibration: Path | None = None, part: Part = WHOLE) -> Self:
        """Check that a session, which the caller has locked, can be packed.

        Args:
            path: the session's folder.
            calibration: a calibration file instead of the session's own.
            part: the part of the session to pack.

        Raises:
            ConfigError: the given calibration is wrong.
            SessionError: the session was not closed, or the session or its calibration is damaged;
                the message says what to do.
        """
        with Session(path) as session:
            name, state = session.name, session.state
        if state in (RECORDING, SEALED):
            why = "was sealed when its disk failed" if state == SEALED else "was not closed"
            raise SessionError(f"{path}: {why}; run `recorder recover {path}` first")
        known = session_calibration(path) if calibration is None else read_calibration(calibration)
        return cls(path, name, _find_warnings(path), known, part)

    @property
    def archive_name(self) -> str:
        """The session's name for an archive; SessionError if it leads out of the folder."""
        if self.name in ("", ".", "..") or "/" in self.name or "\0" in self.name:
            raise SessionError(f"{self.path}: no archive can have the name {self.name!r}")
        return self.name

    def open(self) -> Session:
        """Open the session, or the part of it that is packed; SessionError for an empty part."""
        return open_part(self.path, self.part, self.redacted)


@contextlib.contextmanager
def lock_session(path: Path) -> Iterator[None]:
    """Lock the session against recovery and other writers while it is read.

    Raises:
        SessionError: there is no session at the path, or it is being recorded or recovered.
    """
    if not path.is_dir():
        raise SessionError(f"{path}: no such session folder")
    if (elsewhere := describe_outside_link(path)) is not None:
        raise SessionError(f"{elsewhere}; not packed: name that folder instead")
    with hold_session(path) as locked:
        if not locked:
            raise SessionError(f"{path}: is being recorded or recovered; not packed")
        yield


def _find_warnings(path: Path) -> list[str]:
    """Validate a session; return irregularities that do not prevent packing.

    Raises:
        SessionError: the session is damaged.
    """
    report = validate(path, digests=False)
    warnings: dict[tuple[str | None, str | None], list[str]] = {}
    for problem in report.problems:
        if problem.severity != ERROR:
            continue
        virtual = problem.stream is not None and problem.stream.startswith("_")
        if problem.channel not in TIME_CHANNELS and not virtual:
            more = sum(p.severity == ERROR for p in report.problems) - 1
            rest = f" (and {more} more; see `recorder validate`)" if more else ""
            raise SessionError(f"{path}: is damaged, not packed: {problem.message}{rest}")
        warnings.setdefault((problem.stream, problem.channel), []).append(problem.message)
    others = " (and more; see `recorder validate`)"
    return [
        f"{stream}: {messages[0]}{others if len(messages) > 1 else ''}"
        for (stream, _), messages in warnings.items()
    ]


@contextlib.contextmanager
def redact_session(
    session: LockedSession,
    requests: Sequence[PreparedRequest],
    redact: Redact,
    root: Path,
    name: str,
    progress: Progress,
) -> Iterator[LockedSession]:
    """Redact the session's pictures into a folder of `root`, which is removed at the end.

    Raises:
        RedactionError: a picture cannot be redacted, or the session's config asks for redaction and
            `redact` is empty.
    """
    if not any(request.has_pictures for request in requests) or redact == ORIGINALS:
        yield session
        return
    if not redact:
        if asks_for_redaction(session.path / "config.yaml"):
            raise RedactionError(
                f"{session.path}: its config asks for redacted pictures (redact): name the "
                "programs with --redact FILE, or ask for recorded pictures with --originals"
            )
        yield session
        return
    with staging(root, f"{name}.redacted") as folder:
        try:
            with session.open() as opened:
                tick = partial(progress, "redaction")
                about = redact_pictures(opened, redact, folder, tick)
        except RecorderError as error:
            raise type(error)(f"{session.path}: {error}") from error
        yield replace(session, redacted=folder, redaction=about)
