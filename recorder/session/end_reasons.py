"""Reasons for the end of a session, as texts."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from recorder.common.errors import RecorderError
from recorder.common.files import PosixDisk
from recorder.session.layout import RECORDING, SEALED, read_session_json, write_session_json
from recorder.session.lock import lock_session

ENDS = {
    "duration": "at its duration",
    "sources": "when every source that can end had ended",
    "signal": "by a signal",
    "stop": "by `recorder stop`",
    "clip": "where it was cut",
    "shutdown": "when the daemon ended",
    "split": "continued in the next part",
    "overtime": "after its duration: sources played slower than time",
    "floor": "early: the disk is nearly full",
    "sealed": "early: the disk failed or is full",
    "killed": "early",
}
"""Texts for people, by the reason of a session's end."""


def record_seal(session: Path, reason: str) -> None:
    """Record why a session's disk failed, if the writer could not, and the disk works again.

    Nothing happens where the session has an end already, or the disk still fails.
    """
    with suppress(OSError, RecorderError):
        lock_fd = lock_session(session)
        try:
            values = read_session_json(session)
            if values.get("state") == RECORDING:
                values |= {"state": SEALED, "sealed": reason}
                write_session_json(PosixDisk(), session, values)
        finally:
            os.close(lock_fd)
