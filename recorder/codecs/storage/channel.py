"""Interface of a channel format: append-only writer, reader with random access, storage.

A channel is one file (or, for blobs, one folder) of a sensor's folder; ``meta.json`` beside it has
its format, type and shape (roverd, ``roverd.channels``). All numbers are little-endian.
"""

from __future__ import annotations

import math
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recorder.codecs import CHANNEL_FORMATS, channel_files
from recorder.codecs.points import Column, make_columns
from recorder.codecs.streams import ChannelSpec
from recorder.common.errors import FormatError, ProtocolError, StorageError
from recorder.common.files import AppendFile, Buffer, Closeable, Disk

BATCH_BYTES = 4 << 20
"""Default number of decoded bytes per batch of `ChannelReader.iterate`."""

Units = npt.NDArray[np.int64]
"""Array of `ChannelReader.units`."""


class ChannelWriter(ABC):
    """Append-only writer of one channel.

    Usage::

        writer = create_writer(folder, spec, disk, rate_hz)
        for message in messages:
            writer.append(frame, count, sizes)
        writer.finish()
        for file in writer.files:
            file.sync()
            file.close()

    Errors of the disk (OSError) pass through; after one, the writer cannot be used any more.

    Attributes:
        files: all files that it appends to. Between two calls of `append` each file holds whole
            samples only, so that its length may be committed and resumed at.
    """

    files: list[AppendFile]

    @abstractmethod
    def append(self, frame: Buffer, count: int, sizes: npt.NDArray[np.uint32] | None) -> None:
        """Append `count` encoded samples; the buffer is kept, not copied, until it is written.

        Args:
            frame: the encoded samples one after another; ``lzma``: one xz stream of all samples.
            count: number of samples in `frame`.
            sizes: u4 [count], bytes of each sample; needed by variable formats only.

        Raises:
            StorageError: the format cannot hold the samples.
        """

    def finish(self) -> None:  # noqa: B027  (most formats want nothing)
        """Write the end of the format; do not sync or close."""


class ChannelReader(Closeable, ABC):
    """Reader of one channel with random access, in bounded memory.

    >>> with open_channel(folder, "rng", meta["rng"]) as channel:  # doctest: +SKIP
    ...     last = channel[-1]  # [*shape]
    ...     block = channel.read(10, 20)  # [10, *shape]
    ...     for sample in channel:
    ...         ...

    Arrays are the caller's own: fresh, writable, in native byte order where it is little-endian.
    Several threads may read at once. With ``lzma`` they take turns, because its samples are decoded
    one after another.

    Attributes:
        name: name of the channel and its file.
        path: the file (or folder).
        format: roverd's name of the format.
        dtype: dtype of the values, little-endian.
        shape: shape of one sample.
        tail_bytes: number of bytes after the last whole sample; 0 unless the channel was opened
            with `partial`.
    """

    tail_bytes: int = 0

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:  # noqa: ARG002
        self.name = path.name
        self.path = path
        self.format = layout.format
        self.dtype = layout.dtype
        self.shape = layout.shape
        self.sample_bytes = layout.sample_bytes

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of whole samples."""

    @abstractmethod
    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read samples as `read` does, with valid bounds."""

    @abstractmethod
    def encoded(self, index: int) -> bytes:
        """Return one sample's bytes as stored; negative indices count from the end.

        ``lzmaf``: its xz stream; ``mjpg`` and ``jpg``: the JPEG; ``npz``: the file; ``points``: the
        packed sweep; ``bytes`` and ``raw``: as they are; ``lzma``, which compresses samples
        together: the values, uncompressed.
        """

    def encoded_range(self, start: int, stop: int) -> list[bytes]:
        """Return `encoded` of the samples `start` to `stop` (not included), which exist."""
        return [self.encoded(index) for index in range(start, stop)]

    def block_ends(self, start: int, stop: int) -> list[int]:  # noqa: ARG002
        """Return the ends, from `start` to `stop`, of blocks of samples compressed together."""
        return []

    def block(self, start: int, stop: int) -> bytes | None:  # noqa: ARG002
        """Return the stored bytes of samples that are a whole number of blocks; else None."""
        return None

    def units(self, start: int, stop: int) -> Units:  # noqa: ARG002
        """Return the units of the data file that hold the samples `start` to `stop` (not included).

        Returns:
            int64 [n, 4]: first sample, number of samples, offset and bytes of each unit; empty if
            unknown.
        """
        return np.empty((0, 4), np.int64)

    @abstractmethod
    def close(self) -> None:
        """Close the files; may be called twice."""

    def check(self, index: int) -> npt.NDArray[Any]:
        """Return one sample, [*shape]; raise FormatError also for damage that decoding ignores."""
        return self[index]

    def entry(self, index: int) -> int:
        """Return the sample at which decoding of a sample begins: itself, or a video's keyframe.

        Raises:
            IndexError: there is no such sample.
            FormatError: no keyframe comes before it.
        """
        return self._index(index)

    def check_finished(self) -> None:
        """Check the end of a closed session's file; raise FormatError if it is missing."""

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read the samples `start` to `stop` (not included).

        Returns:
            Array [stop - start, *shape] of `dtype`, fresh and writable.

        Raises:
            IndexError: the bounds are not ``0 <= start <= stop <= len``.
            FormatError: the bytes do not decode; names file and sample.
        """
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"{self.path}: samples {start} to {stop} of {len(self)}")
        return self._read(start, stop)

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        """Return one sample, [*shape]; negative indices count from the end."""
        at = self._index(index)
        return self._read(at, at + 1).reshape(self.shape)

    def iterate(self, batch: int | None = None) -> Iterator[npt.NDArray[Any]]:
        """Yield all samples in blocks [n, *shape].

        Every n is `batch` except the last; None: blocks of about 4 MiB.
        """
        if batch is None:
            batch = max(1, BATCH_BYTES // self.sample_bytes)
        if batch < 1:
            raise ValueError(f"a batch of {batch} samples")
        for start in range(0, len(self), batch):
            yield self._read(start, min(start + batch, len(self)))

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all samples one by one, each [*shape]."""
        for block in self.iterate():
            for index in range(len(block)):
                yield block[index, ...]

    def __repr__(self) -> str:
        return f"<{self.format} channel {self.path}: {len(self)} x {self.dtype} {self.shape}>"

    def _index(self, index: int) -> int:
        at = operator.index(index)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError(f"{self.path}: sample {index} of {len(self)}")
        return at

    def _take_tail(self, tail_bytes: int, partial: bool, text: str = "") -> None:
        """Store the size of the bytes after the last whole sample; FormatError unless `partial`."""
        self.tail_bytes = tail_bytes
        if tail_bytes and not partial:
            fault = text or f"{tail_bytes} bytes after the last whole sample"
            raise FormatError(f"{self.path}: {fault} ({len(self)} whole samples before)")


