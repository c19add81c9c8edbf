"""Channels that were packed after their session, and the proof that their content is unchanged.

While a session is recorded, a channel's samples may be stored in xz without compression.  The
content alone determines the bytes of such a stream (`stored_stream`).  When
`recorder.integrity.deferred_compression` replaces the streams by packed ones, the recorded bytes
can therefore
be restored from the packed bytes, and every digest of the journal can be checked as before:
`RecordedData` and `RecordedIndex` are the recorded files.

The journal's record ``pack`` names the packed files before they replace the recorded ones.  A
session that was interrupted in between has the recorded files, and is complete.  The length of the
data file shows which files a session has.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from recorder.codecs import channel_files
from recorder.codecs.storage import ChannelReader, open_channel
from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.codecs.xz import stored_bytes, stored_stream

_INDEX = np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class PackedChannel:
    """The files of a packed channel, as the journal names them.

    Attributes:
        channel: path of the data file, relative to the session (``lidar/rng``).
        length: bytes of the data file; fewer than were recorded.
        digests: BLAKE3 of the data file and of the index file.
        md5: their MD5, as hex digits.
        kept: ranges of samples ``[start, stop]`` whose streams are as they were recorded.
    """

    channel: str
    length: int
    digests: tuple[bytes, bytes]
    md5: tuple[str, str]
    kept: tuple[tuple[int, int], ...] = ()

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> PackedChannel:
        """Convert the values of a journal record; KeyError, TypeError, ValueError if invalid."""
        data, index = values["digests"]
        data_md5, index_md5 = values["md5"]
        kept = tuple((int(start), int(stop)) for start, stop in values["kept"])
        length = int(values["length"])
        return cls(str(values["channel"]), length, (data, index), (data_md5, index_md5), kept)

    def to_record(self) -> dict[str, Any]:
        """Return values of the journal's record."""
        return asdict(self)

    @property
    def files(self) -> tuple[str, str]:
        """Paths of data file and index file, relative to the session."""
        return list_channel_files(self.channel)

    def is_in_place(self, session: Path) -> bool:
        """Return whether the session has the packed files, and not the recorded ones."""
        try:
            return (session / self.channel).stat().st_size == self.length
        except OSError:
            return False


def list_channel_files(channel: str) -> tuple[str, str]:
    """Return paths of data file and index file of a channel ``STREAM/NAME``."""
    stream, _, name = channel.partition("/")
    data, index = channel_files(name, "lzmaf")
    return f"{stream}/{data}", f"{stream}/{index}"


def find_packed(session: Path, packed: Mapping[str, PackedChannel]) -> dict[str, PackedChannel]:
    """Return the packed channels whose files a session has, by the paths of both files."""
    there = [entry for entry in packed.values() if entry.is_in_place(session)]
    return {name: entry for entry in there for name in entry.files}


class RecordedData(io.RawIOBase):
    """The recorded data file of a packed channel, restored from the packed one; read-only.

    Args:
        folder: the stream's folder, or one with the channel's two files.
        spec: the channel.
        kept: as in `PackedChannel`.

    Raises:
        FormatError: the packed files are damaged; also when it is read.
    """

    def __init__(self, folder: Path, spec: ChannelSpec, kept: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self._reader = open_channel(folder, spec.name, spec.meta())
        count = len(self._reader)
        self._kept = np.zeros(count, np.bool_)
        for start, stop in kept:
            self._kept[start:stop] = True
        sizes = np.full(count, stored_bytes(spec.sample_bytes), np.int64)
        for at in np.flatnonzero(self._kept):
            sizes[at] = len(self._reader.encoded(int(at)))
        self.ends = np.concatenate([[0], np.cumsum(sizes)])
        self._at = 0
        self._last: tuple[int, bytes] = (-1, b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: int(self.ends[-1])}
        self._at = base[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, fewer at the end of a sample."""
        sample = int(np.searchsorted(self.ends, self._at, side="right")) - 1
        if sample >= len(self._kept):
            return b""
        if self._last[0] != sample:
            self._last = sample, restore_stream(self._reader, sample, bool(self._kept[sample]))
        start = self._at - int(self.ends[sample])
        piece = self._last[1][start:] if size < 0 else self._last[1][start : start + size]
        self._at += len(piece)
        return piece

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()


class RecordedIndex(io.BytesIO):
    """The recorded index file of a packed channel; arguments and errors of `RecordedData`."""

    def __init__(self, folder: Path, spec: ChannelSpec, kept: Sequence[tuple[int, int]]) -> None:
        with RecordedData(folder, spec, kept) as data:
            super().__init__(data.ends.astype(_INDEX).tobytes())


RecordedFile = BinaryIO | RecordedData | RecordedIndex
"""A file as it was recorded, opened for reading."""


def open_recorded(
    session: Path,
    name: str,
    packed: Mapping[str, PackedChannel],
    specs: Mapping[str, StreamSpec],
    staged: Path | None = None,
) -> RecordedFile:
    """Open a file of a session as it was recorded, even if it is packed now; FormatError, OSError.

    Args:
        session: its folder.
        name: path of the file, relative to it.
        packed: as `find_packed` returns it.
        specs: the streams.
        staged: a folder that has the packed files; None: that of the stream.
    """
    entry = packed.get(name)
    if entry is None:
        return (session / name).open("rb", buffering=0)
    stream, _, channel = entry.channel.partition("/")
    kind = RecordedData if name == entry.channel else RecordedIndex
    return kind(staged or session / stream, specs[stream].channel(channel), entry.kept)


def restore_stream(reader: ChannelReader, sample: int, kept: bool) -> bytes:
    """Return a sample's stream as it was recorded; FormatError if the packed one is damaged."""
    if kept:
        return reader.encoded(sample)
    return stored_stream(reader[sample])
