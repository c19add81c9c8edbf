"""Playback of a recorded session: its samples as they were stored, in order of time.

Compressed frames are passed on unchanged, so that a replayed session has identical payload bytes.
Losses of the recorded session are played as holes, so that the accounts of a replay report them.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recorder.codecs import CHANNEL_FORMATS, channel_files
from recorder.codecs.points import make_columns
from recorder.codecs.streams import TIME_CHANNELS, ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, ProtocolError
from recorder.session.events import INCOMPLETE
from recorder.session.loss_accounts import (
    Gap,
    Run,
    find_losses_beyond_gaps,
    gaps,
    group_lost_events,
    scan,
)
from recorder.session.reader import Session
from recorder.session.stream import Stream

BATCH_NS = 8_000_000
"""Small samples within this time form one chunk, as live drivers send them.

Samples of a 100 Hz sensor still go one by one, whatever their jitter.
"""
SMALL_BYTES = 4096
"""Samples up to this size are small."""
_WINDOW = 1024  # samples whose times are read at once
_MAX_FILE = 16 << 20  # bytes of an intrinsics file

Values = npt.NDArray[Any] | list[bytes]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive samples of one stream, without a gap.

    Attributes:
        stream: name of the recorded stream.
        start: index of the first sample.
        seq: its recorded number (its index without recorded numbers).
        t_ns: int64 [n], epoch ns.
        t_dev_ns: int64 [n], or None without a device clock.
        data: per channel a list of encoded frames, one per sample, or an array [n, *shape].
    """

    stream: str
    start: int
    seq: int
    t_ns: npt.NDArray[np.int64]
    t_dev_ns: npt.NDArray[np.int64] | None
    data: Mapping[str, Values]


@dataclass(frozen=True, slots=True)
class Hole:
    """Missing samples of the recorded session.

    Attributes:
        stream: name of the recorded stream.
        t_ns: epoch ns of the sample after it, or of its event.
        count: number of samples; None for an uncounted loss.
        estimate: estimated number of samples of an uncounted loss.
        cause: recorded cause, if there is an event.
    """

    stream: str
    t_ns: int
    count: int | None
    estimate: int | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Flaw:
    """Samples of the recorded session that lack parts.

    Attributes:
        stream: name of the recorded stream.
        t_ns: epoch ns of the event.
        samples, parts: how many samples, and how many parts they lack together.
        cause: recorded cause.
    """

    stream: str
    t_ns: int
    samples: int
    parts: int
    cause: str


def find_flaws(session: Session, streams: Collection[str]) -> list[Flaw]:
    """Return the incomplete samples of some streams, in order of time.

    Raises:
        FormatError: the event log cannot be read.
    """
    found = [
        Flaw(event["stream"], event["t_ns"], event["count"], event["parts"], str(event["cause"]))
        for event in session.events()
        if event.get("type") == INCOMPLETE and event.get("stream") in streams
        if all(isinstance(event.get(key), int) for key in ("t_ns", "count", "parts"))
    ]
    return sorted(found, key=get_play_time_ns)


def play(
    session: Session, streams: Sequence[str] | None = None, *, start_ns: int | None = None
) -> Iterator[Chunk | Hole]:
    """Yield samples and holes of several streams in order of time (a batch by its last sample).

    Memory is bounded by one large sample, or a window of small samples, per stream.

    Args:
        session: the recorded session.
        streams: names of its streams; None: all.
        start_ns: where to begin, epoch ns.

    Raises:
        SessionError: there is no stream of that name.
        FormatError: a channel's bytes do not fit its format.
    """
    names = list(session.streams) if streams is None else list(streams)
    lost = group_lost_events(session.events())
    feeds: list[Iterator[Chunk | Hole]] = []
    for name in names:
        stream = session.stream(name)
        first = 0 if start_ns is None else stream.between(start_ns, None).start
        feeds.append(_play_samples(stream, first))
        unseen = _find_hidden_losses(stream, lost.get(name, ()))
        feeds.append(hole for hole in unseen if hole.t_ns >= (start_ns or 0))
    return heapq.merge(*feeds, key=get_play_time_ns)


