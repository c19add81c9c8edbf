"""The sensor kind of a stream, and the start and end of its frames.

A sample's stamp is the end of its measurement.  Archives require starts and ends that rise
strictly, to the microsecond.  `FrameGate` passes the frames that do, and counts the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recorder.codecs import PICTURE_FORMATS
from recorder.codecs.beams import PACKETS
from recorder.codecs.raw_pixels import raw_pixels
from recorder.codecs.rays import DETECTIONS
from recorder.codecs.streams import StreamSpec
from recorder.session.stream import Stream

Kind = Literal["camera", "lidar", "radar", "imu", "other"]
Times = npt.NDArray[np.int64]

NS_PER_US = 1000
EXPOSURE_CHANNEL = "exposure"
WINDOW = 65_536
"""Number of samples of a window of times: half a megabyte."""
_LONGEST_SWEEP_NS = 2_000_000_000


def kind_of(stream: Stream | StreamSpec) -> Kind:
    """Return the kind of a stream, found by its channels as in roverd's typed readers."""
    meta = _get_meta(stream)
    if image_channel(stream) is not None:
        return "camera"
    if cloud_channel(stream) is not None:
        return "lidar"
    for channel, kind in (("rng", "lidar"), ("iq", "radar")):
        if channel in meta:
            return kind  # type: ignore[return-value]
    return "imu" if {"acc", "avel"} <= meta.keys() else "other"


def image_channel(stream: Stream | StreamSpec) -> str | None:
    """Return the channel with a camera's pictures, JPEGs or raw; None without such a channel."""
    for name, entry in _get_meta(stream).items():
        if entry["format"] in PICTURE_FORMATS or raw_pixels(name, entry) is not None:
            return name
    return None


def cloud_channel(stream: Stream | StreamSpec) -> str | None:
    """Return the channel with a lidar's points as columns; None without such a channel."""
    formats = {name: entry["format"] for name, entry in _get_meta(stream).items()}
    found = (name for name, found in formats.items() if found == "points" and name != PACKETS)
    return next(found, None)


def has_detections(stream: Stream | StreamSpec) -> bool:
    """Return whether the points of a stream are a radar's detections."""
    return DETECTIONS in _get_meta(stream)


def has_ouster_sweeps(stream: Stream | StreamSpec) -> bool:
    """Return whether a lidar's sweeps are an Ouster's: ranges in mm, of columns at even azimuths.

    Other sweeps of ranges have the azimuth of each column.
    """
    meta = _get_meta(stream)
    return "rng" in meta and "azimuth" not in meta


def _get_meta(stream: Stream | StreamSpec) -> Mapping[str, Mapping[str, Any]]:
    return stream.meta() if isinstance(stream, StreamSpec) else stream.meta


class Exposures:
    """The exposure times of a camera's pictures.

    They are in the channel ``exposure`` (u4, us, 0 where unknown), or in the stream's settings
    ``exposure_ms``.

    Attributes:
        known: the session has exposure times.
        measured: each picture has its own.
        readout_ns: time from the first row to the last row of a rolling shutter.
    """

    def __init__(self, stream: Stream) -> None:
        settings = stream.spec.settings if stream.spec is not None else {}
        self._stream = stream
        self._stated_ns = _parse_setting_ns(settings.get("exposure_ms"))
        self.readout_ns = _parse_setting_ns(settings.get("readout_ms"))
        entry = stream.meta.get(EXPOSURE_CHANNEL, {})
        self.measured = (entry.get("type"), entry.get("shape")) == ("u4", [])
        self.known = self.measured or self._stated_ns > 0

    def at_ns(self, index: int) -> int:
        """Return the exposure time of a picture, ns; 0 where unknown."""
        if not self.measured:
            return self._stated_ns
        return int(self._stream.sample(index, [EXPOSURE_CHANNEL])[EXPOSURE_CHANNEL]) * NS_PER_US


def _parse_setting_ns(value_ms: object) -> int:
    positive = isinstance(value_ms, int | float) and value_ms > 0
    return round(value_ms * 1e6) if positive else 0  # type: ignore[operator]


def time_windows(stream: Stream, size: int = WINDOW) -> Iterator[tuple[int, Times]]:
    """Yield index of the first sample and stamps (int64 ns) of consecutive windows of a stream."""
    for at in range(0, len(stream), size):
        yield at, stream.times(at, min(at + size, len(stream)))


