"""An archive that is viewed: a temporary session, which ``recorder import`` makes meanwhile.

The drivers of recordings read in order and cannot seek, and a player seeks.  So the archive is
imported, by a process of its own, below the temporary folder; the player plays the session as it
grows.  The session is deleted when the view ends.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from recorder.cli.import_command import derive_name
from recorder.cli.import_kinds import KINDS
from recorder.cli.output import end_on_sigterm, note
from recorder.common.errors import RecorderError, SessionError, SourceError, StorageError
from recorder.common.module_launcher import module_command
from recorder.common.process_setup import die_with_parent
from recorder.session.discovery import is_session

_BAGS: Final = (".mcap", ".db3", ".zstd")
_COMPLAINT: Final = "recorder import: "
_LOOK_S: Final = 0.1
_LOSSES: Final = 3
"""Exit code of an import that lost samples."""


def is_archive(path: Path) -> bool:
    """Return whether a path is an archive or a recording of others, and no session."""
    if path.is_file():
        return True
    if not path.is_dir() or is_session(path):
        return False
    if any(kind.fits(path) for kind in KINDS):
        return True
    return any(entry.suffix in _BAGS for entry in path.iterdir())


@contextmanager
def import_while_viewed(path: Path) -> Iterator[Path]:
    """Import an archive into a temporary session; yield the session when it has samples.

    Raises:
        SourceError: the archive cannot be imported; the text is that of ``recorder import``.
        StorageError: the disk of the temporary folder is full.
    """
    with end_on_sigterm(), tempfile.TemporaryDirectory(prefix="recorder-view-") as folder:
        name, root = derive_name(path), Path(folder)
        note(f"recorder view: {path} is imported below {folder} and deleted at the end")
        command = module_command("recorder", "import", str(path.absolute()))
        command += ["--root", folder, "--name", name]
        with (root / "errors").open("w") as errors:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the view, which then ends the import
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        try:
            while not _has_samples(root / name):
                if process.poll() not in (None, 0, _LOSSES):
                    raise _read_error(root / "errors", process.returncode)
                if process.returncode is not None and not _has_samples(root / name):
                    raise SourceError(f"{path}: has no sample to view")
                _wait(process)
            yield root / name
            if process.poll() not in (None, 0, _LOSSES):
                note(f"recorder view: {_read_error(root / 'errors', process.returncode)}")
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return


def _has_samples(session: Path) -> bool:
    from recorder.viewers.live.played_session import PlayedSession

    try:
        PlayedSession(session).close()
    except SessionError:
        return False
    return True


def _read_error(errors: Path, code: int) -> RecorderError:
    """Return the error of an import: its last line that is a complaint."""
    lines = errors.read_text(errors="replace").splitlines()
    told = [line.removeprefix(_COMPLAINT) for line in lines if line.startswith(_COMPLAINT)]
    kind = SourceError if code == SourceError.exit_code else StorageError
    return kind(told[-1] if told else f"the import ended with {code}")
