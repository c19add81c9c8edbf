"""The journal of a session: the durable content, record by record.

=========  ====================================================================================
record     holds
=========  ====================================================================================
open       boot_id, start_mono_ns, start_ns: a writer began or resumed; id: of the first record,
           random bytes, so that no other session has the same first record;
           files: digests of the session's configuration; cut: files that were cut, with the
           offset at which their digests continue; lengths: of files that lost what finishing
           had appended; gaps: bytes of the journal that hold no record
stream     spec: a stream was declared, durably before its own first sample; files: digests of
           its metadata
epoch      stream, epoch, sample: a driver's start; `sample` is the index of its first sample;
           first_seq: its number, in a clip that begins within an epoch
end        stream, epoch, sent, reason: its end, and the number of samples that the driver reports
           as sent; null without a report
commit     n, t_ns, took_us (of the commit before), files {path: length}, streams {name: position},
           events (not yet in their file), and digests of the bytes that it commits: `digest` of
           all files together, or, about once a second, `leaves` of each; patchable {path:
           ranges} that digests leave out; patched {path: digest of their final bytes}
snapshot   the whole state, about once a minute: a reader begins at the last one
resume     a writer resumes at the last commit: epochs and ends reported after it are void
split      next: name of the session that continues it; first: digest of the first record of its
           journal; folder: its folder, if that is another
close      state: the recording's last record; session: digest of ``session.json``; root: of the
           tree of leaves
pack       channel, length, digests, md5, kept: a channel was packed after the session was closed
           (`recorder.session.journal.packed_channels`); appended before its files are replaced
sign       statement, signature, public_key: of the record before it, after the session was closed
           (`recorder.integrity.signatures`)
=========  ====================================================================================

Frames of the records: `recorder.session.journal.frames`.  ``python -m
recorder.session.journal.journal SESSION`` prints them as JSON lines.
"""

from __future__ import annotations

import json
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from recorder.common.errors import ProtocolError, SessionError
from recorder.common.files import AppendFile
from recorder.session import layout
from recorder.session.journal.digests import digest
from recorder.session.journal.frames import FIRST, Frame, decode_frames, encode_frame
from recorder.session.journal.state import NO_LEAF, Damage, JournalState

ReadRange = Callable[[Path, int, int], bytes]

_TAIL_BYTES = 1 << 20
_NOT_UNDERSTOOD = (
    *(LookupError, TypeError, ValueError, AttributeError, ProtocolError),
    OverflowError,  # of a record in another place: a range that begins before its file
)
_SNAPSHOT_COMMITS = 300
"""Commits after which a snapshot is due: a minute of them."""


class JournalWriter:
    """The writer of a journal: one thread at a time appends; any thread may sync.

    A record is handed to the kernel at once, so that `sync`, which may take long, needs no lock.

    Attributes:
        file: the journal.
        state: its state so far.
    """

    def __init__(self, file: AppendFile, state: JournalState | None = None) -> None:
        """Begin a journal, or continue one after `state`."""
        self.state = JournalState() if state is None else state
        self.file = file
        self._commits = 0  # since the last snapshot
        self._snapshot_due = False

    def append(self, kind: str, **values: Any) -> None:
        self._append(kind, values)
        # Content that is recorded once is kept twice: one damaged record must not lose it.
        self._snapshot_due |= kind in ("stream", "epoch", "end", "open", "split")

    def commit(self, **values: Any) -> None:
        """Append a commit record, with its number."""
        body = self.state.compact({"n": self.state.commits, **values})
        self._append("commit", body)
        self._commits += 1
        self._snapshot_due |= self.state.has_unique_parts(body)
        if self._snapshot_due or self._commits >= _SNAPSHOT_COMMITS:
            self.snapshot()

    def snapshot(self) -> None:
        """Append the whole state."""
        self._append("snapshot", self.state.snapshot())
        self._commits, self._snapshot_due = 0, False

    def _append(self, kind: str, content: Any) -> None:
        data = encode_frame(kind, content, self.state.link)
        start = self.state.length
        frame = Frame(start, start + len(data), kind, content, self.state.link, digest(data))
        self.file.append(data)
        self.file.flush()
        self.state.take(frame)

    def sync(self) -> None:
        self.file.sync()

    def close(self) -> None:
        self.file.close()


