"""Log levels, and the daemon's log: lines on stderr, and a copy in the session.

::

    log = Log(sys.stderr, form="json", clock=SystemClock())
    log.say("imu: driver ended; starting another", level="warning")
    log.follow(Path("sessions/a"))     # from now on also in sessions/a/_recorder/recorder.log

Under journald a line begins with its priority (sd-daemon(3)), so that ``journalctl -p warning``
shows faults, losses and absent sensors.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from recorder.common.clock import Clock
from recorder.common.files import Closeable
from recorder.common.secret_masking import mask_passwords
from recorder.session.layout import private

ERROR, WARNING, INFO = "error", "warning", "info"
"""Log levels: for faults; for losses and absent sensors; for everything else."""


class LogLine(Protocol):
    """Function that logs one line for users from any thread, as `Log.say` of the daemon's logs."""

    def __call__(self, text: str, /, level: str = INFO, **fields: Any) -> None:
        """Log a line with its level and further values for programs."""


class ReportEvent(Protocol):
    """Function that logs a current event, shows it, and puts it into the open session."""

    def __call__(
        self, level: str, kind: str, stream: str = "", cause: str = "", **more: Any
    ) -> None:
        """Report an event; `more` as in `recorder.session.events.make_event`."""


NAME: Final = "recorder.log"
_PRIORITIES: Final = {ERROR: 3, WARNING: 4, INFO: 6}
_MOST_BYTES = 2_000_000
_KEPT = 3  # rotated files: recorder.log.1 is the latest of them


def under_journald(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a stream goes to journald: ``JOURNAL_STREAM`` names its device and inode."""
    try:
        there = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"


class Log(Closeable):
    """Log on a stream and in the session's folder; all methods are safe in any thread.

    Args:
        stream: output for users, or for a reader of JSON lines.
        form: ``text`` or ``json``.
        clock: source of the lines' times.
        journald: whether lines begin with their priority.
        most_bytes: size of a session's file at which it is rotated.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        form: str,
        clock: Clock,
        journald: bool = False,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._stream = stream
        self._form = form
        self._clock = clock
        self._journald = journald
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._session: Path | None = None
        self._file: Any = None

    def say(self, message: str, /, level: str = INFO, **fields: Any) -> None:
        """Log a message.

        Args:
            message: text for users; passwords in addresses are masked.
            level: ``error``, ``warning`` or ``info``.
            fields: further values for programs that read JSON lines.
        """
        message = mask_passwords(message)
        t_ns = self._clock.realtime_ns()
        entry = {"t": _utc(t_ns), "level": level, "message": message, **fields}
        if self._session is not None:
            entry["session"] = self._session.name
        line = json.dumps(entry, default=str)
        with self._lock:
            with contextlib.suppress(OSError, ValueError):  # the reader is gone
                self._stream.write(self._shown(line, message, level) + "\n")
                self._stream.flush()
            self._write(line)

    def follow(self, session: Path | None) -> None:
        """Log into a session's folder from now on; None: into no folder."""
        with self._lock:
            if session == self._session:
                return
            self._close_file()
            self._session = session

    def close(self) -> None:
        """Close the session's file."""
        self.follow(None)

    def _shown(self, line: str, message: str, level: str) -> str:
        if self._form == "json":
            shown = line
        else:
            shown = " ".join(message.splitlines()) if self._journald else message
        return f"<{_PRIORITIES[level]}>{shown}" if self._journald else shown

    def _write(self, line: str) -> None:
        """Append a line to the session's file; ignore errors, since recording must continue."""
        if self._session is None:
            return
        path = private(self._session, NAME)
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._file = os.fdopen(os.open(path, flags, 0o640), "a")
            self._file.write(line + "\n")
            self._file.flush()
            if self._file.tell() >= self._most_bytes:
                self._close_file()
                for number in range(_KEPT - 1, 0, -1):
                    older = path.with_name(f"{NAME}.{number}")
                    if older.exists():
                        older.rename(path.with_name(f"{NAME}.{number + 1}"))
                path.rename(path.with_name(f"{NAME}.1"))
        except (OSError, ValueError):
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _utc(t_ns: int) -> str:
    seconds, rest = divmod(t_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"
