"""The streams of a session that was packed as a VRS file, with the values of their samples.

::

    with PackedSession(Path("drive.vrs")) as packed:
        spec = packed.streams["lidar"].spec
        for record in packed.records(["lidar"]):
            sample = packed.streams["lidar"].read(record)     # for data records
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import FormatError, ProtocolError
from recorder.common.files import Closeable
from recorder.formats.vrs import (
    DataBlock,
    LayoutBlock,
    RecordType,
    StreamId,
    VrsReader,
    VrsRecord,
)
from recorder.session.vrs.files import map_vrs_streams
from recorder.session.vrs.records import ConfigurationData, StateData, is_small

MOST_BYTES: Final = 1 << 28
"""Largest data of a record that are read."""
Value = bytes | npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class PackedSample:
    """A sample of a packed stream.

    Attributes:
        t_ns: epoch ns, exactly as recorded.
        t_dev_ns: the device's time; None without a device clock.
        seq, epoch: number of the sample, and of the driver's start.
        data: by channel the encoded frame, or the values, of the channel's shape and dtype.
    """

    t_ns: int
    t_dev_ns: int | None
    seq: int
    epoch: int
    data: Mapping[str, Value]


@dataclass(frozen=True)
class PackedStream:
    """A stream of a packed session.

    Attributes:
        id: the stream in the file.
        spec: the declaration of its first configuration record.
        offset_ns: epoch ns minus ``t_mono_ns``.
    """

    id: StreamId
    spec: StreamSpec
    offset_ns: int

    def read(self, record: VrsRecord) -> PackedSample:
        """Read the sample of a data record.

        Raises:
            FormatError: it cannot be read, or does not fit the declaration.
        """
        where = record.reader.where(record)
        blocks = record.blocks()
        data = iter([block for block in blocks if isinstance(block, DataBlock)])
        first = blocks[0] if blocks else None
        if not isinstance(first, LayoutBlock):
            raise FormatError(f"{where}: has no layout")
        found: dict[str, Value] = {}
        try:
            for channel in self.spec.channels:
                if is_small(channel):
                    found[channel.name] = _unpack_value(channel, first[channel.name])
                else:
                    found[channel.name] = _unpack_block(channel, next(data).data)
            t_ns = int(first["t_mono_ns"]) + self.offset_ns
            t_dev_ns = int(first["t_dev_ns"]) if self.spec.device_clock else None
            return PackedSample(t_ns, t_dev_ns, int(first["seq"]), int(first["epoch"]), found)
        except (KeyError, StopIteration, ValueError, TypeError) as error:
            text = f"does not fit the declaration of {self.spec.name}: {error!r:.200}"
            raise FormatError(f"{where}: {text}") from None


def _unpack_value(channel: ChannelSpec, value: Any) -> npt.NDArray[Any]:
    """Return a piece of a layout as the channel's values."""
    stored = np.asarray(value)
    if channel.np_dtype.kind == "c":
        stored = np.ascontiguousarray(stored, f"<f{channel.np_dtype.itemsize // 2}")
        return stored.view(channel.np_dtype).reshape(channel.shape)
    if channel.dtype == "f2":  # stored as bits
        return np.ascontiguousarray(stored, "<u2").view("<f2").reshape(channel.shape)
    return stored.astype(channel.np_dtype).reshape(channel.shape)


def _unpack_block(channel: ChannelSpec, data: bytes) -> Value:
    """Return a block as the channel's encoded frame or values."""
    if channel.variable:
        return data
    return np.frombuffer(data, channel.np_dtype).reshape(channel.shape)


@dataclass(frozen=True, slots=True)
class PackedSensor:
    """A sensor of a packed session.

    Attributes:
        driver: name of its driver; "": unknown.
        streams: names of its streams that can be read.
    """

    driver: str
    streams: tuple[str, ...]


