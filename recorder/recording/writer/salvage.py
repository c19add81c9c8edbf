"""Storage in ``_recorder/salvage`` of bytes that are cut from a session's files."""

from __future__ import annotations

from pathlib import Path

from recorder.common.files import Disk
from recorder.session import layout
from recorder.session.journal.state import JournalState

_PART_BYTES = 64 << 20  # largest salvage file: one must fit into memory


def keep_tails(disk: Disk, session: Path, journal: JournalState) -> None:
    """Salvage the bytes of all files, and of the journal, after their lengths in the journal."""
    salvage = Salvage(disk, session)
    for name, length in journal.files.items():
        salvage.tail(session / name, length)
    salvage.tail(layout.private(session, layout.JOURNAL), journal.length)


class Salvage:
    """Durable copies of bytes before they are cut; methods raise OSError on a disk error."""

    def __init__(self, disk: Disk, session: Path) -> None:
        self._disk = disk
        self._session = session

    def tail(self, path: Path, length: int) -> None:
        """Salvage the bytes of a file after a length; a repeated call has the same result."""
        if not path.exists() or path.stat().st_size <= length:
            return
        # Files of the session's own folder go directly into salvage.
        folder = self._folder("" if path.parent == self._session else path.parent.name)
        with path.open("rb") as source:
            source.seek(length)
            while part := source.read(_PART_BYTES):
                target, number = folder / f"{path.name}@{length}", 1
                # Never overwrite the file of an earlier recovery, unless it is the same.
                while target.exists() and target.read_bytes() != part:
                    target, number = folder / f"{path.name}@{length}.{number}", number + 1
                if not target.exists():
                    self._disk.write_file(target, part)
                length += len(part)

    def marked_tail(self, path: Path, length: int) -> None:
        """Salvage a tail into a file, even an empty one, which marks the tail as salvaged."""
        marker = self._folder() / f"{path.name}@{length}"
        if path.stat().st_size > length + _PART_BYTES:
            self.tail(path, length)
        elif not marker.exists():
            with path.open("rb") as source:
                source.seek(length)
                self._disk.write_file(marker, source.read())

    def move(self, path: Path, name: str) -> None:
        """Move a whole file or folder into salvage."""
        salvage = self._folder()
        target, number = salvage / name, 1
        while target.exists():
            target, number = salvage / f"{name}.{number}", number + 1
        self._disk.rename(path, target)

    def _folder(self, name: str = "") -> Path:
        salvage = layout.private(self._session, layout.SALVAGE)
        for folder in (salvage, salvage / name):
            if not folder.exists():
                self._disk.make_folder(folder)
        return salvage / name
