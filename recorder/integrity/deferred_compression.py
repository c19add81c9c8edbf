"""Deferred packing of a closed session's channels that were stored without compression.

``python -m recorder.integrity.deferred_compression SESSION [--preset N]``, at idle priority.

A channel has a data file and an index file.  Both are written again in ``_recorder/repack``, and
checked: the recorded bytes are restored from them and compared with the journal's digests
(`recorder.session.journal.packed_channels`).  Then, in this order, each step durable before the
next:

1. a folder beside, with links to all files of the stream's folder, but the new two;
2. the journal's record ``pack``;
3. the two folders change places (renameat2(2), RENAME_EXCHANGE): a reader by path finds the old
   files or the new ones, never one of each folder;
4. the list of checksums gets the new files' sums; the old folder is removed.

A step that was killed is run again: samples that were packed before are checked and not packed
again.  Where a file system cannot exchange folders or link files, the session stays as recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import hashlib
import io
import lzma
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recorder.codecs import STORED
from recorder.codecs.storage import open_channel
from recorder.codecs.streams import ChannelSpec
from recorder.codecs.xz import XzCompressor, stored_stream
from recorder.common.errors import FormatError, RecorderError, SessionError, StorageError
from recorder.common.files import FILE_MODE, PosixDisk
from recorder.common.syscalls import be_idle, exchange_names
from recorder.integrity.signatures import PACKING, sign_head
from recorder.session import layout
from recorder.session.checksums import CHECKSUMS
from recorder.session.journal.checks import check_staged
from recorder.session.journal.digests import RunningDigest
from recorder.session.journal.journal import JournalWriter, read_journal
from recorder.session.journal.packed_channels import PackedChannel, list_channel_files
from recorder.session.journal.state import JournalState
from recorder.session.reader import Session
from recorder.session.validation_report import Report

_LOCK_TRIES, _LOCK_WAIT_S = 600, 0.1
_SPACE_EVERY = 16  # samples


@dataclass(slots=True)
class RepackResult:
    """The result of packing a session.

    Attributes:
        before, after: bytes of the channels that were packed now.
        channels: their paths.
        left: by path of a channel, why it stays as recorded.
    """

    before: int = 0
    after: int = 0
    channels: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def find_stored_channels(state: JournalState) -> Iterator[tuple[str, ChannelSpec]]:
    """Yield path of the data file, and channel, of stored channels that have samples."""
    for name, spec in state.specs.items():
        for channel in spec.channels:
            path = f"{name}/{channel.name}"
            stored = channel.format == "lzmaf" and channel.name in spec.settings.get(STORED, ())
            if stored and state.files.get(path):
                yield path, channel


def repack(
    session: Path, preset: int | None = None, advance: Callable[[str, int, int], None] | None = None
) -> RepackResult:
    """Pack the stored channels of a session.

    Args:
        session: its folder.
        preset: liblzma's preset; None: the filters of recording, which take the least time.
        advance: called with a channel, the samples done and all its samples.

    Raises:
        SessionError: the session is open, was not closed, or is damaged.
        StorageError: the disk is full or fails; nothing is changed.
    """
    with _Lock(session) as lock:
        if layout.read_session_json(session)["state"] not in (layout.CLEAN, layout.RECOVERED):
            raise SessionError(f"{session}: was not closed; run `recorder recover {session}` first")
        try:
            return _Repacking(session, lock, preset, advance).run()
        except OSError as error:
            reason = f"{error.filename or session}: {error.strerror or error}"
            raise StorageError(f"{session}: cannot be packed: {reason}") from error


class _Repacking:
    def __init__(
        self,
        session: Path,
        lock: _Lock,
        preset: int | None,
        advance: Callable[[str, int, int], None] | None,
    ) -> None:
        self._session = session
        self._lock = lock
        self._preset = preset
        self._advance = advance or (lambda *_: None)
        self._disk = PosixDisk()
        self._folder = layout.private(session, layout.REPACK)
        self._floor = layout.read_session_json(session).get("min_free_gb") or 0.0
        self._result = RepackResult()

    def run(self) -> RepackResult:
        state = read_journal(layout.private(self._session, layout.JOURNAL))
        channels = dict(find_stored_channels(state))
        self._clear(state)
        for path, channel in channels.items():
            packed = state.packed.get(path)
            if packed is None or not packed.is_in_place(self._session):
                self._pack(path, channel, state)
        self._write_checksums(read_journal(layout.private(self._session, layout.JOURNAL)))
        if self._folder.exists():
            shutil.rmtree(self._folder)
            self._disk.sync_folder(self._folder.parent)
        return self._result

    def _clear(self, state: JournalState) -> None:
        """Remove folders of an interrupted run; files that it began to pack stay."""
        for name in state.specs:
            if (self._session / name).is_dir() and (self._folder / name).exists():
                shutil.rmtree(self._folder / name)

    def _pack(self, path: str, channel: ChannelSpec, state: JournalState) -> None:
        parts = self._folder / "parts"
        for folder in (self._folder, parts):
            if not folder.exists():
                self._disk.make_folder(folder)
        if (why := self._check_exchange()) is not None:
            self._result.left[path] = why
            return
        try:
            packed = self._make(path, channel, parts)
        except OSError:
            shutil.rmtree(parts, ignore_errors=True)  # what a full disk needs most
            raise
        before = state.files[path]
        if packed.length >= before:
            self._result.left[path] = "packing does not make it smaller"
            return
        report = Report(self._session, self._session.name)
        with Session(self._session) as session:
            check_staged(session, packed, parts, report)
        if report.problems:
            raise SessionError(f"{report.problems[0].message}; {path} stays as it was recorded")
        if not self._put_into_place(path, packed, parts):
            self._result.left[path] = "the file system does not exchange this folder"
            return
        self._result.before += before
        self._result.after += packed.length
        self._result.channels.append(path)

    def _make(self, path: str, channel: ChannelSpec, parts: Path) -> PackedChannel:
        """Write the packed files into a folder, durably."""
        stream, data_path = self._session / path.partition("/")[0], parts / channel.name
        index_path = parts / list_channel_files(path)[1].partition("/")[2]
        known = _Earlier(data_path, index_path)
        encode = _create_encoder(channel, self._preset)
        kept: list[tuple[int, int]] = []
        ends = [0]
        sums = [hashlib.md5(usedforsecurity=False) for _ in range(2)]
        running = RunningDigest(0)
        with (
            open_channel(stream, channel.name, channel.meta()) as reader,
            _rewrite(data_path) as fd,
        ):
            count = len(reader)
            for i in range(count):
                recorded, values = reader.encoded(i), reader[i]
                if stored_stream(values) == recorded:
                    frame = known.sample(i, values) or encode(values)
                else:
                    frame = recorded
                    if kept and kept[-1][1] == i:
                        kept[-1] = kept[-1][0], i + 1
                    else:
                        kept.append((i, i + 1))
                _write_at(fd, ends[-1], frame)
                running.update(frame)
                sums[0].update(frame)
                ends.append(ends[-1] + len(frame))
                known.index(i, ends[-1])
                if i % _SPACE_EVERY == 0:
                    self._check_space()
                    self._advance(path, i, count)
            os.ftruncate(fd, ends[-1])
            os.fsync(fd)
        known.close()
        index = np.array(ends, "<u8").tobytes()
        with _rewrite(index_path) as fd:
            _write_at(fd, 0, index)
            os.ftruncate(fd, len(index))
            os.fsync(fd)
        sums[1].update(index)
        index_digest = RunningDigest(0)
        index_digest.update(index)
        digests = running.leaf().digest, index_digest.leaf().digest
        md5 = sums[0].hexdigest(), sums[1].hexdigest()
        return PackedChannel(path, ends[-1], digests, md5, tuple(kept))

    def _check_space(self) -> None:
        free = self._disk.free_bytes(self._folder)
        if free < self._floor * 1e9:
            shutil.rmtree(self._folder / "parts", ignore_errors=True)
            raise StorageError(
                f"{self._session}: not packed: {free / 1e9:.2f} GB free, storage.min_free_gb asks "
                f"for {self._floor:g}; free space and run `recorder finalize --pending`"
            )

    def _put_into_place(self, path: str, packed: PackedChannel, parts: Path) -> bool:
        stream, _, _ = path.partition("/")
        old, new = self._session / stream, self._folder / stream
        own = {name.partition("/")[2] for name in packed.files}
        with self._lock.alone():
            new.mkdir(old.stat().st_mode & 0o777)
            # Links need no space, and the other channels keep their files.
            for name in sorted(entry.name for entry in old.iterdir()):
                os.link(parts / name if name in own else old / name, new / name)
            self._disk.sync_folder(new)
            self._disk.sync_folder(self._folder)
            journal_path = layout.private(self._session, layout.JOURNAL)
            state = read_journal(journal_path)
            # A torn record at the end is of an earlier run of this step.
            journal = JournalWriter(self._disk.reopen(journal_path, state.length), state)
            try:
                # Before the exchange: without this record the packed files would be unknown.
                journal.append("pack", **packed.to_record())
                sign_head(journal, self._session, PACKING)
                journal.sync()
            finally:
                journal.close()
            if not exchange_names(old, new):
                # A lower layer of overlayfs, which the probe does not show.
                shutil.rmtree(new)
                return False
            self._disk.sync_folder(self._session)
            self._disk.sync_folder(self._folder)
        shutil.rmtree(new)
        for name in own:
            (parts / name).unlink()
        return True

    def _check_exchange(self) -> str | None:
        """Return why the file system cannot replace two files at once; None if it can."""
        one, other = self._folder / "probe.0", self._folder / "probe.1"
        for folder in (one, other):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        try:
            (one / "file").touch(FILE_MODE)
            try:
                os.link(one / "file", other / "link")
            except OSError as error:
                return f"the file system has no links to files ({error.strerror})"
            if not exchange_names(one, other) or not (one / "link").exists():
                return "the file system does not exchange folders"
            return None
        finally:
            for folder in (one, other):
                shutil.rmtree(folder, ignore_errors=True)

    def _write_checksums(self, state: JournalState) -> None:
        """Put the sums of packed files into the list of checksums, if there is one."""
        listing = layout.private(self._session, CHECKSUMS)
        new = {
            name: md5
            for packed in state.packed.values()
            if packed.is_in_place(self._session)
            for name, md5 in zip(packed.files, packed.md5, strict=True)
        }
        try:
            with listing.open(newline="") as file:
                rows = list(csv.reader(file))
        except FileNotFoundError:
            return
        changed = [[row[0], new.get(row[0], row[1])] if len(row) == 2 else row for row in rows]
        if changed != rows:
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(changed)
            self._disk.write_file(listing, text.getvalue().encode())


class _Earlier:
    """The samples that an interrupted run packed; each is checked before it is used.

    The index file has the ends of the samples, the data file the samples.  Neither was synced:
    after a power cut they may contain anything.
    """

    def __init__(self, data: Path, index: Path) -> None:
        self._ends = np.zeros(0, "<u8")
        self._data = None
        with contextlib.suppress(FileNotFoundError):
            raw = index.read_bytes()
            self._ends = np.frombuffer(raw[: len(raw) // 8 * 8], "<u8")
            self._data = data.open("rb", buffering=0)
        self._index = os.open(index, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        if not len(self._ends):
            _write_at(self._index, 0, bytes(8))

    def sample(self, number: int, values: np.ndarray[Any, Any]) -> bytes | None:
        """Return the stream of a sample with these values; None from the first mismatch on."""
        if self._data is None or number + 1 >= len(self._ends):
            return None
        start, stop = int(self._ends[number]), int(self._ends[number + 1])
        if 0 < stop - start <= 2 * values.nbytes + 4096:
            frame = os.pread(self._data.fileno(), stop - start, start)
            with contextlib.suppress(lzma.LZMAError):
                if lzma.decompress(frame, lzma.FORMAT_XZ) == values.tobytes():
                    return frame
        self._ends = self._ends[:0]
        return None

    def index(self, number: int, end: int) -> None:
        """Record the end of a sample, after its bytes."""
        _write_at(self._index, 8 * (number + 1), end.to_bytes(8, "little"))

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
        os.close(self._index)


class _Lock:
    """A session's lock: shared while a channel is packed, exclusive for the exchange of files."""

    def __init__(self, session: Path) -> None:
        self._session = session
        self._fd = -1

    def __enter__(self) -> _Lock:
        path = layout.private(self._session, layout.LOCK)
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SessionError(f"{path}: cannot be locked: {error.strerror}") from None
        try:
            self._take(fcntl.LOCK_SH, 1)
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self._take(fcntl.LOCK_EX, _LOCK_TRIES)
        try:
            # Between the two locks, the session may have been deleted.
            if not os.path.samestat(
                os.fstat(self._fd), layout.private(self._session, layout.LOCK).stat()
            ):
                raise SessionError(f"{self._session}: was replaced while it was packed")
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_SH)

    def _take(self, kind: int, tries: int) -> None:
        for left in reversed(range(tries)):
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if left:
                    time.sleep(_LOCK_WAIT_S)
        raise SessionError(f"{self._session}: is in use by another process; packed another time")


