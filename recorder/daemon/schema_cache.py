"""Schemas of drivers, kept from one start of the recorder to the next.

Asking a driver starts a process that imports the driver: a quarter of a second each.  A driver's
answer names the files of all modules that were loaded for it, with size and time of change
(`recorder.contract.config.driver_schema.loaded_files`).  The schema is taken from the cache while
every file is as it was, and Python, its search path and the working directory are the same.

The files lie in ``$CACHE_DIRECTORY`` (systemd.exec(5)), else in ``$XDG_CACHE_HOME/recorder``, else
in ``~/.cache/recorder``.  Deleting them is always safe.  A file that is damaged or belongs to
another user is ignored, and so is a folder that cannot be written to.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recorder.contract.config.driver_schema import DriverSchema
from recorder.contract.errors import ProtocolError

_VERSION = 1
_MOST_BYTES = 4 << 20


def cache_folder() -> Path | None:
    """The folder of the recorder's cache for this user; None if there is no place for it."""
    if place := os.environ.get("CACHE_DIRECTORY", "").split(":")[0]:
        return Path(place)
    if Path(place := os.environ.get("XDG_CACHE_HOME", "")).is_absolute():
        return Path(place, "recorder")
    try:
        return Path.home() / ".cache" / "recorder"
    except RuntimeError:  # a user without a home
        return None


class SchemaCache:
    """What is known of one driver.

    Args:
        driver: the driver's name, as in the config.
    """

    def __init__(self, driver: str) -> None:
        folder = cache_folder()
        self._path = None if folder is None else folder / f"driver-{driver}.json"
        self._driver = driver

    def read(self) -> DriverSchema | None:
        """The driver's schema; None if it is not known, or not known to be right."""
        if self._path is None:
            return None
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                entry = json.loads(file.read(_MOST_BYTES))
            if entry["made_by"] != self._made_by() or not all(map(_is_unchanged, entry["files"])):
                return None
            return DriverSchema.from_wire(entry["schema"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, ProtocolError):
            return None

    def write(self, schema: DriverSchema, answer: Mapping[str, Any]) -> None:
        """Keep a driver's answer, if it names the files that it depends on."""
        files = answer.get("files")
        if self._path is None or not files or not all(map(_is_unchanged, files)):
            return
        entry = {"made_by": self._made_by(), "files": files, "schema": schema.to_wire()}
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            fd, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            try:
                with os.fdopen(fd, "w") as file:
                    json.dump(entry, file)
                Path(name).rename(self._path)
            except OSError:
                Path(name).unlink()
                raise

    def _made_by(self) -> list[Any]:
        # A module with dots in its name may lie in the working directory.
        place = str(Path.cwd()) if "." in self._driver else ""
        return [_VERSION, sys.version, sys.executable, os.environ.get("PYTHONPATH", ""), place]


def _is_unchanged(file: Any) -> bool:
    path, size, changed_ns = file
    try:
        found = os.stat(str(path))  # noqa: PTH116  hundreds of them, at every start
    except OSError:
        return False
    return bool(found.st_size == size and found.st_mtime_ns == changed_ns)
