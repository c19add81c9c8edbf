"""Verification of the lengths up to which a session's files are intact, by digests.

Committed bytes are compared with the digests of the journal.  Bytes after the last commit are
compared with the digests that were written before them (`recorder.recording.writer.tail_digests`).
 All bytes are read past the page cache, which may contain bytes that the device does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from recorder.recording.writer.tail_digests import encode_entries, read_tail_digests
from recorder.session.journal.digests import Announcement, Leaf, Range, RunningDigest
from recorder.session.journal.journal import ReadRange
from recorder.session.journal.state import NO_LEAF, JournalState, digest_jointly

_BLOCK = 4 << 20


class VerifiedLengths:
    """Verified lengths of a session's files.

    Bytes before a file's latest leaf are assumed intact: `validate` checks them.

    Args:
        session: the session's folder.
        journal: state of the session's journal.
        read: reads the bytes of a range from the device.

    Attributes:
        lengths: by path of each growing file, the number of intact bytes from its start.
    """

    def __init__(self, session: Path, journal: JournalState, read: ReadRange) -> None:
        self._session = session
        self._resumes = journal.resumes
        self._files: dict[str, _File] = {}
        witness = read_tail_digests(session, journal.resumes)
        witnessed = {entry.path.relative_to(session).as_posix() for entry in witness}
        for name in journal.files.keys() | witnessed:
            entries = [entry for entry in witness if entry.path == session / name]
            self._files[name] = _File(session / name, name, journal, entries, read)
        growing = {
            n: leaf for n, f in self._files.items() if (leaf := f.digest_committed()) is not None
        }
        growing = {n: leaf for n, leaf in growing.items() if leaf.end > leaf.start}
        whole = journal.digest in (None, digest_jointly(growing)) or journal.unsure
        self.lengths = {name: file.verify(whole) for name, file in self._files.items()}

    def keep(self, lengths: Mapping[str, int]) -> bytes:
        """Encode entries that prove the kept bytes after the rest has been cut.

        Args:
            lengths: new length of each file, by path.
        """
        entries = [f.keep(lengths[n]) for n, f in self._files.items() if n in lengths]
        entries = [entry for entry in entries if entry.leaf.end > entry.leaf.start]
        return encode_entries(self._session, entries, self._resumes)


class _File:
    def __init__(
        self,
        path: Path,
        name: str,
        journal: JournalState,
        witness: Sequence[Announcement],
        read: ReadRange,
    ) -> None:
        self._path = path
        self._read = read
        self._leaf = journal.leaves.get(name, NO_LEAF)
        self._length = journal.files.get(name, 0)
        self._patchable = journal.patchable.get(name, [])
        self._entries = [*witness, Announcement(path, self._leaf)]
        self._uncommitted: tuple[Range, ...] = ()  # patchable ranges of the last verified bytes

    def digest_committed(self) -> Leaf | None:
        """Digest the committed bytes after the latest leaf; None if they cannot be read."""
        try:
            return self._digest(self._leaf.end, self._length)
        except OSError:
            return None

    def verify(self, whole: bool) -> int:
        """Return the length up to which the file is intact.

        Args:
            whole: whether the committed bytes of all files after their latest leaves are intact.
        """
        try:
            at = self._follow(self._leaf.start, self._leaf.start)
            if whole and at >= self._leaf.end:
                at = max(at, self._length)
            for start in sorted({entry.leaf.start for entry in self._entries}):
                if self._leaf.end <= start <= at:
                    at = self._follow(start, at)
            return at
        except OSError:
            return self._leaf.start

    def keep(self, length: int) -> Announcement:
        """Return an entry for the kept bytes after the latest leaf; for the rest of a cut leaf."""
        start = self._leaf.end if length >= self._leaf.end else self._leaf.start
        leaf = self._digest(start, max(start, length), self._uncommitted)
        return Announcement(self._path, leaf, self._uncommitted)

    def _digest(self, start: int, stop: int, uncommitted: Sequence[Range] = ()) -> Leaf:
        running = RunningDigest(start, [*self._patchable, *uncommitted])
        for data in self._blocks(start, stop):
            running.update(data)
        return running.leaf()

    def _blocks(self, start: int, stop: int) -> Iterator[bytes]:
        while start < stop and (data := self._read(self._path, start, min(stop, start + _BLOCK))):
            yield data
            start += len(data)

    def _follow(self, start: int, at: int) -> int:
        """Return the largest verified end after `at` for the range from `start`; `at` without one.

        A stale entry, for bytes that were cut since, may have other patchable ranges than the
        current bytes.  So each entry is checked with its own ranges only.
        """
        entries = [entry for entry in self._entries if entry.leaf.start == start]
        for ranges in dict.fromkeys(entry.ranges for entry in entries):
            leaves = [e.leaf for e in entries if e.ranges == ranges and e.leaf.end > at]
            for end in self._intact_ends(start, leaves, ranges):
                at, self._uncommitted = end, ranges
        return at

    def _intact_ends(
        self, start: int, leaves: Sequence[Leaf], ranges: Sequence[Range]
    ) -> Iterator[int]:
        """Yield the verified ends of the leaves that begin at `start`, in order."""
        known = {(leaf.end, leaf.digest) for leaf in leaves}
        ends = sorted({end for end, _ in known})
        running = RunningDigest(start, [*self._patchable, *ranges])
        for data in self._blocks(start, ends[-1] if ends else start):
            view = memoryview(data)
            while view:
                step = next(end for end in ends if end > running.end) - running.end
                running.update(bytes(view[:step]))
                view = view[step:]
                if (running.end, running.leaf().digest) in known:
                    yield running.end
