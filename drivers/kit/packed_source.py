"""The source ``session:FILE.vrs#SENSOR`` of every driver: a sensor of a session packed as VRS.

The kit replaces the driver by `PackedSource`.  Encoded samples are passed on as stored, so that the
new session has identical payload bytes; channels whose samples are compressed together have
identical values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import (
    INCOMPLETE,
    Driver,
    Encoded,
    EndOfSource,
    Item,
    Lost,
    Sample,
    SensorConfig,
    State,
    incomplete,
)
from drivers.kit.recorded_source import SHORT_BATCH_NS
from drivers.kit.session_source import rename_stream
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, ProtocolError
from recorder.formats.vrs import RecordType, VrsRecord
from recorder.session.vrs.packed import PackedSample, PackedSession, PackedStream, read_state

_SMALL_BYTES: Final = 4096
_LONGEST: Final = 1000
"""Most samples of a batch."""


@dataclass(slots=True)
class _Played:
    """A stream that is played.

    Attributes:
        packed: the stream in the file.
        name: its new name.
        batched: its samples are small and go together.
        batch: samples that wait.
        next_seq, epoch: of the sample that comes next, and the driver's start; None: any.
        gaps, reported: number of samples that are missing in the numbers, and by the events.
    """

    packed: PackedStream
    name: str
    batched: bool
    batch: list[PackedSample] = field(default_factory=list)
    next_seq: int | None = None
    epoch: int | None = None
    gaps: int = 0
    reported: int = 0


class PackedSource(Driver):
    """Source that plays a sensor of a packed session, with all its streams.

    Names, stamps and losses are those of `drivers.kit.session_source.SessionSource`; the driver's
    states are played, too.
    """

    schemes = {"session": "FILE.vrs[#SENSOR]: a recorded sensor of a session packed as VRS"}

    _session: PackedSession | None = None
    _items: Iterator[Item] = iter(())

    def __init__(self, sensor: SensorConfig) -> None:
        super().__init__(sensor)
        self._streams: dict[str, _Played] = {}

    def open(self) -> list[StreamSpec]:
        """Open the file and declare the recorded streams under their new names.

        Raises:
            SourceError: the file is no packed session, lacks the sensor, or cannot be read.
        """
        try:
            return self._open()
        except (OSError, FormatError, ProtocolError) as error:
            self.close()
            raise self.sensor.fault(error) from None

    def _open(self) -> list[StreamSpec]:
        path, named = self.sensor.path_and_part()
        recorded = self.sensor.name if named is None else named
        session = self._session = PackedSession(path)
        if recorded not in session.sensors:
            known = ", ".join(session.sensors) or "none"
            raise FormatError(f"has no sensor {recorded!r}; the sensors are: {known}")
        self._streams = {}
        specs = []
        for name in session.sensors[recorded].streams:
            packed = session.streams[name]
            spec = replace(
                packed.spec, name=rename_stream(name, recorded, self.sensor.name), finite=True
            )
            batched = spec.encoded_bytes <= _SMALL_BYTES and not spec.keyed
            self._streams[name] = _Played(packed, spec.name, batched)
            specs.append(spec)
        self._origin_ns = session.origin_ns
        self._items = self._play(session)
        return specs

    def read(self) -> Item:
        """Return the next samples, state or loss, in order of time.

        Raises:
            EndOfSource: the session's last sample was already returned.
        """
        item = next(self._items, None)
        if item is None:
            raise EndOfSource
        return item

    def _play(self, session: PackedSession) -> Iterator[Item]:
        by_id = {played.packed.id: played for played in self._streams.values()}
        last_ns = session.origin_ns
        for record in session.records(list(self._streams), (RecordType.STATE, RecordType.DATA)):
            played = by_id[record.stream]
            try:
                if record.record_type is RecordType.DATA:
                    sample = played.packed.read(record)
                    last_ns = max(last_ns, sample.t_ns)
                    yield from self._add(played, sample)
                elif (item := self._read_state(played, record)) is not None:
                    item.t_ns = max(item.t_ns, session.origin_ns)
                    yield from self._flush()
                    yield item
            except FormatError as error:
                yield from self._flush()
                t_ns = round(record.timestamp_s * 1e9)
                yield Lost(played.name, t_ns, "corrupt", 1, detail={"reason": str(error)})
                if played.next_seq is not None:
                    played.next_seq += 1
        yield from self._flush()
        for played in self._streams.values():
            if played.reported > played.gaps:  # after the last sample of a driver's start
                yield Lost(played.name, last_ns, "recorded", played.reported - played.gaps)
            if session.vrs.tail is not None:
                detail = {"reason": session.vrs.tail}
                yield Lost(played.name, last_ns, "truncated", None, detail=detail)

    def _add(self, played: _Played, sample: PackedSample) -> Iterator[Item]:
        """Take a sample; yield the batches before it, and the loss of the numbers before it."""
        follows = played.epoch == sample.epoch and played.next_seq is not None
        missing = sample.seq - (played.next_seq or 0) if follows else 0
        waiting = [each for each in self._streams.values() if each.batch]
        span_ns = SHORT_BATCH_NS if self.sensor.pace == "realtime" else 1_000_000_000
        for other in waiting:
            first = other.batch[0]
            full = len(other.batch) >= _LONGEST or sample.t_ns - first.t_ns >= span_ns
            if other is not played or missing or full:
                yield self._take(other)
        if missing > 0:
            played.gaps += missing
            yield Lost(played.name, sample.t_ns, "recorded", missing)
        played.batch.append(sample)
        played.next_seq, played.epoch = sample.seq + 1, sample.epoch
        if not played.batched:
            yield self._take(played)

    def _flush(self) -> Iterator[Sample]:
        for played in self._streams.values():
            if played.batch:
                yield self._take(played)

    def _take(self, played: _Played) -> Sample:
        batch, played.batch = played.batch, []
        data: dict[str, npt.NDArray[Any] | Encoded] = {}
        for channel in played.packed.spec.channels:
            values = [sample.data[channel.name] for sample in batch]
            data[channel.name] = values if channel.variable else np.stack(values)  # type: ignore[assignment]
        times = np.array([sample.t_ns for sample in batch], np.int64)
        device = None
        if played.packed.spec.device_clock:
            device = np.array([sample.t_dev_ns for sample in batch], np.int64)
        return Sample(played.name, times, data, device)

    def _read_state(self, played: _Played, record: VrsRecord) -> State | Lost | None:
        """Return what a state record tells: a state, incomplete samples, or an interval of loss."""
        state, values = read_state(record)
        t_ns = state.t_mono_ns + played.packed.offset_ns
        if state.kind == "state":
            return State(played.name, t_ns, values)
        count = values.get("count")
        if state.kind == INCOMPLETE and isinstance(count, int):
            told = incomplete("recorded", _as_count(values.get("parts")), count)
            return State(played.name, t_ns, {**told, "recorded_cause": state.cause})
        if state.kind != "lost":
            return None
        if isinstance(count, int):
            played.reported += count
            return None
        detail = {"recorded_cause": state.cause} if state.cause else {}
        estimate = values.get("estimate")
        return Lost(
            *(played.name, t_ns, "recorded", None),
            estimate=estimate if isinstance(estimate, int) else None,
            detail=detail,
        )

    def close(self) -> None:
        """Close the file."""
        self._items = iter(())
        if self._session is not None:
            self._session.close()
            self._session = None


def _as_count(value: object) -> int:
    return value if isinstance(value, int) else 0
