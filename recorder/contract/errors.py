"""The exceptions of the project.

There are few of them, one for each way in which a caller reacts.  Every message names what is
wrong and where, so that it can be shown to a user as it is.

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

from collections.abc import Sequence
from pathlib import Path


class RecorderError(Exception):
    """Base of all errors that the project raises on purpose.

    `exit_code` is what a command ends with when the error reaches its user.
    """

    exit_code = 1


class UsageError(RecorderError):
    """A command was called with arguments that cannot be carried out."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file is wrong; the message names file, line and key path."""

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
    """All that is wrong with a configuration file, one message a line.

    Attributes:
        errors: at least one, in the order of their lines; what several keys take from one line
            by an alias is there once.
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
    """A file-like source cannot be opened or does not hold what its driver plays."""

    exit_code = 2


class DeviceError(RecorderError):
    """A device is missing or stopped answering.  The supervisor tries again."""


class StreamChangedError(RecorderError):
    """A sensor's samples no longer have the dtype or shape that it declared."""

    exit_code = 3


class ProtocolError(RecorderError):
    """Bytes on the bus, or from a device, break the protocol that they should follow."""


class FormatError(RecorderError):
    """A file's bytes are not what its format demands."""


class StorageError(RecorderError):
    """The disk refused: full, read-only, gone, or failing."""


class SessionError(RecorderError):
    """A session folder is missing, damaged, in use, or in the way."""


class RedactionError(RecorderError):
    """A redactor failed: nothing is packed, since a picture would be published unredacted.

    Scenarios: its process ended, did not answer in time, or gave an answer that is not one of its
    protocol; a camera has no redactor.
    """
