"""Times at which a session's samples became durable, by its journal."""

from __future__ import annotations

from array import array
from bisect import bisect_left

from recorder.common.errors import SessionError
from recorder.session.journal.journal import walk_journal
from recorder.session.layout import JOURNAL, private
from recorder.session.reader import Session


class CommitTimes:
    """The commits of a session: by stream, the stamp of the newest sample that each commit has.

    ::

        times = CommitTimes(session)
        times.of("camera", stamp_ns)           # epoch ns; None where no commit has the sample

    Memory: 16 bytes a commit and stream, 0.3 MB a stream and hour.

    Attributes:
        problem: why the commits are not known; empty if they are.
    """

    def __init__(self, session: Session) -> None:
        self.problem = ""
        self._last_ns: dict[str, array[int]] = {}  # of the newest sample, by commit
        self._commit_ns: dict[str, array[int]] = {}
        header = session.header or {}
        if header.get("start_mono_ns") is None:
            self.problem = "has no journal"
            return
        offset_ns = int(header["start_ns"]) - int(header["start_mono_ns"])
        try:
            self._read(session, offset_ns)
        except SessionError as error:
            self.problem = str(error)

    def _read(self, session: Session, offset_ns: int) -> None:
        for frame, content, _ in walk_journal(private(session.path, JOURNAL)):
            if frame.kind != "commit":
                continue
            commit_ns = content["t_ns"] + offset_ns
            for name, position in content["streams"].items():
                last_ns = position.get("last_ns", -1)
                if last_ns < 0:  # no sample yet
                    continue
                known = self._last_ns.setdefault(name, array("q"))
                if not known or last_ns + offset_ns > known[-1]:
                    known.append(last_ns + offset_ns)
                    self._commit_ns.setdefault(name, array("q")).append(commit_ns)

    def of(self, stream: str, stamp_ns: int) -> int | None:
        """Return when the sample with a stamp became durable, epoch ns; None if that is unknown."""
        known = self._last_ns.get(stream)
        if known is None:
            return None
        at = bisect_left(known, stamp_ns)
        return self._commit_ns[stream][at] if at < len(known) else None
