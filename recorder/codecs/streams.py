"""Declarations of streams, which a driver makes before the first sample.

A *stream* is one sensor's sequence of samples; a *channel* is one array (or encoded frame) that
every sample of the stream holds. On disk a stream is a folder and a channel is a file in it
(roverd's layout). The writer knows nothing about sensors except these declarations.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from recorder.codecs import CHANNEL_FORMATS, RECORDED_FORMATS, Framing
from recorder.codecs.points import MOST_POINTS, Column, make_columns, points_dtype
from recorder.codecs.raw_pixels import RawPixels, raw_pixels
from recorder.common.errors import ProtocolError
from recorder.config.names import STREAM_NAME

TIME_CHANNELS: Mapping[str, str] = {"ts": "f8", "seq": "u8", "t_mono": "u8", "t_dev": "u8"}
"""Channels that the writer adds from a message's header; `t_dev` with `device_clock` only."""

_CHANNEL_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}(\.[a-z0-9]{1,8})?")
_DTYPES = frozenset({"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"})


@functools.cache  # asked for several times a sample
def _np_dtype(dtype: str) -> np.dtype[Any]:
    return np.dtype("<" + dtype)


@functools.lru_cache(1024)
def _sample_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * _np_dtype(dtype).itemsize


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One channel: a file in its stream's folder, and an entry of roverd's ``meta.json``.

    Attributes:
        name: file name, such as ``rng`` or ``video.avi``.
        format: one of `recorder.codecs.RECORDED_FORMATS`.
        dtype: little-endian numpy type in roverd's size notation, such as ``u2`` or ``f4``.
        shape: shape of one sample without the time axis; ``()`` for a scalar.
        description: one line for users.
        unit: unit of the values, such as ``mm`` or ``m/s^2``; empty without a unit.
        device_time: whether values are device times in ns; a looped source adds its period to them.
        delta: whether values change little along the last axis (ranges), so that xz gets a delta
            filter.
        columns: columns of a point, of the format ``points``.
    """

    name: str
    format: str
    dtype: str
    shape: tuple[int, ...] = ()
    description: str = ""
    unit: str = ""
    device_time: bool = False
    delta: bool = False
    columns: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        if not _CHANNEL_NAME.fullmatch(self.name) or self.name in (*TIME_CHANNELS, "meta.json"):
            raise ProtocolError(f"channel {self.name!r}: not a name that a channel may have")
        if self.format not in RECORDED_FORMATS:
            raise ProtocolError(f"channel {self.name!r}: format {self.format!r} is not recorded")
        if self.dtype not in _DTYPES:
            raise ProtocolError(f"channel {self.name!r}: dtype {self.dtype!r} is unknown")
        if any(not isinstance(n, int) or n < 1 for n in self.shape):
            raise ProtocolError(f"channel {self.name!r}: shape {self.shape} needs whole sizes > 0")
        found = CHANNEL_FORMATS[self.format]
        if not found.fits(self.np_dtype, self.shape):
            raise ProtocolError(f"channel {self.name!r}: {self.format} holds {found.holds}")
        if fault := found.columns_fault(self.columns, self.shape):
            raise ProtocolError(f"channel {self.name!r}: {fault}")

    @property
    def np_dtype(self) -> np.dtype[Any]:
        """Little-endian numpy dtype of the values."""
        return _np_dtype(self.dtype)

    @property
    def sample_bytes(self) -> int:
        """Size of one sample in bytes, before any compression."""
        return _sample_bytes(self.dtype, self.shape)

    @property
    def framing(self) -> Framing:
        """Framing of the channel's samples in a data message."""
        return CHANNEL_FORMATS[self.format].framing

    @property
    def pixels(self) -> RawPixels | None:
        """Pixel format of raw pictures; None for any other channel."""
        entry = {"format": self.format, "type": self.dtype, "shape": self.shape}
        return raw_pixels(self.name, entry)

    @property
    def picture(self) -> bool:
        """Whether the samples are a camera's pictures."""
        return CHANNEL_FORMATS[self.format].picture or self.pixels is not None

    @property
    def variable(self) -> bool:
        """Whether encoded samples differ in length."""
        return CHANNEL_FORMATS[self.format].framing is Framing.EACH

    def meta(self) -> dict[str, Any]:
        """Make the channel's entry in ``meta.json``, with the keys that roverd's readers accept."""
        text = self.description + (f" [{self.unit}]" if self.unit else "")
        entry = {"format": self.format, "type": self.dtype, "shape": list(self.shape), "desc": text}
        columns = [column.to_meta() for column in self.columns]
        return entry | ({"columns": columns} if columns else {})

    def to_wire(self) -> dict[str, Any]:
        """Convert the declaration to a plain mapping for msgpack and JSON."""
        wire = {each.name: getattr(self, each.name) for each in fields(self)}
        wire |= {"shape": list(self.shape), "columns": [c.to_meta() for c in self.columns]}
        if not self.columns:
            del wire["columns"]  # sessions on disk have the key only for points
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ChannelSpec:
        """Convert a mapping of `to_wire` to a declaration.

        Raises:
            ProtocolError, TypeError, KeyError: the declaration is invalid.
        """
        values = {**wire, "shape": tuple(wire["shape"])}
        return cls(**{**values, "columns": make_columns(values.get("columns", ()))})


