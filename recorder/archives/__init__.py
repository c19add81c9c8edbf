"""Packers: finished sessions as the archives that training pipelines read."""

from __future__ import annotations

from recorder.contract.errors import FormatError


class ArchiveError(FormatError):
    """What should be packed is not what the archive's format allows.

    The message names the component, its instance and the frame.  Nothing of a refused frame is
    written: the next one can be packed.
    """
