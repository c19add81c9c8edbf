"""The desired state of recording, on disk: what a daemon reads after a crash or a reboot."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from recorder.contract.control.requests import check_metadata
from recorder.contract.errors import RecorderError, StorageError
from recorder.contract.session_names import check_name
from recorder.contract.wire_struct import decode_values
from recorder.daemon.recording.state_machine import DesiredState
from recorder.formats.disk import PosixDisk, make_folders
from recorder.session.lock import boot_id

FILE = "wish.json"
VERSION = 1


def state_folder(root: Path) -> Path:
    """Where the daemon keeps what outlives it: ``$STATE_DIRECTORY``, else below the root."""
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else root / ".recorder"


class DesiredStateFile:
    """Stores a `DesiredState` durably, with the boot of the machine in which it was written.

    Args:
        folder: where; made if it is missing.
        boot: names this boot; the kernel's name for it unless given.
        problem: why the folder must not be written to now; None if it may.
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
        """The desired state, and whether it was kept since this machine was started.

        A file that cannot be parsed counts as absent: it is renamed.
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
        """Replace it, durable on return.

        Raises:
            StorageError: the disk refuses, or is not there.
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
