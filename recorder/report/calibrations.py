"""A session's calibration, for drawings and in words."""

from __future__ import annotations

from recorder.contract.errors import RecorderError
from recorder.processing.calibration import Calibration, read_calibration
from recorder.session.reader import Session


def session_calibration(session: Session) -> Calibration:
    """The session's calibration; empty where it has none, or one that cannot be read."""
    path = session.path / "calibration.yaml"
    try:
        return read_calibration(path) if path.is_file() else Calibration()
    except (RecorderError, OSError):
        return Calibration()