def get_play_time_ns(item: Chunk | Hole | Flaw) -> int:
    """Return when an item is played: the time of its last sample, hole or event; epoch ns."""
    return int(item.t_ns[-1]) if isinstance(item, Chunk) else item.t_ns


def is_small(stream: Stream) -> bool:
    """Return whether samples of a stream go together: they are small, though some may be large."""
    if stream.spec is not None and any(c.format == "bytes" for c in stream.spec.channels):
        return stream.spec.encoded_bytes <= SMALL_BYTES
    return stream.sample_bytes <= SMALL_BYTES


def _play_samples(stream: Stream, first: int) -> Iterator[Chunk | Hole]:
    small = is_small(stream)
    holes = (gap for gap in gaps(stream) if gap.index >= first)
    gap: Gap | None = next(holes, None)
    has_seq = "seq" in stream.meta
    for at in range(first, len(stream), _WINDOW):
        stop = min(at + _WINDOW, len(stream))
        times = stream.times(at, stop)
        seq = stream.channels["seq"].read(at, stop) if has_seq else np.arange(at, stop)
        window = _read_window(stream, at, times) if small else None
        channels = stream.data_channels if small else ()
        blocks = {end - at for n in channels for end in stream.channels[n].block_ends(at, stop)}
        for start, end in _find_cuts(times, seq.astype(np.int64), small, blocks):
            if gap is not None and gap.index == at + start:
                yield Hole(stream.name, int(times[start]), gap.count)
                gap = next(holes, None)
            if window is None:
                yield read_chunk(stream, at + start, int(seq[start]), times[start:end])
            else:
                yield _slice_window(window, int(seq[start]), start, end)


def _read_window(stream: Stream, at: int, times: npt.NDArray[np.int64]) -> Chunk | None:
    """Read a window of small samples at once; return None if a sample of it is damaged.

    Reading it batch by batch takes ten times as long where other threads compute, because each call
    of the kernel waits for the interpreter.
    """
    try:
        return read_chunk(stream, at, 0, times)
    except FormatError:  # the samples before the damage are played
        return None


def _slice_window(window: Chunk, seq: int, start: int, end: int) -> Chunk:
    t_dev = window.t_dev_ns
    return Chunk(
        window.stream,
        window.start + start,
        seq,
        window.t_ns[start:end],
        None if t_dev is None else t_dev[start:end],
        {name: values[start:end] for name, values in window.data.items()},
    )


def _find_cuts(
    times: npt.NDArray[np.int64], seq: npt.NDArray[np.int64], small: bool, blocks: Iterable[int]
) -> Iterator[tuple[int, int]]:
    """Yield ranges [start, end) of a window that make one chunk each."""
    if not small:
        yield from ((i, i + 1) for i in range(len(times)))
        return
    gaps = (np.flatnonzero(np.diff(seq) != 1) + 1).tolist()
    breaks = sorted({*gaps, *blocks, len(times)} - {0})
    start = 0
    for stop in breaks:
        while start < stop:
            end = int(np.searchsorted(times[start:stop], times[start] + BATCH_NS)) + start
            end = max(end, start + 1)  # progress also if stamps do not increase
            yield start, end
            start = end


def read_chunk(stream: Stream, start: int, seq: int, times: npt.NDArray[np.int64]) -> Chunk:
    """Read consecutive samples.

    Args:
        stream: the recorded stream.
        start, seq: index and number of the first sample.
        times: their stamps, int64 [n], epoch ns.

    Raises:
        FormatError: a channel's bytes do not fit its format.
    """
    stop = start + len(times)
    t_dev = None
    if "t_dev" in stream.meta:
        t_dev = stream.channels["t_dev"].read(start, stop).astype(np.int64)
    data: dict[str, Values] = {}
    for name in stream.data_channels:
        reader = stream.channels[name]
        if CHANNEL_FORMATS[reader.format].variable:
            data[name] = reader.encoded_range(start, stop)
        else:
            data[name] = reader.read(start, stop)
    return Chunk(stream.name, start, seq, times, t_dev, data)


