"""Data records of a stream's samples, in the form of ``session.vrs``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from recorder.archives.context import PackingContext
from recorder.archives.vrs.metadata_records import clock_offset_ns
from recorder.bus.wire import Kind, Message
from recorder.codecs import CHANNEL_FORMATS, Framing
from recorder.codecs.streams import StreamSpec
from recorder.common.files import Buffer
from recorder.session.playback import Chunk, play, recorded_spec
from recorder.session.stream import Stream
from recorder.session.vrs.records import DataRecords

TOGETHER = tuple(
    name
    for name, found in CHANNEL_FORMATS.items()
    if found.framing in (Framing.JOINT, Framing.NONE)
)
"""Formats whose samples are stored decoded, as they are compressed together or are files."""


@dataclass(slots=True)
class DataRecord:
    """Data record of one sample.

    Attributes:
        index: index of the sample in its stream.
        timestamp_s: epoch seconds, as in ``ts``.
        parts: consecutive parts of the record's data.
    """

    index: int
    timestamp_s: float
    parts: Sequence[Buffer]


def packed_spec(stream: Stream) -> StreamSpec:
    """Return a stream's declaration, for its data records.

    Raises:
        FormatError: the stream cannot be declared; the message names the channel.
    """
    spec = recorded_spec(stream)
    channels = tuple(
        replace(c, format="raw") if stream.meta[c.name]["format"] in TOGETHER else c
        for c in spec.channels
    )
    return replace(spec, channels=channels)


class Samples:
    """Iterable of the data records of a stream, in the order of its samples.

    Attributes:
        records: declaration of the records.
        backward: number of records so far that are not later than the previous record.
    """

    def __init__(self, context: PackingContext, stream: Stream, spec: StreamSpec) -> None:
        self._context, self._stream, self._spec = context, stream, spec
        self.records = DataRecords(spec)
        self.backward = 0
        self._offset_ns = clock_offset_ns(context.session)
        epochs = stream.epochs or ()
        self._starts = np.array([int(e["first_sample"]) for e in epochs], np.int64)
        self._epochs = [int(e["epoch"]) for e in epochs]

    def __iter__(self) -> Iterator[DataRecord]:
        last = -np.inf
        chunks = self._chunks()
        at = 0
        while True:
            with self._context.locate_errors(self._stream.name, at):
                made = next(chunks, None)
            if made is None:
                return
            at, records = made
            for record in records:
                self.backward += record.timestamp_s <= last
                last = record.timestamp_s
                yield record
            at += len(records)

    def _chunks(self) -> Iterator[tuple[int, list[DataRecord]]]:
        for item in play(self._context.session, [self._stream.name]):
            if isinstance(item, Chunk):
                for start, stop in self._cuts(item.start, item.start + len(item.t_ns)):
                    yield start, self._make_records(item, start, stop)

    def _cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of samples, split where an epoch begins."""
        inside = self._starts[(self._starts > start) & (self._starts < stop)]
        edges = [start, *inside.tolist(), stop]
        yield from pairwise(edges)

    def _make_records(self, chunk: Chunk, start: int, stop: int) -> list[DataRecord]:
        message = self._message(chunk, start - chunk.start, stop - chunk.start)
        t_mono: npt.NDArray[np.int64] = message.t_mono_ns  # type: ignore[assignment]
        stamps = ((t_mono + self._offset_ns).astype("<f8") / 1e9).tolist()
        parts: list[list[Buffer]]
        if self.records.row_bytes is not None:
            parts = [[row.tobytes()] for row in self.records.rows(message, t_mono)]
        else:
            parts = self.records.records(message, t_mono, stamps)
        return [
            DataRecord(start + k, stamp, own)
            for k, (stamp, own) in enumerate(zip(stamps, parts, strict=True))
        ]

    def _message(self, chunk: Chunk, first: int, stop: int) -> Message:
        """Return the samples as a message of the stream's driver."""
        frames: list[Buffer] = []
        sizes: list[npt.NDArray[np.uint32]] = []
        for channel in self._spec.channels:
            values = chunk.data[channel.name][first:stop]
            if isinstance(values, list):
                sizes.append(np.array([len(value) for value in values], np.uint32))
                frames.append(values[0] if len(values) == 1 else b"".join(values))
            else:
                frames.append(values.astype(channel.np_dtype, copy=False).tobytes())
        number = int(np.searchsorted(self._starts, chunk.start + first, "right")) - 1
        t_dev = chunk.t_dev_ns
        return Message(
            Kind.DATA,
            chunk.stream,
            epoch=self._epochs[number] if number >= 0 else 0,
            seq=chunk.seq + first,
            count=stop - first,
            t_mono_ns=chunk.t_ns[first:stop] - self._offset_ns,
            t_dev_ns=t_dev[first:stop] if t_dev is not None and self._spec.device_clock else None,
            sizes=tuple(sizes),
            frames=frames,
        )
