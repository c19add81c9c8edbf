"""Finds sessions in a tree of folders, and chooses among them.

::

    for path in sessions_below(root, failed):
        line = brief_if(path, Filter(since_ns=..., marked="pothole"))    # None: not wanted
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recorder.contract.errors import SessionError
from recorder.session.incidents import of_events
from recorder.session.reader import Session, is_session


@dataclass(frozen=True)
class Filter:
    """What sessions are wanted; a session that cannot be read is always wanted.

    Attributes:
        since_ns: sessions that started at this time or later, epoch ns.
        lost: sessions with losses, counted or not.
        marked: sessions with a mark that contains this text, in any case.
    """

    since_ns: int | None = None
    lost: bool = False
    marked: str | None = None

    def is_early(self, start_ns: int | None) -> bool:
        """Whether a session started too early; one without a start did not."""
        return self.since_ns is not None and start_ns is not None and start_ns < self.since_ns

    def has_mark(self, session: Session) -> bool:
        """Whether the session has such a mark; the event log is only read if one is asked for.

        Raises:
            FormatError: the event log cannot be read.
        """
        if self.marked is None:
            return True
        wanted = self.marked.casefold()
        return any(
            wanted in mark["text"].casefold()
            for event in session.events()
            for mark in of_events([event], {})["marks"]
        )


EVERY = Filter()


def sessions_below(root: Path, failed: Callable[[str], None]) -> Iterator[Path]:
    """The sessions in a folder and in its folders, by path.

    Hidden folders and symbolic links are left out, and sessions are not searched.

    Args:
        root: the folder.
        failed: called with a message for each folder that cannot be listed.

    Raises:
        SessionError: the root is not a folder that can be read.
    """
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        if is_session(folder):
            yield folder
            continue
        try:
            with os.scandir(folder) as entries:
                found = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        except OSError as error:
            message = f"{folder}: cannot be listed: {error.strerror}"
            if folder is root:
                raise SessionError(message) from None
            failed(message)
            continue
        names = sorted((name for name in found if not name.startswith(".")), reverse=True)
        waiting += [folder / name for name in names]