def _find_hidden_losses(stream: Stream, events: Sequence[Mapping[str, Any]]) -> list[Hole]:
    """Return losses without a gap: uncounted ones, and those at the end of an epoch."""
    if not events:
        return []
    runs = [item for item in scan(stream) if isinstance(item, Run)]
    counted = {id(event): count for event, count in find_losses_beyond_gaps(stream, runs, events)}
    holes = []
    for event in events:
        t_ns, count = event.get("t_ns"), counted.get(id(event))
        if isinstance(t_ns, int) and (event.get("count") is None or count):
            estimate = None if count else event.get("estimate")
            holes.append(Hole(stream.name, t_ns, count, estimate, event.get("cause")))
    return sorted(holes, key=get_play_time_ns)


def recorded_spec(stream: Stream) -> StreamSpec:
    """Return a recorded stream's declaration, for the source of a replay.

    It is the recorded declaration; for a plain roverd trace it is made from ``meta.json`` and the
    stamps.  The intrinsics files are read again, and the source is finite.

    Raises:
        FormatError: it cannot be declared: a channel of a format or name that is not recorded,
            an intrinsics file that cannot be read.
    """
    files = _read_intrinsics(stream)
    if stream.spec is not None:
        return replace(stream.spec, finite=True, files=files)
    length = len(stream)
    rate_hz = None
    size = 0
    if length > 1:
        ends = stream.times(0, 1), stream.times(length - 1, length)
        seconds = (int(ends[1][0]) - int(ends[0][0])) / 1e9
        rate_hz = round((length - 1) / seconds, 3) if seconds > 0 else None
        paths = (stream.path / name for name in stream.data_channels)
        size = sum(p.stat().st_size for p in paths if p.is_file()) // length
    try:
        return StreamSpec(
            name=stream.name,
            channels=tuple(_create_channel_spec(stream, name) for name in stream.data_channels),
            rate_hz=rate_hz,
            device_clock="t_dev" in stream.meta,
            bytes_per_sample=size,
            finite=True,
            files=files,
        )
    except ProtocolError as error:
        raise FormatError(f"{stream.path}: cannot be replayed: {error}") from None


def _create_channel_spec(stream: Stream, name: str) -> ChannelSpec:
    entry = stream.meta[name]
    found = CHANNEL_FORMATS.get(entry["format"])
    text, unit = _parse_description(entry)
    return ChannelSpec(
        name=name,
        format=entry["format"] if found is None else found.recorded_as,
        dtype=np.dtype(entry["type"]).str[1:],
        shape=tuple(entry["shape"]),
        description=text,
        unit=unit,
        device_time=name == "t_col",
        columns=make_columns(entry.get("columns", ())),
    )


def find_unit(stream: Stream, name: str) -> str:
    """Return the unit of a channel; empty without one."""
    for channel in () if stream.spec is None else stream.spec.channels:
        if channel.name == name:
            return channel.unit
    return _parse_description(stream.meta[name])[1]


def _parse_description(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return description and unit of a channel in ``meta.json``."""
    text = str(entry.get("desc") or entry.get("description") or "")
    found = re.fullmatch(r"(.*?) ?\[([^\[\]]+)\]", text)
    return (found[1], found[2]) if found else (text, "")


def _read_intrinsics(stream: Stream) -> dict[str, str]:
    """Return the text of files beside the channels, such as ``lidar.json``, by name."""
    known = {"meta.json", *TIME_CHANNELS, *(f"{name}.json" for name in stream.replaced)}
    for name, entry in stream.meta.items():
        known.update(channel_files(name, entry["format"]))
        if (found := CHANNEL_FORMATS.get(entry["format"])) is not None:
            known.update(found.side_files(name))
    for channel in () if stream.spec is None else stream.spec.channels:  # also those left out
        known.update(CHANNEL_FORMATS[channel.format].side_files(channel.name))
    declared = () if stream.spec is None else stream.spec.files
    names = {p.name for p in stream.path.glob("*.json") if not p.name.startswith(".")}
    files = {}
    for name in sorted((names | set(declared)) - known):
        path = stream.path / name
        try:
            if path.stat().st_size > _MAX_FILE:
                raise FormatError(f"{path}: too large for an intrinsics file ({_MAX_FILE} bytes)")
            files[name] = path.read_text("utf-8")
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise FormatError(f"{path}: is no text: {error}") from None
    return files
