"""Exceptions of the project.

There is one exception for each way in which a caller reacts. Every message names what is wrong and
where, so that it can be shown to a user unchanged.

========================  ==========================================================  =========
class                     example                                                     exit code
========================  ==========================================================  =========
`UsageError`              ``--speed 0``; a session name that leaves its root           2
`ConfigError`             an unknown key, a wrong type, a file that is not there       2
`SourceError`             a pcap without lidar packets, a video that does not decode   2
`DeviceError`             a serial port that vanished; the supervisor tries again      1
`StreamChangedError`      a camera that changes its resolution in mid-session          3
`ProtocolError`           a bus message with a frame too few                           1
`FormatError`             an AVI without a frame list, an index beyond its file        1
`StorageError`            a full, read-only or failing disk                            1
`SessionError`            a folder that is no session, a session that is being written 1
========================  ==========================================================  =========
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


class RecorderError(Exception):
    """Base of all errors that the project raises on purpose.

    `exit_code` is the exit code of a command that fails with this error.
    """

    exit_code = 1


class UsageError(RecorderError):
    """Error of a command's arguments, which cannot be carried out."""

    exit_code = 2


class ConfigError(UsageError):
    """Error in a configuration file; the message names file, line and key path."""

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        key: str = "",
    ) -> None:
        self.file = None if file is None else str(file)
        self.line = line
        self.key = key
        self.problem = message
        place = "" if self.file is None else self.file + (f":{line}" if line else "") + ": "
        super().__init__(f"{place}{key}: {message}" if key else f"{place}{message}")


class ConfigFaultsError(ConfigError):
    """All faults of a configuration file, one message a line.

    Attributes:
        errors: at least one, in the order of their lines; a fault that several keys take from one
            line by an alias is listed once.
    """

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        places: dict[tuple[int, str], ConfigError] = {}
        for error in errors:
            places.setdefault((error.line or 0, error.problem), error)
        self.errors = tuple(sorted(places.values(), key=lambda error: error.line or 0))
        super().__init__("")
        first = self.errors[0]
        self.file, self.line = first.file, first.line
        self.key, self.problem = first.key, first.problem
        self.args = ("\n".join(map(str, self.errors)),)


class SourceError(RecorderError):
    """Error of a file-like source that cannot be opened, or does not hold what its driver plays."""

    exit_code = 2


class DeviceError(RecorderError):
    """Error of a device that is missing or stopped answering; the supervisor tries again."""


class StreamChangedError(RecorderError):
    """Error of a sensor whose samples no longer have the dtype or shape that it declared."""

    exit_code = 3


class ProtocolError(RecorderError):
    """Error of bytes on the bus, or from a device, that break their protocol."""


class FormatError(RecorderError):
    """Error of a file whose bytes do not follow its format."""


class StorageError(RecorderError):
    """Error of the disk: full, read-only, gone, or failing."""


class SessionError(RecorderError):
    """Error of a session folder that is missing, damaged, in use, or in the way."""


class RedactionError(RecorderError):
    """Error of a redactor: nothing is packed, so that no picture is published unredacted.

    Scenarios: the redactor's process ended, did not answer in time, or broke its protocol; a camera
    has no redactor.
    """


class ArchiveError(FormatError):
    """Error: the data to pack violate the archive's format.

    The message names the component, its instance and the frame.  A rejected frame leaves nothing
    in the archive: the next frame can be packed.
    """


_PROJECT = Path(__file__).resolve().parents[2]
_WHEEL = "vehicle_recorder-VERSION-py3-none-any.whl"


def need_extra(extra: str) -> str:
    """Return ``needs the extra rtsp (COMMAND)``, for the clone that runs, else for the wheel."""
    source = _PROJECT if (_PROJECT / "pyproject.toml").is_file() else Path(_WHEEL)
    return f"needs the extra {extra} ({sys.executable} -m pip install '{source}[{extra}]')"
