"""File of the desired recording state, which a daemon reads after a crash or a reboot."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from recorder.bus.control.requests import check_metadata
from recorder.common.errors import RecorderError, StorageError
from recorder.common.files import PosixDisk, make_folders
from recorder.common.struct_codec import decode_values
from recorder.config.names import check_name
from recorder.recording.sessions.state_machine import DesiredState
from recorder.session.lock import boot_id

FILE = "wish.json"
VERSION = 1


def state_folder(root: Path) -> Path:
    """Return the folder of the daemon's persistent state: ``$STATE_DIRECTORY``, or in the root."""
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else root / ".recorder"


class DesiredStateFile:
    """Durable file of a `DesiredState` and of the boot in which it was written.

    Args:
        folder: the file's folder; created if it is missing.
        boot: id of this boot; the kernel's id if it is None.
        problem: returns why the folder must not be written to now; None if it may be.
    """

    def __init__(
        self,
        folder: Path,
        boot: str | None = None,
        problem: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.path = folder / FILE
        self._problem = problem
        self._boot = boot if boot is not None else boot_id()

    def read(self) -> tuple[DesiredState, bool]:
        """Return the desired state, and whether it was written in this boot.

        A file that cannot be parsed counts as absent and is renamed.
        """
        try:
            values = json.loads(self.path.read_bytes())
            return _desired_state(values), values["boot_id"] == self._boot
        except FileNotFoundError:
            return DesiredState(), False
        except (OSError, ValueError, KeyError, TypeError, RecursionError, RecorderError):
            with contextlib.suppress(OSError):
                self.path.rename(self.path.with_suffix(".damaged"))
            return DesiredState(), False

    def write(self, desired: DesiredState) -> None:
        """Replace the file; it is durable on return.

        Raises:
            StorageError: the disk fails or is missing.
        """
        if (problem := self._problem()) is not None:
            raise StorageError(f"{self.path}: cannot be written: {problem}")
        values = {"version": VERSION, "boot_id": self._boot, **asdict(desired)}
        try:
            make_folders(self.path.parent)
            PosixDisk().write_file(self.path, json.dumps(values, indent=1).encode())
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written: {error.strerror}") from None


def _desired_state(values: Mapping[str, Any]) -> DesiredState:
    if values["version"] != VERSION:
        raise ValueError("of another version")
    found = {each.name: values[each.name] for each in fields(DesiredState)}
    desired = decode_values(found, DesiredState, FILE)
    if desired.part < 0:
        raise ValueError("a negative part")
    if desired.name is not None:
        check_name(desired.name)
    check_metadata(desired.metadata)
    return desired
