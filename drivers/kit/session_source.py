"""The source ``session:DIR[#SENSOR]`` of every driver, which plays a recorded sensor.

The kit replaces the driver by `SessionSource`.  Payloads are passed on as stored, so that the new
session has identical payload bytes.  No other module of the kit reads sessions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from drivers.kit.driver import Driver, Encoded, EndOfSource, Item, Lost, Sample, State, incomplete
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError, ProtocolError, SessionError
from recorder.session.playback import (
    Chunk,
    Flaw,
    Hole,
    find_flaws,
    get_play_time_ns,
    play,
    recorded_spec,
)
from recorder.session.reader import Session


class SessionSource(Driver):
    """Source that plays a recorded sensor, with all its streams, under this sensor's name.

    ``session:DIR`` plays the sensor of the same name, ``session:DIR#SENSOR`` another sensor: its
    streams ``SENSOR`` and ``SENSOR_imu`` become ``NAME`` and ``NAME_imu``.  Stamps count from the
    earliest stamp of the whole session, so that several sensors played from it keep their relative
    times.  Losses of the recorded session become `Lost`, cause ``recorded``; so do the counts of
    its incomplete samples.
    """

    schemes = {"session": "DIR[#SENSOR]: a recorded sensor of a session or a roverd trace"}

    _session: Session | None = None
    _items: Iterator[Chunk | Hole | Flaw] = iter(())
    _names: Mapping[str, str] = {}
    _decoded: Mapping[str, Sequence[str]] = {}

    def open(self) -> Sequence[StreamSpec]:
        """Open the session and declare the recorded streams under their new names.

        Raises:
            SourceError: the session does not exist, lacks the sensor, or cannot be read.
        """
        try:
            return self._open()
        except (SessionError, FormatError) as error:
            self.close()
            raise self.sensor.fault(error) from None

    def _open(self) -> Sequence[StreamSpec]:
        folder, named = self.sensor.path_and_part()
        recorded = self.sensor.name if named is None else named
        session = self._session = Session(folder)
        sensors = session.sensors()
        if recorded not in sensors:
            known = ", ".join(sensors) or "none"
            raise SessionError(f"no sensor {recorded!r} was recorded; the sensors are: {known}")
        streams = [n for n in sensors[recorded] if n in session.streams or n in session.broken]
        own = self.sensor.name
        self._names = {name: rename_stream(name, recorded, own) for name in streams}
        specs = []
        decoded = {}
        for name in streams:
            spec = recorded_spec(session.stream(name))
            try:
                specs.append(replace(spec, name=self._names[name]))
            except ProtocolError as error:
                raise SessionError(str(error)) from None
            # A loop shifts device times by its period, which is impossible in compressed frames.
            decoded[name] = [c.name for c in spec.channels if c.device_time and self.sensor.loop]
        if not any(len(session.streams[name]) for name in streams):
            raise SessionError(f"sensor {recorded!r} has no sample")
        self._decoded = decoded
        self._origin_ns = session.first_ns
        found = find_flaws(session, streams)
        self._items = heapq.merge(play(session, streams), found, key=get_play_time_ns)
        return specs

    def read(self) -> Item:
        """Return the next samples, or the next loss, in order of time.

        Raises:
            EndOfSource: the session's last sample was already returned.
            SourceError: a channel's bytes violate its format.
        """
        try:
            item = next(self._items, None)
            if item is None:
                raise EndOfSource
            if isinstance(item, Chunk):
                return self._sample(item)
            if isinstance(item, Flaw):
                values = incomplete("recorded", item.parts, item.samples)
                values["recorded_cause"] = item.cause
                return State(self._names[item.stream], item.t_ns, values)
        except (SessionError, FormatError) as error:
            raise self.sensor.fault(error) from None
        detail = {} if item.cause is None else {"recorded_cause": item.cause}
        return Lost(
            stream=self._names[item.stream],
            t_ns=item.t_ns,
            cause="recorded",
            count=item.count,
            estimate=item.estimate,
            detail=detail,
        )

    def _sample(self, chunk: Chunk) -> Sample:
        data: dict[str, npt.NDArray[Any] | Encoded] = dict(chunk.data)
        for name in self._decoded[chunk.stream]:
            data[name] = self._decode(chunk, name)
        times: npt.NDArray[np.int64] = chunk.t_ns.copy()  # the session keeps its own array
        return Sample(self._names[chunk.stream], times, data, chunk.t_dev_ns)

    def _decode(self, chunk: Chunk, name: str) -> npt.NDArray[Any]:
        if self._session is None:
            raise SessionError("is closed")
        reader = self._session.streams[chunk.stream].channels[name]
        return reader.read(chunk.start, chunk.start + len(chunk.t_ns))

    def close(self) -> None:
        """Close the session's files."""
        self._items = iter(())
        if self._session is not None:
            self._session.close()
            self._session = None


def rename_stream(stream: str, recorded: str, own: str) -> str:
    """Return the new name of a stream of a recorded sensor, which is played under another name."""
    if stream == recorded:
        return own
    suffix = stream.removeprefix(recorded + "_")
    return f"{own}_{suffix}" if suffix != stream else f"{own}_{stream}"
