"""Packers that write finished sessions as the archives that training pipelines read."""

from __future__ import annotations

from recorder.contract.errors import FormatError


class ArchiveError(FormatError):
    """Error: the data to pack violate the archive's format.

    The message names the component, its instance and the frame.  A rejected frame leaves nothing
    in the archive: the next frame can be packed.
    """
