"""Calibration of a session, for the drawings of its report."""

from __future__ import annotations

from recorder.common.errors import RecorderError
from recorder.perception.calibration import Calibration, read_calibration
from recorder.session.reader import Session


def session_calibration(session: Session) -> Calibration:
    """Return the session's calibration; an empty one if it is missing or cannot be read."""
    path = session.path / "calibration.yaml"
    try:
        return read_calibration(path) if path.is_file() else Calibration()
    except (RecorderError, OSError):
        return Calibration()