def stamp_span_ns(stream: Stream) -> tuple[int, int]:
    """Return the first stamp of a stream with samples, and the latest one among all samples."""
    last = max(int(times.max()) for _, times in time_windows(stream))
    return int(stream.times(0, 1)[0]), last


class FrameGate:
    """A filter that passes frames with rising times.

    Attributes:
        repeated: number of frames left out that end in the same microsecond as the previous one.
        backward: number of frames left out that end earlier.
        moved: number of frames that began at or before the previous one, and got a later start.
        first_bad: index of the first frame that was left out.
    """

    def __init__(self) -> None:
        self.repeated = self.backward = self.moved = 0
        self.first_bad: int | None = None
        self._start_us = self._end_us = -1

    def admit(self, index: int, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return start and end of a frame; None where the frame must be left out."""
        end_us = end_ns // NS_PER_US
        if end_us <= self._end_us:
            self.repeated += end_us == self._end_us
            self.backward += end_us < self._end_us
            self.first_bad = index if self.first_bad is None else self.first_bad
            return None
        start_ns = min(start_ns, end_ns)
        if start_ns // NS_PER_US <= self._start_us:
            self.moved += 1
            start_ns = (self._start_us + 1) * NS_PER_US
        self._start_us, self._end_us = start_ns // NS_PER_US, end_us
        return start_ns, end_ns

    def remarks(self) -> list[str]:
        """Return notes about the times, one sentence each."""
        reasons = (
            (self.repeated, "they end in the same microsecond as the previous one"),
            (self.backward, "their times go backward"),
        )
        sentences = [f"{count} samples left out: {reason}" for count, reason in reasons if count]
        if sentences:
            sentences[-1] += f" (first: sample {self.first_bad})"
        if self.moved:
            sentences.append(
                f"{self.moved} samples began before the one before them; their starts were moved"
            )
        return sentences


@dataclass(frozen=True)
class SweepTimes:
    """Times of a sweep's columns on the session's clock.

    Attributes:
        start_ns: time of the first column.
        columns_ns: int64 [columns].
        measured: whether the device measured the times; else they are spread evenly.
    """

    start_ns: int
    columns_ns: Times
    measured: bool


def sweep_times(
    t_col: npt.NDArray[np.uint64] | None, columns: int, end_ns: int, period_ns: int
) -> SweepTimes:
    """Map a sweep's columns to the session's clock; the last column is at the sweep's stamp.

    Args:
        t_col: u8 [columns], device time of each column, 0 where it is missing; None without a
            recording of them.
        columns: number of columns of a sweep.
        end_ns: the sweep's stamp.
        period_ns: time from sweep to sweep, for columns without device times.

    Missing columns are interpolated linearly between their neighbours.
    """
    if t_col is not None:
        present = np.flatnonzero(t_col)
        device = t_col[present].astype(np.int64)
        rising = len(present) > 1 and bool((np.diff(device) > 0).all())
        if rising and int(device[-1] - device[0]) < _LONGEST_SWEEP_NS:
            relative = device - device[-1]
            all_columns = np.arange(columns)
            placed = np.interp(all_columns, present, relative.astype(np.float64))
            pace = (relative[-1] - relative[0]) / (present[-1] - present[0])
            before, after = all_columns < present[0], all_columns > present[-1]
            placed[before] = relative[0] + (all_columns[before] - present[0]) * pace
            placed[after] = 0.0  # not measured; must not be later than the sweep's own stamp
            times = np.rint(placed).astype(np.int64) + end_ns
            times[present] = relative + end_ns
            return SweepTimes(int(times.min()), times, True)
    spread = np.arange(columns, dtype=np.int64) - (columns - 1)
    times = end_ns + spread * period_ns // columns
    return SweepTimes(int(times[0]), times, False)


def mean_period_ns(stream: Stream, nominal_hz: float | None = None) -> int:
    """Return the time between samples: of the given or declared rate, else the mean, else 0.1 s."""
    rate_hz = nominal_hz or (stream.spec and stream.spec.rate_hz)
    if rate_hz:
        return round(1e9 / rate_hz)
    length = len(stream)
    if length > 1:
        first, last = stream.times(0, 1)[0], stream.times(length - 1, length)[0]
        if last > first:
            return int((last - first) // (length - 1))
    return 100_000_000
