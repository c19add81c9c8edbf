"""A session as one HTML file: its verdict, its timeline, and a look at every sensor.

::

    write_report(Path("sessions/rig-1"))         # sessions/rig-1/report.html

The file is complete in itself: it opens from a USB stick, needs no network and no JavaScript, and
is small (under 3 MB), because data are sampled sparsely.  Sessions of every state have a report;
what cannot be read is in it as such.  `recorder.report.verdict` judges a session without a report.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Progress = Callable[[str, float], None]
"""Called with what is under way and the share of the work that is done."""


def write_report(
    session: Path, out: Path | None = None, progress: Progress = lambda *_: None
) -> Path:
    """Write the report of a session.

    Args:
        session: its folder.
        out: the file; None: ``report.html`` in the session's folder.
        progress: see `Progress`.

    Returns:
        the file, which replaces an older one when it is complete.

    Raises:
        SessionError: there is no such folder, or it is no session of any kind.
        StorageError: the file cannot be written.
    """
    from recorder.report.assembly import make_report  # numpy and OpenCV take a while to import

    return make_report(session, out, progress)
