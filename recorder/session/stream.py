"""One stream of a session on disk, for reading; see `recorder.session.reader`."""

from __future__ import annotations

import json
import math
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs import indexed_channels
from recorder.codecs.storage import ChannelReader, open_channel
from recorder.codecs.streams import TIME_CHANNELS, ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, SessionError

BATCH_BYTES = 1 << 20
"""Decoded bytes of a batch of `Stream.iterate` by default (one sample at least)."""
BATCH_SAMPLES = 1024
SEARCH_STAMPS = 65_536
"""Stamps that a search by time keeps in memory: half a megabyte."""
_NO_STAMPS = 0, np.empty(0, np.int64)  # index of the first stamp in memory, and the stamps


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive samples of one stream.

    Attributes:
        stream: name of the stream.
        start: index of the first sample.
        t_ns: int64 [n], ends of the measurements, epoch ns.
        data: per channel an array [n, *shape] of the channel's dtype.
    """

    stream: str
    start: int
    t_ns: npt.NDArray[np.int64]
    data: Mapping[str, npt.NDArray[Any]]


class Stream:
    """One stream: a roverd sensor folder; every sample has one value in each channel.

    Several threads may read samples at once.

    ::

        camera = session.streams["camera"]
        len(camera)                              # samples that all channels hold
        camera.sample(-1)["video.avi"]           # uint8 [height, width, 3]
        camera.read(10, 20)["video.avi"]         # uint8 [10, height, width, 3]
        for i in camera.between(t0, t1): ...     # indices of the samples in [t0, t1)

    Attributes:
        path: the stream's folder.
        name: its name.
        spec: its driver's declaration; None in a plain roverd trace.
        meta: per channel ``{format, type, shape, desc}``, from ``meta.json``; a channel that
            ``meta.json`` must not declare is here in place of its index (`read_channels`).
        offset_ns: epoch ns minus ``t_mono``; None if times come from ``ts``.
        channels: a reader per channel, opened at its first use.
        epochs: starts of the driver, ``[{epoch, first_sample, ...}]``; None until closed.
        whole: the stream itself; the recorded stream of a part (`recorder.session.session_part`).
        first: index of the first sample in `whole`.
        replaced: channels that are not the recorded ones: redacted pictures.
    """

    def __init__(
        self,
        path: Path,
        *,
        spec: StreamSpec | None = None,
        offset_ns: int | None = None,
        epochs: Sequence[Mapping[str, Any]] | None = None,
        partial: bool = False,
        redacted: Path | None = None,
    ) -> None:
        """Open a stream.

        Args:
            path: the stream's folder.
            spec: its declaration.
            offset_ns: epoch ns minus ``t_mono``; None: take times from ``ts``.
            epochs: its epochs, as ``session.json`` holds them.
            partial: accept files that end in the middle of a sample; else a FormatError.
            redacted: a folder with channels that take the place of recorded ones, and their
                ``meta.json``; None: there is none.

        Raises:
            FormatError: ``meta.json`` is not one of roverd's.
        """
        self.path = path
        self.name = path.name
        self.spec = spec
        self.epochs = epochs
        self.meta = read_channels(path)
        replaced = {} if redacted is None else read_meta(redacted)
        self.replaced = frozenset(replaced)
        self.meta |= replaced
        if spec is not None and replaced:
            channels = tuple(_redeclare(channel, replaced) for channel in spec.channels)
            self.spec = replace(spec, channels=channels)
        folders = {name: redacted for name in replaced if redacted is not None}
        self.channels = Channels(path, self.meta, partial, folders)
        self.offset_ns = offset_ns
        self.whole: Stream = self
        self.first = 0
        self._length: int | None = None
        self._times: npt.NDArray[np.int64] | None = None
        self._searched = _NO_STAMPS
        self._kept: OrderedDict[tuple[str, int], npt.NDArray[Any]] = OrderedDict()
        self._kept_bytes = self._most_bytes = 0

    @property
    def data_channels(self) -> list[str]:
        """Names of the channels that are not times or numbers of samples."""
        return [name for name in self.meta if name not in TIME_CHANNELS]

    @property
    def has_times(self) -> bool:
        """True if its samples have times (processed sensors of roverd may have none)."""
        return "ts" in self.meta

    @property
    def sample_bytes(self) -> int:
        """Decoded bytes of one sample, over all its data channels."""
        return sum(_count_decoded_bytes(self.meta[name]) for name in self.data_channels)

    def __len__(self) -> int:
        """Return the number of whole samples: the smallest number in any channel.

        Raises:
            FormatError: a channel is missing or damaged.
        """
        if self._length is None:
            # ts comes last: it never counts more samples than the others.
            names = sorted(self.meta, key=lambda name: name == "ts")
            self._length = min((len(self.channels[name]) for name in names), default=0)
        return self._length

    def times(self, start: int = 0, stop: int | None = None) -> npt.NDArray[np.int64]:
        """Return ends of the measurements of samples [start, stop), int64 [n], epoch ns.

        Exact where the session has ``t_mono``; else from ``ts``, whose float64 seconds resolve
        238 ns in this century.

        Raises:
            IndexError: the range reaches beyond the stream.
            SessionError: the stream has no times.
            FormatError: a stamp is not a number, or exceeds int64 ns.
        """
        start, stop = self._check_range(start, stop)
        if self._times is not None:
            return self._times[start:stop]
        if self.offset_ns is not None and "t_mono" in self.meta:
            mono = self.channels["t_mono"].read(start, stop).astype(np.int64)
            return np.asarray(mono + self.offset_ns, np.int64)
        if "ts" not in self.meta:
            raise SessionError(f"{self.path}: has no times: no channel 'ts'")
        return self._convert_stamps(self.channels["ts"].read(start, stop), start)

    def _convert_stamps(self, ts: npt.NDArray[Any], start: int) -> npt.NDArray[np.int64]:
        good = np.abs(ts) < 9.2e9
        if not good.all():  # NaN is not below anything
            at = int(np.argmin(good))
            raise FormatError(f"{self.path / 'ts'}: sample {start + at}: {ts[at]} is no time")
        whole = np.floor(ts)
        fraction = np.rint((ts - whole) * 1e9)
        return np.asarray(whole.astype(np.int64) * 1_000_000_000 + fraction.astype(np.int64))

    @property
    def t_ns(self) -> npt.NDArray[np.int64]:
        """Ends of all measurements, int64 [n], epoch ns; cached: 8 bytes a sample.  See `times`."""
        if self._times is None:
            self._times = self.times()
            self._times.setflags(write=False)
        return self._times

    @property
    def seq(self) -> npt.NDArray[np.uint64] | None:
        """Sample numbers within their epochs, uint64 [n]; None if they are not recorded."""
        return self._read_optional("seq")

    @property
    def t_dev_ns(self) -> npt.NDArray[np.int64] | None:
        """The device's own times, int64 [n] ns; None if the device has no clock."""
        values = self._read_optional("t_dev")
        return None if values is None else values.astype(np.int64)

    def _read_optional(self, name: str) -> npt.NDArray[Any] | None:
        return self.channels[name].read(0, len(self)) if name in self.meta else None

    def sample(
        self, index: int, channels: Sequence[str] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return one sample: per channel an array of the channel's shape.

        Args:
            index: its index; negative from the end.
            channels: names of channels; None: all except the time channels.

        Raises:
            IndexError: there is no such sample.
            SessionError: there is no such channel.
            FormatError: a channel's bytes do not fit its format.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path}: sample {index} of {len(self)}")
        index %= len(self)
        return {name: self._read_value(name, index) for name in self._check_names(channels)}

    def remember(self, most_bytes: int) -> None:
        """Make `sample` cache the values that it returned last, for repeated requests.

        The values must not be written to.  Not for several threads.

        Args:
            most_bytes: that they may take.
        """
        self._most_bytes = most_bytes
        self._kept, self._kept_bytes = OrderedDict(), 0

    def _read_value(self, channel: str, index: int) -> npt.NDArray[Any]:
        if not self._most_bytes:
            return self.channels[channel][index]
        if (value := self._kept.pop((channel, index), None)) is None:
            value = self.channels[channel][index]
            value.flags.writeable = False
            self._kept_bytes += value.nbytes
        self._kept[channel, index] = value
        while self._kept_bytes > self._most_bytes and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.nbytes
        return value

    def read(
        self, start: int = 0, stop: int | None = None, channels: Sequence[str] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return samples [start, stop), all in memory: per channel an array [n, *shape].

        Raises:
            IndexError: the range reaches beyond the stream.
            SessionError, FormatError: as for `sample`.
        """
        start, stop = self._check_range(start, stop)
        return {name: self.channels[name].read(start, stop) for name in self._check_names(channels)}

    def iterate(
        self,
        batch: int | None = None,
        channels: Sequence[str] | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
    ) -> Iterator[Batch]:
        """Yield samples [start, stop) in batches; memory is that of one batch.

        Args:
            batch: samples of one batch; None: about a megabyte.
            channels: names of channels; None: all except the time channels.

        Raises:
            IndexError, SessionError, FormatError: as for `read`.
        """
        start, stop = self._check_range(start, stop)
        names = self._check_names(channels)
        if batch is None:
            size = sum(_count_decoded_bytes(self.meta[name]) for name in names)
            batch = max(1, min(BATCH_SAMPLES, BATCH_BYTES // max(1, size)))
        elif batch < 1:
            raise ValueError(f"a batch of {batch} samples")
        for at in range(start, stop, batch):
            end = min(at + batch, stop)
            yield Batch(self.name, at, self.times(at, end), self.read(at, end, names))

    def at(self, t_ns: int) -> int:
        """Return the index of the sample nearest to a time (the earlier of two equally near ones).

        Raises:
            IndexError: the stream has no sample.
        """
        if (index := self.nearest(t_ns)) is None:
            raise IndexError(f"{self.path}: has no sample")
        return index

    def nearest(self, t_ns: int, tolerance_ns: int | None = None) -> int | None:
        """Return the index of the sample nearest to a time, as `at`.

        Args:
            t_ns: epoch ns.
            tolerance_ns: largest distance, included; None: any.

        Returns:
            index of the sample; None where no sample is near enough.
        """
        after = self.first_at(t_ns)
        before, stop = max(0, after - 1), min(after + 1, len(self))
        distances = [abs(stamp - t_ns) for stamp in self.times(before, stop).tolist()]
        if not distances or (tolerance_ns is not None and min(distances) > tolerance_ns):
            return None
        return before + distances.index(min(distances))

    def between(self, start_ns: int | None, end_ns: int | None) -> range:
        """Return indices of the samples in [start_ns, end_ns); None is open."""
        first = 0 if start_ns is None else self.first_at(start_ns)
        last = len(self) if end_ns is None else self.first_at(end_ns)
        return range(first, max(first, last))

    def first_at(self, t_ns: int) -> int:
        """Return the index of the first sample at or after a time; the length after the last.

        `SEARCH_STAMPS` stamps are kept in memory, so that times that rise are found fastest.
        """
        start, times = self._searched
        is_end = start + len(times) == len(self)
        if not len(times) or not (
            (start == 0 or times[0] < t_ns) and (is_end or t_ns <= times[-1])
        ):
            start = 0
            if len(self) > SEARCH_STAMPS:
                stamps = range(len(self))
                at = bisect_left(stamps, t_ns, key=lambda index: self.times(index, index + 1)[0])
                start = max(0, at - SEARCH_STAMPS // 8)
            times = self.times(start, min(start + SEARCH_STAMPS, len(self)))
            self._searched = start, times
        return start + int(np.searchsorted(times, t_ns))

    def refresh(self) -> None:
        """Read the length again: the stream may have grown."""
        self.close()
        self._length = None
        self._times = None
        self._searched = _NO_STAMPS

    def close(self) -> None:
        """Close all files; the next use opens them again."""
        self.channels.close()

    def _check_names(self, channels: Sequence[str] | None) -> Sequence[str]:
        if channels is None:
            return self.data_channels
        for name in channels:
            if name not in self.meta:
                known = ", ".join(self.meta)
                raise SessionError(f"{self.path}: has no channel {name!r}; its channels: {known}")
        return channels

    def _check_range(self, start: int, stop: int | None) -> tuple[int, int]:
        stop = len(self) if stop is None else stop
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"{self.path}: samples [{start}, {stop}) of {len(self)}")
        return start, stop

    def __repr__(self) -> str:
        return f"Stream({str(self.path)!r}: {', '.join(self.meta)})"


class Channels(Mapping[str, ChannelReader]):
    """Channel readers by name, opened at their first use."""

    def __init__(
        self,
        path: Path,
        meta: Mapping[str, Mapping[str, Any]],
        partial: bool,
        elsewhere: Mapping[str, Path],
    ) -> None:
        self._path, self._elsewhere = path, elsewhere
        self._partial = partial
        self._meta = meta
        self._open: dict[str, ChannelReader] = {}
        self._opening = threading.Lock()

    def __getitem__(self, name: str) -> ChannelReader:
        with self._opening:
            if name not in self._open:
                path = self._elsewhere.get(name, self._path)
                try:
                    self._open[name] = open_channel(
                        path, name, self._meta[name], partial=self._partial
                    )
                except OSError as error:
                    raise FormatError(f"{path / name}: cannot be read: {error.strerror}") from None
            return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._meta)

    def __len__(self) -> int:
        return len(self._meta)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _redeclare(channel: ChannelSpec, replaced: Mapping[str, Mapping[str, Any]]) -> ChannelSpec:
    """Return a channel's declaration, or that of the channel in its place."""
    if (entry := replaced.get(channel.name)) is None:
        return channel
    return ChannelSpec(
        channel.name, entry["format"], entry["type"], tuple(entry["shape"]), entry["desc"]
    )


def read_channels(folder: Path) -> dict[str, dict[str, Any]]:
    """Read a sensor's channels: its ``meta.json``, with the entries of the files beside it.

    A format that roverd's readers refuse has its index in ``meta.json``, such as ``NAME_i``, and
    its own entry in ``NAME.json``.  Here that entry takes the place of the index.

    Raises:
        FormatError: a file is missing or not JSON, or an entry lacks a key or has a wrong value.
    """
    meta = read_meta(folder)
    channels = {}
    for name, entry in meta.items():
        for own in indexed_channels(name):
            path = folder / f"{own}.json"
            if own not in meta and path.exists():
                channels[own] = _check_entry(path, own, _read_json(path))
                break
        else:
            channels[name] = entry
    return channels


def read_meta(folder: Path) -> dict[str, dict[str, Any]]:
    """Read a sensor's ``meta.json``: per channel ``{format, type, shape, desc}``.

    Raises:
        FormatError: it is missing or not JSON, or an entry lacks a key or has a wrong value.
    """
    path = folder / "meta.json"
    meta = _read_json(path)
    if not isinstance(meta, dict):
        raise FormatError(f"{path}: a {type(meta).__name__}, not a mapping of channels")
    for name, entry in meta.items():
        if Path(name).name != name:
            raise FormatError(f"{path}: {name!r} is no name of a file in this folder")
        _check_entry(path, name, entry)
    return meta


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from None


def _check_entry(path: Path, name: str, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise FormatError(f"{path}: {name}: a {type(entry).__name__}, not a mapping")
    for key, (good, text) in _META_KEYS.items():
        if not good(entry.get(key)):
            raise FormatError(f"{path}: {name}: {key}: needs {text}, not {entry.get(key)!r}")
    return entry


def _is_dtype(value: Any) -> bool:
    try:
        return isinstance(value, str) and np.dtype(value).kind in "buifc"
    except TypeError:
        return False


def _is_shape(value: Any) -> bool:
    # bool is an int to Python, but no size.
    return isinstance(value, list) and all(type(n) is int and n > 0 for n in value)


_META_KEYS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "format": (lambda value: isinstance(value, str), "a text"),
    "type": (_is_dtype, "a numpy type such as u2"),
    "shape": (_is_shape, "a list of sizes"),
}


def _count_decoded_bytes(entry: Mapping[str, Any]) -> int:
    size: int = np.dtype(entry["type"]).itemsize * math.prod(entry["shape"])
    return size