def points_channel(
    columns: Sequence[Column], description: str, name: str = "points.bin"
) -> ChannelSpec:
    """Return the channel of a stream whose samples are sweeps of points with those columns."""
    shape = MOST_POINTS, points_dtype(columns).itemsize
    return ChannelSpec(name, "points", "u1", shape, description, columns=tuple(columns))


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """Declaration of a stream by its driver.

    Attributes:
        name: the sensor's name in the config, or that name with a suffix (``lidar_imu``).
        channels: every channel, in the order of a data message's frames.
        rate_hz: nominal sample rate; None if the stream has none.
        device_clock: whether samples carry ``t_dev``, the device's own time in ns.
        bytes_per_sample: expected encoded bytes of one sample; the buffer budget is divided by it.
        finite: whether the source ends by itself.
        description: one line for users.
        files: intrinsics stored beside the channels, text by file name (``lidar.json``).
        settings: the device's or source's settings, for configuration records.
        sporadic: whether samples come only when something happens; such a stream is not silent
            without samples.
    """

    name: str
    channels: tuple[ChannelSpec, ...]
    rate_hz: float | None = None
    device_clock: bool = False
    bytes_per_sample: int = 0
    finite: bool = False
    description: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    sporadic: bool = False

    def __post_init__(self) -> None:
        if not STREAM_NAME.fullmatch(self.name):
            raise ProtocolError(f"stream {self.name!r}: not a name that a stream may have")
        if not self.channels:
            raise ProtocolError(f"stream {self.name!r}: declares no channel")
        taken = set(TIME_CHANNELS) | {"meta.json"}
        files = [
            name
            for c in self.channels
            for found in (CHANNEL_FORMATS[c.format],)
            for name in (*found.files(c.name), *found.side_files(c.name))
        ]
        for name in (*files, *self.files):
            if name in taken:
                raise ProtocolError(f"stream {self.name!r}: two files would be named {name!r}")
            if not re.fullmatch(r"[a-z][a-z0-9_.]{0,70}", name):
                raise ProtocolError(f"stream {self.name!r}: {name!r} is no file name here")
            taken.add(name)
        if self.rate_hz is not None and not 0 < self.rate_hz < 1e6:
            raise ProtocolError(f"stream {self.name!r}: rate {self.rate_hz} Hz is out of range")

    @property
    def encoded_bytes(self) -> int:
        """Expected encoded bytes of one sample; without compression if none are declared."""
        return self.bytes_per_sample or sum(c.sample_bytes for c in self.channels)

    @property
    def bytes_per_second(self) -> float:
        """Expected encoded bytes per second, by which the writer divides its budget."""
        return self.encoded_bytes * (self.rate_hz or 1.0)

    @property
    def keyed(self) -> bool:
        """Whether a decoder can begin only with some samples (a video's keyframes)."""
        return any(CHANNEL_FORMATS[channel.format].keyed for channel in self.channels)

    @property
    def joinable(self) -> bool:
        """Whether two data messages can be joined by concatenating their frames."""
        return all(channel.framing is Framing.PLAIN for channel in self.channels)

    def channel(self, name: str) -> ChannelSpec:
        """Return the channel with this name; raise KeyError for an unknown name."""
        for channel in self.channels:
            if channel.name == name:
                return channel
        raise KeyError(name)

    def meta(self) -> dict[str, dict[str, Any]]:
        """Return the channels by name as entries of ``meta.json``, time channels first."""
        return self._time_entries() | {c.name: c.meta() for c in self.channels}

    def meta_files(self) -> dict[str, dict[str, Any]]:
        """Return ``meta.json`` and the side files with channels that roverd's readers refuse."""
        meta, beside = self._time_entries(), dict[str, dict[str, Any]]()
        for channel in self.channels:
            found = CHANNEL_FORMATS[channel.format]
            meta |= found.make_entries(channel)
            beside |= {name: channel.meta() for name in found.side_files(channel.name)}
        return {"meta.json": meta, **beside}

    def _time_entries(self) -> dict[str, dict[str, Any]]:
        times = {
            "ts": "end of the measurement, epoch seconds on the host clock",
            "seq": "sample number within its epoch; a gap is a counted loss",
            "t_mono": "end of the measurement, host monotonic clock [ns]",
            "t_dev": "the device's own time of the sample [ns]",
        }
        if not self.device_clock:
            del times["t_dev"]
        return {
            name: {"format": "raw", "type": TIME_CHANNELS[name], "shape": [], "desc": text}
            for name, text in times.items()
        }

    def to_wire(self) -> dict[str, Any]:
        """Convert the declaration to a plain mapping for msgpack and JSON."""
        wire = {each.name: getattr(self, each.name) for each in fields(self)}
        channels = [channel.to_wire() for channel in self.channels]
        if not self.sporadic:
            del wire["sporadic"]  # sessions on disk have the key only where it is true
        return wire | {"channels": channels}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> StreamSpec:
        """Convert a mapping of `to_wire` to a declaration; raise ProtocolError if it is invalid."""
        try:
            channels = tuple(map(ChannelSpec.from_wire, wire["channels"]))
            return cls(**{**wire, "channels": channels})
        except (TypeError, KeyError, ValueError) as error:
            raise ProtocolError(f"not a stream declaration: {error}") from None
