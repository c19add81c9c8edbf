"""Checks of a session's journal against its files: lengths, every committed byte, checksums."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from recorder.codecs import indexed_channels
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SessionError
from recorder.session import layout
from recorder.session.checksums import CHECKSUMS, data_files
from recorder.session.discovery import fail, walk
from recorder.session.journal.digests import (
    Leaf,
    RunningDigest,
    digest,
    digest_file,
    digest_patched,
)
from recorder.session.journal.frames import Frame
from recorder.session.journal.journal import read_journal, walk_journal
from recorder.session.journal.packed_channels import (
    PackedChannel,
    RecordedFile,
    find_packed,
    open_recorded,
)
from recorder.session.journal.state import NO_LEAF, JournalState, digest_jointly
from recorder.session.layout import CLEAN, JOURNAL, RECOVERED, REPACK, private
from recorder.session.reader import Session
from recorder.session.validation_report import Report

_BLOCK = 1 << 20


def check_journal(session: Session, report: Report) -> bool:
    """Check a session's journal: readable, and consistent with its files and ``session.json``.

    A closed session's files have the length of the last commit, to the byte.  An open session's
    files have at least the committed length, and its journal may end in a torn record.

    Returns:
        Whether the journal can be read.
    """
    path = private(session.path, JOURNAL)
    try:
        journal = read_journal(path)
        size = path.stat().st_size
    except (SessionError, OSError) as error:
        report.error(str(error) if str(path) in str(error) else f"{path}: {error}")
        return False
    closed = session.state in (CLEAN, RECOVERED)
    if closed:
        if size != journal.length:
            text = f"{size - journal.length} bytes from byte {journal.length} on are no record"
            if private(session.path, REPACK).is_dir():  # packing was interrupted
                report.warning(f"{path}: {text}; `recorder finalize --pending` removes them")
            else:
                report.error(f"{path}: {text}")
        if journal.closed is None:
            report.warning(f"{path}: lacks its last record; run `recorder recover`")
        elif journal.closed != session.state:
            text = f"closed as {journal.closed}, but session.json says {session.state}"
            report.error(f"{path}: {text}")
    elif journal.closed is not None:
        report.error(f"{path}: closed as {journal.closed}, but session.json says {session.state}")
    _check_lengths(session, journal, report, closed)
    if closed:
        _check_declarations(session, journal, report)
    report.checked.append(f"_recorder/commits: {journal.commits} commits")
    return True


def _check_lengths(session: Session, journal: JournalState, report: Report, closed: bool) -> None:
    reported = {(problem.stream, problem.channel) for problem in report.problems}
    packed = find_packed(session.path, journal.packed)
    for name, length in journal.files.items():
        path = session.path / name
        if name in packed and name == packed[name].channel:
            continue  # its length is how it is known
        folder, _, file = name.partition("/")
        stream = folder if folder in session.streams else None
        if (
            stream is not None
            and {(stream, own) for own in (file, *indexed_channels(file))} & reported
        ):
            continue  # the rule of its format reports it better
        try:
            size = path.stat().st_size
        except OSError as error:
            report.error(f"{path}: was committed: {error.strerror}", stream, channel=file)
            continue
        if size < length or (closed and size != length):
            text = f"{size} bytes, where {length} were committed"
            report.error(f"{path}: {text}", stream, channel=file)


def _check_declarations(session: Session, journal: JournalState, report: Report) -> None:
    path = private(session.path, JOURNAL)
    for name, stream in session.streams.items():
        if stream.spec is None:
            continue
        if journal.specs.get(name) != stream.spec:
            report.error(f"{path}: {name}: not declared as session.json has it", name)
        journalled = journal.epochs.get(name, [])
        for entry in stream.epochs or ():
            reported = (entry.get("epoch"), entry.get("first_sample"))
            if reported not in journalled and session.state == CLEAN:
                text = f"epoch {reported[0]} from sample {reported[1]} on is not in the journal"
                report.error(f"{path}: {name}: {text}", name)


def check_checksums(
    session: Session, report: Report, deep: bool, advance: Callable[[int], None]
) -> None:
    """Check ``checksums.csv``, if it exists: every file is listed, and unchanged if `deep`.

    Args:
        session: to check.
        report: receives the faults.
        deep: read every file and compare.
        advance: called with the megabytes read.
    """
    path = private(session.path, CHECKSUMS)
    try:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
    except FileNotFoundError:
        report.checked.append(f"_recorder/{CHECKSUMS}: none written")
        return
    except (OSError, ValueError, csv.Error) as error:
        report.error(f"{path}: cannot be read: {error}")
        return
    if not rows or rows[0] != ["file", "md5"] or any(len(row) != 2 for row in rows):
        report.error(f"{path}: not a list of checksums: needs the columns file,md5")
        return
    listed: dict[str, str] = dict(rows[1:])
    found = {str(relative) for relative in data_files(session.path)}
    for name in sorted(listed.keys() - found):
        report.error(
            f"{session.path / name}: is missing; {path.name} lists it", _find_stream(session, name)
        )
    for name in sorted(found - listed.keys()):
        report.warning(f"{session.path / name}: is not in {path.name}", _find_stream(session, name))
    if deep:
        packed = _read_packed_md5(session.path)
        for name in sorted(listed.keys() & found):
            try:
                digest = _compute_md5(session.path / name, advance)
            except OSError as error:
                text = f"{session.path / name}: cannot be read: {error.strerror}"
                report.error(text, _find_stream(session, name))
                continue
            if digest != listed[name] and digest != packed.get(name):
                text = f"{session.path / name}: has changed since it was closed: MD5 {digest}"
                report.error(f"{text}, not {listed[name]}", _find_stream(session, name))
    kind = "compared" if deep else "listed"
    report.checked.append(f"_recorder/{CHECKSUMS}: {len(listed)} files {kind}")


def _read_packed_md5(session: Path) -> dict[str, str]:
    """Return MD5 of files that were packed after the session; the list may not have them yet."""
    try:
        journal = read_journal(private(session, JOURNAL))
    except SessionError:  # it was reported
        return {}
    packed = find_packed(session, journal.packed).values()
    return {name: md5 for p in packed for name, md5 in zip(p.files, p.md5, strict=True)}


def checksum_ticks(session: Session) -> int:
    """Return the megabytes, rounded up per file, that a deep check of the checksums reads."""
    if not private(session.path, CHECKSUMS).is_file():
        return 0
    sizes = ((session.path / name).stat().st_size for name in data_files(session.path))
    return sum(-(-size // _BLOCK) for size in sizes)


def _find_stream(session: Session, name: str) -> str | None:
    folder = Path(name).parts[0] if name else ""
    return folder if folder in session.streams else None


def _compute_md5(path: Path, advance: Callable[[int], None]) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            advance(1)
    return digest.hexdigest()


_OPEN_FILES = 64


def check_digests(session: Session, report: Report, advance: Callable[[int], None]) -> None:
    """Check that every bit of the session's files is as recorded.

    Reads every file once.  A fault is located between two commits about a second apart: its bytes,
    and the samples that were committed between them.

    Args:
        session: to check.
        report: receives the faults.
        advance: called with the megabytes read.

    Raises:
        SessionError: the journal cannot be read; `check_journal` reports it.
    """
    check = _Check(session, report, advance)
    check.run()
    if (rest := digest_ticks(session) - check.ticks) > 0:
        advance(rest)


def digest_ticks(session: Session) -> int:
    """Return the megabytes that `check_digests` reads at most."""
    size = 0
    for place, _, files in walk(session.path, fail):
        if "_archives" not in Path(place).parts:
            size += sum(entry.stat().st_size for entry in files if entry.is_file())
    return size // _BLOCK


def check_staged(session: Session, packed: PackedChannel, folder: Path, report: Report) -> None:
    """Check that packed files in another folder have the content of the session's recorded files.

    Args:
        session: closed.
        packed: the description of the files.
        folder: has them.
        report: receives the faults.

    Raises:
        SessionError: the journal cannot be read.
    """
    _Check(session, report, lambda _: None).check_staged(packed, folder)


class _Check:
    def __init__(self, session: Session, report: Report, advance: Callable[[int], None]) -> None:
        self._session = session
        self._path = session.path
        self._journal = layout.private(session.path, layout.JOURNAL)
        self._report = report
        self._advance = advance
        self.ticks = self._read = 0
        self._cuts: dict[str, list[tuple[int, int]]] = {}
        self._known_gaps: list[list[int]] = []
        self._patched: dict[str, bytes] = {}
        self._files: OrderedDict[str, RecordedFile] = OrderedDict()
        self._packed: Mapping[str, PackedChannel] = {}
        self._specs: Mapping[str, StreamSpec] = {}
        self._staged: Path | None = None

    def run(self) -> None:
        state = self._scan_journal()
        for gap in state.damage:
            text = f"{self._journal}: bytes {gap.start} to {gap.end} are damaged"
            if [gap.start, gap.end] in self._known_gaps:
                self._report.warning(f"{text}; a writer went on with the records behind them")
            else:
                self._report.error(text)
        self._check_metadata(state)
        self._specs = state.specs
        self._packed = find_packed(self._path, state.packed)
        for packed in {entry.channel: entry for entry in self._packed.values()}.values():
            self._check_packed(packed)
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [file.close() for file in self._files.values()])
            leaves = self._check_leaves(state)
            self._check_rest(state)
        self._check_patched(state)
        self._report.checked.append(f"digests: {leaves} ranges of {len(state.files)} files")

    def check_staged(self, packed: PackedChannel, folder: Path) -> None:
        state = self._scan_journal()
        self._specs, self._packed = state.specs, dict.fromkeys(packed.files, packed)
        self._staged = folder
        for name in packed.files:
            file = self._open(name)
            proven = state.leaves.get(name, NO_LEAF).end
            if not file.seek(0, io.SEEK_END) == state.files.get(name) == proven:
                self._report_error(name, f"{self._path / name}: is not of the committed length")
        state.files = {name: state.files[name] for name in packed.files if name in state.files}
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [file.close() for file in self._files.values()])
            self._check_leaves(state)

    def _scan_journal(self) -> JournalState:
        """Check the journal's chain of records, and collect digests, cuts and gaps."""
        before: Frame | None = None
        state = JournalState()
        for frame, content, state in walk_journal(self._journal):
            follows = before is not None and before.end == frame.start
            if before is not None and follows and before.own and frame.previous != before.own:
                text = f"the record at byte {frame.start} does not follow the one before it"
                self._report.error(f"{self._journal}: {text}")
            before = frame
            match frame.kind:
                case "open":
                    self._patched.clear()  # a writer that resumes patches them again
                    self._known_gaps += [list(gap) for gap in content.get("gaps", ())]
                    for name, at in content.get("cut", {}).items():
                        self._cuts.setdefault(name, []).append((frame.start, at))
                case "commit":
                    self._patched |= content.get("patched", {})
                case "close" if content.get("root", state.tree.root) != state.tree.root:
                    text = "its digests are not those it was closed with"
                    self._report.error(f"{self._journal}: {text}")
        return state

    def _check_metadata(self, state: JournalState) -> None:
        for name, value in state.written_once.items():
            path = self._path / name
            stream, _, file = name.partition("/")
            if file and stream in state.specs and not path.parent.exists():
                continue  # a stream without a sample has no folder; another rule reports the rest
            try:
                found = digest(path.read_bytes())
            except OSError as error:
                self._report_error(name, f"{path}: cannot be read: {error.strerror}")
            else:
                if found != value:
                    self._report_error(name, f"{path}: is not as it was recorded")

    def _check_leaves(self, last: JournalState) -> int:
        samples: dict[str, tuple[int, int]] = {}  # by stream, at the commits of leaves
        count = 0
        for frame, content, _ in walk_journal(self._journal):
            if frame.kind != "commit" or "leaves" not in content:
                continue
            for name, position in content["streams"].items():
                before = samples.get(name, (0, 0))[1]
                samples[name] = (before, int(position.get("samples", 0)))
            for name, leaf in content["leaves"]:
                if name in last.files and not self._was_cut(name, leaf, frame.start):
                    count += 1
                    if self._read_leaf(name, leaf.start, leaf.end, last) != leaf:
                        self._report_leaf(name, leaf, samples.get(name.partition("/")[0]))
        return count

    def _was_cut(self, name: str, leaf: Leaf, at: int) -> bool:
        return any(later > at and cut < leaf.end for later, cut in self._cuts.get(name, ()))

    def _read_leaf(self, name: str, start: int, end: int, state: JournalState) -> Leaf | None:
        running = RunningDigest(start, state.patchable.get(name, []))
        try:
            file = self._open(name)
            file.seek(start)
            while running.end < end and (data := file.read(min(_BLOCK, end - running.end))):
                running.update(data)
                self._count(len(data))
        except (OSError, FormatError):  # another rule reports it
            return None
        return running.leaf()

    def _check_packed(self, packed: PackedChannel) -> None:
        """Check the bytes of packed files; `_read_leaf` checks their unpacked content."""
        for name, value in zip(packed.files, packed.digests, strict=True):
            path = self._path / name
            try:
                running = digest_file(path, 0, path.stat().st_size, ())
            except OSError:  # another rule reports it
                continue
            if running.leaf().digest != value:
                self._report_error(name, f"{path}: is not as it was packed after the session")

    def _open(self, name: str) -> RecordedFile:
        file = self._files.pop(name, None)
        if file is None:
            file = open_recorded(self._path, name, self._packed, self._specs, self._staged)
            if len(self._files) >= _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
        self._files[name] = file
        return file

    def _count(self, size: int) -> None:
        ticks = (self._read + size) // _BLOCK - self._read // _BLOCK
        self._read += size
        if ticks:
            self.ticks += ticks
            self._advance(ticks)

    def _check_rest(self, state: JournalState) -> None:
        """Check the bytes after the last leaves, in a session that was not closed."""
        if state.digest is None or state.unsure:  # the damaged record is reported
            return
        found: dict[str, Leaf] = {}
        for name, length in state.files.items():
            start = state.leaves[name].end if name in state.leaves else 0
            if length > start and (leaf := self._read_leaf(name, start, length, state)) is not None:
                found[name] = leaf
        if digest_jointly(found) != state.digest:
            text = "what was committed last is not as it was recorded; `recorder recover` finds it"
            self._report.error(f"{self._path}: {text}")

    def _check_patched(self, state: JournalState) -> None:
        for name, value in self._patched.items():
            with contextlib.suppress(OSError):
                if digest_patched(self._path / name, state.patchable.get(name, ())) != value:
                    text = "sizes and counts in its headers are not as they were recorded"
                    self._report_error(name, f"{self._path / name}: {text}")

    def _report_leaf(self, name: str, leaf: Leaf, samples: tuple[int, int] | None) -> None:
        text = f"bytes {leaf.start} to {leaf.end} are not as they were recorded"
        if samples is not None and samples[1] > samples[0]:
            text += f" (samples {samples[0]} to {samples[1] - 1})"
        first = None if samples is None else samples[0]
        self._report_error(name, f"{self._path / name}: {text}", first)

    def _report_error(self, name: str, text: str, sample: int | None = None) -> None:
        stream, _, file = name.partition("/")
        known = stream in self._session.streams
        channel = file if known else None
        self._report.error(text, stream if known else None, channel=channel, sample=sample)