def _create_encoder(
    channel: ChannelSpec, preset: int | None
) -> Callable[[np.ndarray[Any, Any]], bytes]:
    if preset is None:
        return XzCompressor(channel.np_dtype.itemsize, channel.delta, worth=1.0).compress
    filters: list[dict[str, int]] = [{"id": lzma.FILTER_LZMA2, "preset": preset}]
    if channel.delta:
        filters.insert(0, {"id": lzma.FILTER_DELTA, "dist": channel.np_dtype.itemsize})
    return lambda values: lzma.compress(
        values.tobytes(), lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=filters
    )


@contextlib.contextmanager
def _rewrite(path: Path) -> Iterator[int]:
    """Open a file for writing over its content."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_at(fd: int, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def main() -> int:
    """Pack one session; return 0, or 1 if it failed."""
    parser = argparse.ArgumentParser(description="Pack channels that were stored as they are.")
    parser.add_argument("session", type=Path)
    parser.add_argument("--preset", type=int, choices=range(10), help="liblzma's preset")
    args = parser.parse_args()
    be_idle()
    try:
        done = repack(args.session, args.preset)
    except (RecorderError, FormatError) as error:
        print(error, file=sys.stderr)
        return 1
    for channel, why in done.left.items():
        print(f"{args.session / channel}: stays as it was recorded: {why}", file=sys.stderr)
    if done.channels:
        text = f"{done.before / 1e6:.1f} MB became {done.after / 1e6:.1f} MB"
        print(f"{args.session}: {', '.join(done.channels)}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