def sample_units(start: int, offsets: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> Units:
    """Return `ChannelReader.units` of samples that lie one by one, from `start` on."""
    rows = np.ones((len(sizes), 4), np.int64)
    rows[:, 0] = np.arange(start, start + len(sizes))
    rows[:, 2], rows[:, 3] = offsets, sizes
    return rows


class FramedReader(ChannelReader):
    """Reader of samples that are encoded one by one; holds one sample at a time.

    Raises:
        FormatError: the format cannot have the layout.
    """

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout, partial)
        self._codec = CHANNEL_FORMATS[layout.format]
        if not self._codec.fits(layout.dtype, layout.shape):
            raise FormatError(
                f"{path}: {layout.format} holds {self._codec.holds}, "
                f"not {layout.dtype} {list(layout.shape)}"
            )
        if fault := self._codec.columns_fault(layout.columns, layout.shape):
            raise FormatError(f"{path}: {fault}")
        self._decode = self._codec.decoder()

    def _where(self, index: int) -> str:
        """Return the start of messages about a sample."""
        return f"{self.path}: sample {index}"

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        block = np.empty((stop - start, *self.shape), self.dtype)
        for index in range(start, stop):
            self._decode(self.encoded(index), block[index - start, ...], self._where(index))
        return block

    def check(self, index: int) -> npt.NDArray[Any]:
        frame, value = self.encoded(index), np.empty(self.shape, self.dtype)
        self._decode(frame, value, self._where(index))
        if fault := self._codec.hidden_fault(frame):
            raise FormatError(f"{self.path}: sample {index}: {fault}")
        return value


