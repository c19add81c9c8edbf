"""Part of a session: an interval of time, some of the streams.

::

    part = Part(Moment.parse("10"), Moment.parse("2026-01-01T12:00:30Z"), ("camera", "imu"))
    with SessionPart("sessions/rig-1", part) as session:
        session.streams["camera"]            # its samples in the interval, numbered from 0
        session.streams["camera"].first      # index of the first of them in the whole stream
        session.whole.streams["imu"]         # all samples
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from recorder.codecs.storage import ChannelReader
from recorder.common.errors import SessionError
from recorder.session.part import Part
from recorder.session.reader import Session
from recorder.session.stream import Channels, Stream


class SessionPart(Session):
    """A part of a session, with the interface of a session.

    Processed sensors (``_NAME``) are in it, and have the same interval.  The name and the header
    are those of the whole session.

    Args:
        path: the session's folder.
        part: which part.
        lead_in: streams of video begin with the keyframe that their first picture needs.
        redacted: as for `Session`.

    Attributes:
        lead_ins: by stream, number of samples from before the interval.
        empty: names of chosen streams without a sample in the interval.

    Raises:
        SessionError: the session cannot be read, has no stream of a chosen name, or no sample in
            the interval.
    """

    def __init__(
        self, path: str | Path, part: Part, *, lead_in: bool = False, redacted: Path | None = None
    ) -> None:
        super().__init__(path, virtual=True, redacted=redacted)
        self._whole = Session(path, virtual=True, redacted=redacted)
        self.part = part
        self._with_lead_in = lead_in
        self.lead_ins: dict[str, int] = {}
        try:
            self._choose(part)
        except BaseException:
            self._whole.close()
            raise

    def _choose(self, part: Part) -> None:
        """Replace the streams by their parts."""
        begin_ns, end_ns = (
            None if moment is None else moment.in_session(self._whole)
            for moment in (part.begin, part.end)
        )
        self.interval_ns = begin_ns, end_ns
        if begin_ns is not None and end_ns is not None and begin_ns >= end_ns:
            raise SessionError(f"{self.path}: {part}: the part ends before it begins")
        for name in part.streams or ():
            if name not in self.declared:
                self.stream(name)
        self.declared = {n: spec for n, spec in self.declared.items() if self.chooses(n)}
        self.broken = {n: fault for n, fault in self.broken.items() if self.chooses(n)}
        self.empty: list[str] = []
        chosen: dict[str, Stream] = {}
        recorded = {n: s for n, s in self._whole.streams.items() if not n.startswith("_")}
        for name, stream in recorded.items():
            if not self.chooses(name):
                continue
            inside = self._cut(stream)
            if len(stream) and not len(inside):
                self.empty.append(name)
                self.declared.pop(name, None)
            else:
                chosen[name] = inside
        if not any(len(stream) for stream in chosen.values()):
            raise SessionError(f"{self.path}: has no sample: {part}")
        for name in self._whole.streams.keys() - recorded.keys():
            stream = self._whole.streams[name]
            chosen[name] = self._cut_virtual(stream, chosen.get(name[1:]))
        self.streams = dict(sorted(chosen.items()))

    def _cut(self, stream: Stream) -> Stream:
        if not stream.has_times:
            return stream
        inside = stream.between(*self.interval_ns)
        start = inside.start
        if self._with_lead_in and len(inside):
            start = min(stream.channels[name].entry(start) for name in stream.meta)
            if start < inside.start:
                self.lead_ins[stream.name] = inside.start - start
        return stream_part(stream, start, inside.stop)

    def _cut_virtual(self, stream: Stream, sensor: Stream | None) -> Stream:
        """Cut a processed sensor; one without times has the indices of its sensor."""
        if stream.has_times or sensor is None or len(stream) != len(sensor.whole):
            return self._cut(stream)
        return stream_part(stream, sensor.first, sensor.first + len(sensor))

    def interval_of(self, stream: str) -> tuple[int | None, int | None]:
        """Return the interval of a stream, which begins with its lead-in if it has one."""
        begin_ns, end_ns = self.interval_ns
        if stream in self.lead_ins:
            begin_ns = int(self.streams[stream].times(0, 1)[0])
        return begin_ns, end_ns

    @property
    def whole(self) -> Session:
        return self._whole

    @property
    def start_ns(self) -> int | None:
        start_ns, (begin_ns, _) = self._whole.start_ns, self.interval_ns
        return start_ns if begin_ns is None or start_ns is None else max(start_ns, begin_ns)

    @property
    def end_ns(self) -> int | None:
        whole_ns, (_, end_ns) = self._whole.end_ns, self.interval_ns
        return whole_ns if end_ns is None or whole_ns is None else min(whole_ns, end_ns)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the chosen streams that overlap the interval."""
        begin_ns, end_ns = self.interval_ns
        for event in super().events():
            stream, t_ns = event.get("stream"), event.get("t_ns")
            if stream and not self.chooses(stream):
                continue
            if isinstance(t_ns, int):
                duration_ns = event.get("duration_ns")
                last_ns = t_ns + (duration_ns if isinstance(duration_ns, int) else 0)
                if begin_ns is not None and last_ns < begin_ns:
                    continue
                if end_ns is not None and t_ns >= end_ns:
                    continue
            yield event

    def close(self) -> None:
        super().close()
        self._whole.close()


