"""Source ``packets:DIR[#SENSOR]``: the recorded packets of a session's lidar, decoded again.

The sweeps are those of the recording, bit for bit, where the options are the same.  Where a sweep
of the recording is missing, it is `Lost`, cause ``recorded``, and decoding restarts behind it.
Other streams of the sensor, such as its IMU, are passed on as recorded.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Item, Lost, Sample, State, incomplete
from drivers.kit.lidar.family import Family, PacketStream
from drivers.kit.lidar.raw_packets import AGAIN, AGE, DEVICE, DEVICE_PACKET, PACKET, STAMP
from drivers.kit.lidar.stream import COLUMNS_PER_TURN, SweepStream
from recorder.codecs.beams import BEAMS, PACKETS, Beams
from recorder.codecs.storage.points import PointsReader
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, SessionError
from recorder.session.playback import Flaw, Hole, find_flaws, play, recorded_spec
from recorder.session.reader import Session
from recorder.session.stream import Stream


class RecordedPackets:
    """Source of a session's recorded packets.

    The angles are the recorded ones, if the config names no file.

    Args:
        family: the vendor's family.

    Attributes:
        origin_ns: first stamp of the session, epoch ns.
    """

    origin_ns = 0

    def __init__(self, family: Family) -> None:
        self._family, self._sensor = family, family.sensor
        self._session: Session | None = None
        self._given = 0  # sweeps since decoding began

    def open(self) -> Sequence[StreamSpec]:
        """Open the session and declare the stream; SourceError if it has no such packets."""
        folder, named = self._sensor.path_and_part()
        try:
            session = self._session = Session(folder)
            name = self._sensor.name if named is None else named
            self._stream = stream = session.stream(name)
            if PACKETS not in stream.meta:
                raise SessionError(f"{name}: has no packets: recorded without `packets: true`")
            if not len(stream):
                raise SessionError(f"{name}: has no sweep")
            self.origin_ns = int(stream.t_ns[0]) if session.first_ns is None else session.first_ns
            self._recall(recorded_spec(stream))
            own = self._sensor.name
            others = [n for n in session.sensors().get(name, ()) if n in session.streams]
            self._others = {n: own + n.removeprefix(name) for n in others if n != name}
            specs = self._start(0).specs(finite=True)[:1]
            kept = [(recorded_spec(session.stream(n)), new) for n, new in self._others.items()]
            return [*specs, *(replace(spec, name=new) for spec, new in kept)]
        except (SessionError, FormatError) as error:
            raise self._sensor.fault(error) from None

    def _recall(self, spec: StreamSpec) -> None:
        """Give the family what the recording has of the device."""
        if BEAMS in spec.files:
            where = f"{spec.name}: {BEAMS}"
            self._family.recorded = Beams.of_text(spec.files[BEAMS], where)
        self._per_turn = spec.settings.get(COLUMNS_PER_TURN)
        if (text := spec.files.get(DEVICE)) is not None:
            try:
                packet = bytes.fromhex(json.loads(text)[DEVICE_PACKET])
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(f"{spec.name}: {DEVICE}: {error!r}") from None
            self._family.take_side_packet(packet)

    def _start(self, index: int) -> PacketStream:
        """Return a new stream of the packets from a sweep on."""
        rows = self._read(self._stream, index)
        if not len(rows):
            raise FormatError(f"{self._stream.path / PACKETS}: sample {index} has no packet")
        stream = self._family.start(rows[PACKET][0].tobytes(), live=False)
        if isinstance(stream, SweepStream) and isinstance(self._per_turn, int | float):
            stream.set_columns(self._per_turn)
        return stream

    @staticmethod
    def _read(stream: Stream, index: int) -> npt.NDArray[Any]:
        reader = stream.channels[PACKETS]
        assert isinstance(reader, PointsReader)
        return reader.sweep(index)

    def items(self) -> Iterator[Item]:
        """Yield the sweeps; those whose packets are damaged are `Lost`, cause ``corrupt``."""
        session, name = self._session, self._stream.name
        assert session is not None
        turns = isinstance(self._start(0), SweepStream)
        try:
            others = self._play_others(session)
            if turns:
                yield from heapq.merge(self._decode_turns(), others, key=_get_time_ns)
            else:
                flaws = map(self._repeat_flaw, find_flaws(session, [name]))
                yield from heapq.merge(self._decode_clouds(), flaws, others, key=_get_time_ns)
        except (SessionError, FormatError) as error:
            raise self._sensor.fault(error) from None

    def _play_others(self, session: Session) -> Iterator[Item]:
        """Yield the samples and losses of the sensor's other streams."""
        for item in play(session, list(self._others)):
            name = self._others[item.stream]
            if isinstance(item, Hole):
                yield Lost(name, item.t_ns, "recorded", item.count, estimate=item.estimate)
            else:
                yield Sample(name, item.t_ns.copy(), dict(item.data), item.t_dev_ns)

    def _repeat_flaw(self, flaw: Flaw) -> State:
        values = incomplete("recorded", flaw.parts, flaw.samples)
        values["recorded_cause"] = flaw.cause
        return State(self._sensor.name, flaw.t_ns, values)

    def _find_gap(self, index: int) -> int:
        """Return the sweeps that are missing before one; below 0 where numbers begin again."""
        numbers = self._stream.seq
        if not index or numbers is None:
            return 0
        return int(numbers[index]) - int(numbers[index - 1]) - 1

    def _read_all(self) -> Iterator[tuple[int, int, npt.NDArray[Any] | Lost]]:
        """Yield index, stamp and packets of each sweep; a loss before and in place of sweeps."""
        name = self._sensor.name
        for index, t_ns in enumerate(self._stream.t_ns.tolist()):
            if gap := self._find_gap(index):
                yield index, t_ns, Lost(name, t_ns, "recorded", max(0, gap))
            try:
                rows = self._read(self._stream, index)
            except FormatError as error:
                detail = {"reason": str(error)}
                yield index, t_ns, Lost(name, t_ns, "corrupt", 1, detail=detail)
                continue
            yield index, t_ns, rows

    def _decode_turns(self) -> Iterator[Item]:
        """Yield sweeps of columns: a packet may hold columns of two."""
        decoding: PacketStream | None = None
        fed = 0
        for index, t_ns, rows in self._read_all():
            if isinstance(rows, Lost):
                if decoding is not None:
                    yield from self._end(decoding, fed)
                decoding = None
                if rows.count:  # none are missing where a driver counts from 0 again
                    yield rows
                continue
            if decoding is None:
                decoding, fed = self._start(index), 0
                self._skips, self._given = bool(rows[AGAIN][0]), 0
            else:
                rows = rows[rows[AGAIN] == 0]
            fed += 1
            if len(rows):
                yield from self._pass(_take(decoding, rows, t_ns))
        if decoding is not None:
            yield from self._end(decoding, fed)

    def _decode_clouds(self) -> Iterator[Item]:
        """Yield sweeps of points: of exactly their packets; what they lack is recorded."""
        decoding = self._start(0)
        for _, t_ns, rows in self._read_all():
            if isinstance(rows, Lost):
                yield from [rows] if rows.count else []
                continue
            for item in (*_take(decoding, rows, t_ns), *decoding.finish()):
                if isinstance(item, Sample) or (isinstance(item, State) and item.lasting):
                    yield item

    def _end(self, decoding: PacketStream, fed: int) -> Iterator[Item]:
        """Yield the sweeps that wait: as many as are recorded, of the next there is a begin."""
        for item in self._pass(decoding.finish()):
            if isinstance(item, Sample) and self._given > fed:
                return
            yield item

    def _pass(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield items from the cut on: columns before it are of a sweep that is not recorded."""
        for item in items:
            if self._skips and not (isinstance(item, State) and item.lasting):
                self._skips = not isinstance(item, Sample)
                continue
            self._given += isinstance(item, Sample)
            yield item

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _take(decoding: PacketStream, rows: npt.NDArray[Any], t_ns: int) -> Iterator[Item]:
    """Decode the packets of a sweep with that stamp."""
    packets = np.ascontiguousarray(rows[PACKET])
    yield from decoding.take(packets, t_ns - rows[AGE], rows[STAMP] - rows[AGE])


def _get_time_ns(item: Item) -> int:
    return int(item.t_ns[-1]) if isinstance(item, Sample) else item.t_ns
