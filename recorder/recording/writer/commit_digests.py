"""Digests of a session's files, for its commits and for the proof of its tail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recorder.common.clock import Clock
from recorder.common.errors import SessionError
from recorder.common.files import AppendFile, Disk
from recorder.recording.writer.tail_digests import TailDigests
from recorder.session import layout
from recorder.session.journal.digests import (
    Digested,
    DigestedFile,
    DigestingDisk,
    Leaf,
    digest_file,
)
from recorder.session.journal.journal import find_leaf_start
from recorder.session.journal.state import NO_LEAF, JournalState, digest_jointly

LEAF_NS = 1_000_000_000
"""Interval of digests of each file, ns; a flipped bit is located to this precision."""


class CommitDigests:
    """Digests of one session; its caller holds the session's lock.

    Args:
        disk: disk that writes the files.
        session: the session's folder.
        clock: clock that determines when leaves are due.
        tails: names of the scratch files for digests of the tail.

    Attributes:
        disk: the same disk; its files digest the appended bytes.
        earlier: the journal of an earlier writer; None for a new session.
    """

    def __init__(
        self, disk: Disk, session: Path, clock: Clock, tails: Sequence[str] = layout.TAILS
    ) -> None:
        self._tail_digests = TailDigests(disk, session, tails)
        self.disk = DigestingDisk(disk, self._tail_digests.write, self._known)
        self.earlier: JournalState | None = None
        self._session = session
        self._clock = clock
        self._names: dict[Path, str] = {}
        self._leaves_ns = clock.monotonic_ns()  # time of the last committed leaves

    def resume(self, earlier: JournalState, resumes: int) -> None:
        """Prepare the reopening of a session, before any of its files is opened."""
        self.earlier, self._tail_digests.resumes = earlier, resumes

    def move(self, session: Path, files: Iterable[AppendFile]) -> None:
        """Set the session's new path: a rename keeps descriptors valid, but not paths."""
        for file in files:
            file.path = session / file.path.relative_to(self._session)
        self._session = self._tail_digests.session = session

    def name(self, file: AppendFile) -> str:
        """Return a file's name in the journal."""
        name = self._names.get(file.path)
        if name is None:
            name = self._names[file.path] = file.path.relative_to(self._session).as_posix()
        return name

    def announce(self, files: Iterable[AppendFile]) -> None:
        """Begin a commit: write the digests of all bytes that it will pass to the kernel."""
        self._tail_digests.turn()
        digested = [file for file in files if isinstance(file, DigestedFile)]
        self._tail_digests.write([entry for file in digested for entry in file.announcements()])

    def digest_commit(self, files: Mapping[str, AppendFile], final: bool) -> dict[str, Any]:
        """Return the digests of the bytes that a commit makes durable, for its record.

        Args:
            files: all files by name, flushed.
            final: whether this is the last commit.
        """
        digested, now_ns = _digested(files), self._clock.monotonic_ns()
        ranges = {name: taken for name, f in digested.items() if (taken := f.take_ranges())}
        evidence: dict[str, Any] = {"patchable": ranges}
        if not final and now_ns - self._leaves_ns < LEAF_NS:
            growing = {n: f.running() for n, f in digested.items() if f.length > f.start}
            return evidence | {"digest": digest_jointly(growing)}
        self._leaves_ns = now_ns
        if final:
            evidence["patched"] = {
                name: file.digest_patched()
                for name, file in digested.items()
                if file.patchable_ranges
            }
        self.seal(files)
        leaves = [(name, leaf) for name, file in digested.items() for leaf in file.take_leaves()]
        return evidence | {"leaves": leaves}

    def seal(self, files: Mapping[str, AppendFile]) -> None:
        """End the open leaves."""
        for file in _digested(files).values():
            file.seal()

    def describe_reopening(
        self, files: Mapping[str, AppendFile], lengths: Mapping[str, int]
    ) -> dict[str, Any]:
        """Return the content of the record with which a writer resumes.

        Args:
            files: all files by name.
            lengths: the files' earlier lengths, by name.
        """
        assert self.earlier is not None
        starts = {name: file.start for name, file in _digested(files).items()}
        leaves = self.earlier.leaves
        return {
            "cut": {n: at for n, at in starts.items() if at != leaves.get(n, NO_LEAF).end},
            # The bytes that finishing had appended are cut; readers must not expect them.
            "lengths": {n: f.length for n, f in files.items() if f.length < lengths.get(n, 0)},
            "resumes": self._tail_digests.resumes,
            "gaps": [(gap.start, gap.end) for gap in self.earlier.damage],
        }

    def close(self) -> None:
        self._tail_digests.close()

    def _known(self, path: Path, length: int) -> Digested:
        if self.earlier is None:
            return Digested()
        name = path.relative_to(self._session).as_posix()
        try:
            return self.earlier.known(name, length)
        except LookupError:
            start = find_leaf_start(layout.private(self._session, layout.JOURNAL), name, length)
            return Digested(start, self.earlier.patchable.get(name, []))


def check_committed(session: Path, journal: JournalState) -> None:
    """Check the bytes that were committed after the latest leaves; change nothing.

    Raises:
        SessionError: a file is missing, is shorter than committed, or contains other bytes.
    """
    growing: dict[str, Leaf] = {}
    for name, length in journal.files.items():
        path, leaf = session / name, journal.leaves.get(name, NO_LEAF)
        try:
            if (size := path.stat().st_size) < length:
                raise SessionError(f"{path}: has {size} bytes where {length} were committed")
            if journal.digest is not None and length > leaf.end:
                ranges = journal.patchable.get(name, [])
                growing[name] = digest_file(path, leaf.end, length, ranges).leaf()
        except OSError as error:
            raise SessionError(f"{path}: cannot be read: {error.strerror}") from None
    if journal.digest not in (None, digest_jointly(growing)) and not journal.unsure:
        raise SessionError(f"{session}: its files do not hold what was committed")


def _digested(files: Mapping[str, AppendFile]) -> dict[str, DigestedFile]:
    return {name: file for name, file in files.items() if isinstance(file, DigestedFile)}