class FileReader(ChannelReader):
    """Reader of a channel in one file; must precede `FramedReader` among the base classes."""

    def __init__(self, path: Path, layout: Layout, partial: bool = False) -> None:
        super().__init__(path, layout, partial)
        self._file = ReadFile(path)
        try:
            self._open(partial)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _open(self, partial: bool) -> None:
        """Find the samples in the file."""

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Layout:
    """Checked entry of a channel in ``meta.json``."""

    format: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    columns: tuple[Column, ...] = ()

    @classmethod
    def from_meta(cls, where: str, meta: Mapping[str, Any]) -> Layout:
        """Check an entry; raise FormatError that starts with `where`."""
        if not isinstance(meta, Mapping):
            raise FormatError(f"{where}: is a {type(meta).__name__}, not a mapping")
        for key in ("format", "type", "shape"):
            if key not in meta:
                raise FormatError(f"{where}: has no {key!r}")
        shape = meta["shape"]
        if not isinstance(shape, (list, tuple)) or any(
            not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in shape
        ):
            raise FormatError(f"{where}: shape {shape!r} is not a list of sizes > 0")
        try:
            dtype = np.dtype(meta["type"]) if isinstance(meta["type"], str) else None
        except TypeError:
            dtype = None
        if dtype is None or dtype.kind not in "biufc":
            raise FormatError(f"{where}: type {meta['type']!r} is not a numeric type")
        try:
            columns = make_columns(meta.get("columns", ()))
        except (ProtocolError, TypeError) as error:
            raise FormatError(f"{where}: columns: {error}") from None
        return cls(str(meta["format"]), dtype.newbyteorder("<"), tuple(shape), columns)

    @property
    def sample_bytes(self) -> int:
        """Size of one decoded sample in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class ReadFile(Closeable):
    """File that is read by position; every fault is a FormatError that names it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
            self._status = os.fstat(self._file.fileno())
            self.size = self._status.st_size
        except FileNotFoundError:
            raise FormatError(f"{path}: no such file") from None
        except IsADirectoryError:
            raise FormatError(f"{path}: is a folder, not a file") from None

    def in_place(self) -> bool:
        """Return whether the path still leads to this file, or to none."""
        try:
            return os.path.samestat(self._status, self.path.stat())
        except OSError:
            return True

    def peek(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from `offset`; fewer only at the end of the file."""
        data = os.pread(self._file.fileno(), length, offset)
        while 0 < len(data) < length:
            more = os.pread(self._file.fileno(), length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes from `offset`."""
        data = self.peek(offset, length)
        if len(data) != length:
            raise FormatError(f"{self.path}: ends at byte {self.size}, inside a sample")
        return data

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` (bytes, contiguous) from `offset`."""
        while out:
            got = os.preadv(self._file.fileno(), [out], offset)
            if not got:
                raise FormatError(f"{self.path}: ends inside a sample, at byte {offset}")
            out, offset = out[got:], offset + got

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


def committed_length(lengths: Mapping[str, int], path: Path) -> int:
    """Return the file's entry of `lengths`; raise StorageError without one."""
    try:
        return lengths[path.name]
    except KeyError:
        raise StorageError(f"{path}: cannot resume, no length was committed for it") from None


def reopen(disk: Disk, path: Path, length: int) -> AppendFile:
    """Reopen a file, cut to `length`; raise StorageError if it is shorter."""
    try:
        return disk.reopen(path, length)
    except ValueError as error:
        raise StorageError(f"cannot resume: {error}") from None


class Extent(ABC):
    """Extent of the whole samples in the files of one channel.

    Attributes:
        samples: number of whole samples, from the first one on.
    """

    samples: int

    @abstractmethod
    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        """Return where to cut the channel to a number of samples.

        Args:
            samples: at most `self.samples`.

        Returns:
            The samples that remain (fewer if the format cannot be cut there), and the length
            of each file by its name.
        """

    def needed(self, samples: int) -> dict[str, int]:
        """Return the length of each file without the padding that `cut` may keep at its end."""
        return self.cut(samples)[1]


class NoExtent(Extent):
    """Extent of no sample: a file is missing, or is not of its format."""

    def __init__(self, path: Path, spec: ChannelSpec) -> None:
        self._paths = [path.with_name(name) for name in channel_files(spec.name, spec.format)]
        self.samples = 0

    def cut(self, samples: int) -> tuple[int, dict[str, int]]:
        return samples, {path.name: 0 for path in self._paths if path.exists()}


class ChannelStorage:
    """Storage of one channel in one format; a format that is not recorded only has `reader`.

    Attributes:
        reader: class that opens a channel for reading.
        path: path of the channel's own file.
        spec: declaration of the channel.
        rate_hz: nominal sample rate of its stream.
    """

    reader: ClassVar[type[ChannelReader]]

    def __init__(self, path: Path, spec: ChannelSpec, rate_hz: float | None = None) -> None:
        self.path = path
        self.spec = spec
        self.rate_hz = rate_hz

    def create(self, disk: Disk) -> ChannelWriter:
        """Create the channel's files and return their writer."""
        raise NotImplementedError(self.spec.format)

    def resume(self, disk: Disk, lengths: Mapping[str, int]) -> ChannelWriter:
        """Resume at committed lengths, in bytes by file name."""
        raise NotImplementedError(self.spec.format)

    def measure(self, committed: int) -> Extent:
        """Measure the whole samples in the files; the `committed` samples are not checked.

        Raises:
            FormatError, OSError: a file is missing, or is not of the format.
        """
        raise NotImplementedError(self.spec.format)

    def known_lengths(self, samples: int) -> dict[str, int]:  # noqa: ARG002
        """Return the lengths of the files that follow from the number of samples: bytes by name."""
        return {}