def stream_part(stream: Stream, start: int, stop: int) -> Stream:
    """Return the samples [start, stop) of a stream as a stream; both share their open files."""
    part = copy.copy(stream)
    part.first, part.whole = start, stream
    part.channels = _ChannelParts(stream.channels, start, stop)
    part.refresh()
    if stream.epochs is not None:
        part.epochs = _cut_epochs(stream.epochs, start, stop)
    return part


def _cut_epochs(
    epochs: Sequence[Mapping[str, Any]], start: int, stop: int
) -> list[Mapping[str, Any]]:
    """Return the epochs with samples in [start, stop)."""
    firsts = [int(entry.get("first_sample", 0)) for entry in epochs]
    found: list[Mapping[str, Any]] = []
    for entry, first, end in zip(epochs, firsts, [*firsts[1:], stop], strict=True):
        if max(first, start) < min(end, stop):
            found.append({**entry, "first_sample": max(0, first - start)})
    return found


class _ChannelParts(Channels):
    """Readers of the samples [start, stop) by name."""

    def __init__(self, channels: Mapping[str, ChannelReader], start: int, stop: int) -> None:
        self._channels, self._start, self._stop = channels, start, stop

    def __getitem__(self, name: str) -> ChannelReader:
        return _ChannelPart(self._channels[name], self._start, self._stop)

    def __iter__(self) -> Iterator[str]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)

    def close(self) -> None:
        """Do nothing: the files are the whole stream's."""


class _ChannelPart(ChannelReader):
    """The samples [start, stop) of a channel."""

    def __init__(self, channel: ChannelReader, start: int, stop: int) -> None:
        self._channel, self._start, self._stop = channel, start, stop
        for name in ("name", "path", "format", "dtype", "shape", "sample_bytes"):
            setattr(self, name, getattr(channel, name))

    def __len__(self) -> int:
        return self._stop - self._start

    def _read(self, start: int, stop: int) -> npt.NDArray[Any]:
        return self._channel.read(self._start + start, self._start + stop)

    def encoded(self, index: int) -> bytes:
        return self._channel.encoded(self._start + self._index(index))

    def entry(self, index: int) -> int:
        """Return `ChannelReader.entry`; the first sample where the keyframe is before the part."""
        return max(0, self._channel.entry(self._start + self._index(index)) - self._start)

    def block_ends(self, start: int, stop: int) -> list[int]:
        ends = self._channel.block_ends(self._start + start, self._start + stop)
        return [end - self._start for end in ends]

    def block(self, start: int, stop: int) -> bytes | None:
        return self._channel.block(self._start + start, self._start + stop)

    def encoded_range(self, start: int, stop: int) -> list[bytes]:
        return self._channel.encoded_range(self._start + start, self._start + stop)

    def close(self) -> None:
        """Do nothing: the file is the whole channel's."""