class PackedSession(Closeable):
    """Reader of a session that was packed as a VRS file.

    Attributes:
        vrs: reader of the file.
        streams: by name.
        sensors: by name, as ``session.json`` has them.
        names: all streams of the file by their names in the session; "" is the session's own.
        origin_ns: the earliest stamp of any stream, epoch ns.
        offset_ns: epoch ns minus the time on the monotonic clock.
        broken: streams that cannot be read, with the reason.
    """

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            FormatError: the file is no VRS file, or none that the recorder made of a session.
            OSError: the file cannot be read.
        """
        self.vrs = VrsReader(path, most_bytes=MOST_BYTES)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.names = map_vrs_streams({s.id: s.tags for s in self.vrs.streams.values()})
        if "" not in self.names:
            raise FormatError(f"{self.vrs.path}: is no packed session of the recorder")
        self.streams: dict[str, PackedStream] = {}
        self.broken: dict[str, str] = {}
        for name, stream in self.names.items():
            if name and not self.is_extra(stream):
                try:
                    self.streams[name] = self._declare(name, stream)
                except FormatError as error:
                    self.broken[name] = str(error)
        firsts = [
            self.streams[name].read(record).t_ns
            for name in self.streams
            if (record := next(self.records([name], RecordType.DATA), None)) is not None
        ]
        if not firsts:
            raise FormatError(f"{self.vrs.path}: has no sample")
        self.origin_ns = min(firsts)
        self.offset_ns = next(iter(self.streams.values())).offset_ns
        self.sensors = self._find_sensors()

    def is_extra(self, stream: StreamId) -> bool:
        """Return whether a stream has the packed session's poses or labels."""
        return "header" in self.vrs.streams[stream].tags

    def _declare(self, name: str, stream: StreamId) -> PackedStream:
        record = next(self.vrs.records(stream, RecordType.CONFIGURATION), None)
        if record is None:
            raise FormatError(f"{self.vrs.path}: {name}: has no configuration")
        about = record.layout(ConfigurationData)
        try:
            wire = json.loads(about.declaration) | {"files": dict(about.files)}
            spec = StreamSpec.from_wire(wire | {"settings": json.loads(about.settings or "{}")})
        except (ValueError, TypeError, RecursionError, ProtocolError) as error:
            raise FormatError(f"{self.vrs.path}: {name}: {error}") from None
        return PackedStream(stream, spec, about.clock_offset_ns)

    def _find_sensors(self) -> dict[str, PackedSensor]:
        """Return the sensors of ``session.json``; a stream of none of them is a sensor."""
        found: dict[str, PackedSensor] = {}
        record = next(self.vrs.records(self.names[""], RecordType.CONFIGURATION), None)
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, FormatError):
            stated = {} if record is None else record.layout(ConfigurationData).settings
            for name, entry in json.loads(str(stated))["sensors"].items():
                streams = tuple(n for n in entry.get("streams") or [name] if n in self.streams)
                if streams:
                    found[name] = PackedSensor(str(entry["driver"]), streams)
        known = {stream for sensor in found.values() for stream in sensor.streams}
        for name in self.streams.keys() - known:
            tags = self.vrs.streams[self.streams[name].id].tags
            found[name] = PackedSensor(tags.get("driver", ""), (name,))
        return found

    def records(
        self, names: Sequence[str], types: RecordType | Sequence[RecordType] | None = None
    ) -> Iterator[VrsRecord]:
        """Yield records of some streams in order of time."""
        numbers = [self.vrs.numbers(self.names[name], types) for name in names]
        for number in np.sort(np.concatenate(numbers)).tolist():
            yield self.vrs[number]

    def close(self) -> None:
        """Close the file."""
        self.vrs.close()


def read_state(record: VrsRecord) -> tuple[StateData, dict[str, Any]]:
    """Read a state record, and its values.

    Raises:
        FormatError: it cannot be read.
    """
    state = record.layout(StateData)
    try:
        values = json.loads(state.values)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise FormatError(f"{record.reader.where(record)}: its values are no JSON object")
    return state, values