def read_range(path: Path, start: int, stop: int) -> bytes:
    """Return bytes of a file, fewer if it ends before `stop`; OSError."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(max(0, stop - start))


def read_journal(path: Path, read: ReadRange = read_range) -> JournalState:
    """Read a journal's state, from its last snapshot on.

    A torn record at the end is ignored.  So is a damaged record before valid ones, unless these
    refer to it.

    Args:
        path: of the journal.
        read: reads a range of a file.

    Raises:
        SessionError: there is no journal, it has no whole record, or its records refer to a
            lost one.
    """
    try:
        size = path.stat().st_size
        want = min(size, _TAIL_BYTES)
        while True:
            tail = read(path, size - want, size)
            frames = list(decode_frames(tail, size - want))
            snapshots = [i for i, frame in enumerate(frames) if frame.kind == "snapshot"]
            if snapshots or want == size:
                break
            want = min(size, want * 8)
    except OSError as error:
        raise SessionError(f"{path}: cannot be read: {error.strerror}") from None
    if not frames:
        raise SessionError(f"{path}: not one whole record in this journal")
    state = JournalState()
    begin = snapshots[-1] if snapshots else 0
    state.length = frames[begin].start if snapshots else 0
    # A power cut may take a record and leave the snapshot behind it.
    for before, after in pairwise(frames[: begin + 1]):
        if before.end < after.start:
            state.damage.append(Damage(before.end, after.start))
    for frame in frames[begin:]:
        _apply(state, frame, path)
    if not state.boot_id:
        raise SessionError(f"{path}: its first records are damaged; nothing was changed")
    state.finish()
    return state


class JournalFollower:
    """A reader of a journal, record by record, also while it is written.

    Attributes:
        state: after the last record that was read.

    Args:
        path: of the journal.
    """

    def __init__(self, path: Path) -> None:
        self.state = JournalState()
        self._path = path
        self._at = 0
        self._lost = False  # skip records that refer to a lost one, up to the next snapshot

    def read(self) -> Iterator[tuple[Frame, Any]]:
        """Yield the records since the last call, each with its content; `state` includes it.

        Raises:
            SessionError: as `read_journal`.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError as error:
            raise SessionError(f"{self._path}: cannot be read: {error.strerror}") from None
        state = self.state
        for frame in decode_frames(data, self._at):
            self._at = frame.end
            if self._lost and frame.kind != "snapshot":
                state.damage[-1].end = frame.end
                continue
            try:
                content = _apply(state, frame, self._path)
            except SessionError:
                if not state.damage:
                    raise
                self._lost, state.length, state.damage[-1].end = True, frame.end, frame.end
                continue
            self._lost = False
            yield frame, content


def digest_first_record(path: Path) -> bytes:
    """Return the digest of a journal's first record, which identifies its session.

    It is computed from the record itself: an attacker can rewrite what later records repeat.

    Args:
        path: of the journal.

    Returns:
        the digest; empty if the journal does not begin with a whole first record.
    """
    try:
        data = read_range(path, 0, _TAIL_BYTES)
    except OSError:
        return b""
    frame = next(decode_frames(data), None)
    if frame is None or frame.start or frame.previous != FIRST:
        return b""
    return frame.own


def walk_journal(path: Path) -> Iterator[tuple[Frame, Any, JournalState]]:
    """Yield every record of a journal in order, with its content and the state after it.

    Raises:
        SessionError: as `read_journal`.
    """
    follower = JournalFollower(path)
    for frame, content in follower.read():
        yield frame, content, follower.state


class CommitTimes:
    """The commits of a session: by stream, the stamp of the newest sample that each commit has.

    ::

        times = CommitTimes(session.path, session.header)
        times.of("camera", stamp_ns)           # epoch ns; None where no commit has the sample

    Memory: 16 bytes a commit and stream, 0.3 MB a stream and hour.

    Attributes:
        problem: why the commits are not known; empty if they are.
    """

    def __init__(self, session: Path, header: Mapping[str, Any] | None) -> None:
        self.problem = ""
        self._last_ns: dict[str, array[int]] = {}  # of the newest sample, by commit
        self._commit_ns: dict[str, array[int]] = {}
        header = header or {}
        if header.get("start_mono_ns") is None:
            self.problem = "has no journal"
            return
        offset_ns = int(header["start_ns"]) - int(header["start_mono_ns"])
        try:
            self._read(session, offset_ns)
        except SessionError as error:
            self.problem = str(error)

    def _read(self, session: Path, offset_ns: int) -> None:
        for frame, content, _ in walk_journal(layout.private(session, layout.JOURNAL)):
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


def find_leaf_start(path: Path, name: str, length: int) -> int:
    """Return the offset where a file's digests continue after a cut before its latest leaf.

    Args:
        path: of the journal.
        name: path of the file, relative to the session.
        length: its new length.
    """
    start = 0
    for _, _, state in walk_journal(path):
        leaf = state.leaves.get(name, NO_LEAF)
        start = min(start, leaf.start)
        start = max(start, *(at for at in (leaf.start, leaf.end) if at <= length), 0)
    return start


def _apply(state: JournalState, frame: Frame, path: Path) -> Any:
    """Apply a record, and note damaged bytes before it."""
    if frame.start > state.length:
        state.miss(state.length, frame.start)
    try:
        return state.take(frame)
    except _NOT_UNDERSTOOD as error:
        if state.damage:
            text = f"cannot be understood, since bytes {state.damage[-1].start} to "
            text += f"{state.damage[-1].end} are damaged; nothing was changed ({error})"
            raise SessionError(f"{path}: the record at byte {frame.start} {text}") from None
        text = f"the record at byte {frame.start} is not of this version: {error!r}"
        raise SessionError(f"{path}: {text}") from None


def _convert_value(value: Any) -> Any:
    """Convert digests to hex digits and leaves to lists, for JSON."""
    return value.hex() if isinstance(value, bytes) else [value.start, value.end, value.digest]


def main() -> int:
    """Print a session's journal."""
    try:
        for frame, content, _ in walk_journal(layout.private(Path(sys.argv[1]), layout.JOURNAL)):
            values = content if isinstance(content, dict) else {"bytes": len(content)}
            print(
                json.dumps({"at": frame.start, "k": frame.kind, **values}, default=_convert_value)
            )
    except SessionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
