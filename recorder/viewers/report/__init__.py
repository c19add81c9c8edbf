"""HTML report of a session: its verdict, its timeline, and an overview of every sensor.

::

    write_report(Path("sessions/rig-1"))         # sessions/rig-1/report.html

The file is complete in itself: it opens from a USB stick, needs no network and no JavaScript, and
is small (under 3 MB), because data are sampled sparsely.  A session in any state has a report,
which lists read errors.  `recorder.viewers.report.session_scan` judges a session without a report.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Progress = Callable[[str, float], None]
"""Callback that receives the current step and the completed share of the work."""


def write_report(
    session: Path, out: Path | None = None, progress: Progress = lambda *_: None
) -> Path:
    """Write the report of a session.

    Args:
        session: the session's folder.
        out: the file; None: ``report.html`` in the session's folder.
        progress: see `Progress`.

    Returns:
        The file, which replaces an older one when it is complete.

    Raises:
        SessionError: there is no such folder, or the folder is not a session.
        StorageError: the file cannot be written.
    """
    from recorder.viewers.report.assembly import (
        make_report,  # numpy and OpenCV take a while to import
    )

    return make_report(session, out, progress)
