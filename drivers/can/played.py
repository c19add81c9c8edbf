"""Source that plays the frames of CAN logs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import numpy as np

from drivers.can.errors import BusErrors
from drivers.can.frames import (
    CLASSIC_BYTES,
    ERROR,
    FD,
    FD_BYTES,
    Damaged,
    Frame,
    LogEntry,
    Logged,
    OtherEvent,
    collect_frames,
)
from drivers.can.logs import read_log
from drivers.can.stream import Decoding, error_items, frame_sample, frame_stream
from drivers.kit.driver import Item, Lost, SensorConfig, State
from drivers.kit.recorded_source import SHORT_BATCH_NS
from recorder.codecs.streams import StreamSpec
from recorder.common.errors import FormatError

_BATCH: Final = 1024
_AHEAD: Final = 20_000
"""Frames that are read to find out whether a log has CAN FD, and its channels."""
_SHOWN: Final = 8
_TELL_NS: Final = 1_000_000_000


class LogSource:
    """Source that plays the frames of a log, with the log's stamps.

    Args:
        sensor: the sensor's entry, of scheme ``file``.
        decoding: of its signals.

    Raises:
        SourceError: the file is missing.
    """

    def __init__(self, sensor: SensorConfig, decoding: Decoding) -> None:
        self._sensor, self._decoding = sensor, decoding
        self._log = read_log(sensor.path)
        self._first: deque[LogEntry] = deque()
        self._fault: FormatError | None = None
        self._errors = BusErrors()
        self._others = 0
        self._other_events: Counter[str] = Counter()
        self._told_kinds = 0
        self._width = CLASSIC_BYTES
        self._channel = ""
        self._told_ns: int | None = None

    def open(self) -> list[StreamSpec]:
        """Read the first frames and declare the streams.

        Raises:
            SourceError: the file is no log, or has no frame to record.
        """
        streams = self._decoding.streams()
        try:
            self._first.extend(islice(self._log, _AHEAD))
        except FormatError as error:
            self._fault = error  # raised after the frames before it
        except OSError as error:
            raise self._sensor.fault(error) from None
        frames = [each for each in self._first if isinstance(each, Logged)]
        if not frames:
            reasons = [each.reason for each in self._first if isinstance(each, Damaged)]
            raise self._sensor.fault(self._fault or (reasons or ["has no frame"])[0])
        self._channel = self._choose({each.channel for each in frames})
        options = self._sensor.options
        fd = options["fd"]
        if fd is None:
            fd = any(each.frame.flags & FD for each in frames)
        self._width = FD_BYTES if fd else CLASSIC_BYTES
        settings = {"channel": self._channel} | self._decoding.settings
        return [frame_stream(self._sensor, self._width, options["rate"], settings), *streams]

    def _choose(self, channels: set[str]) -> str:
        """Choose the log's channel to record; SourceError if it is missing or ambiguous."""
        known = sorted(channels)
        wanted: str | None = self._sensor.options["channel"]
        shown = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
        if wanted is not None:
            if wanted not in known:
                raise self._sensor.fault(f"has no frame of channel {wanted}, but of {shown}")
            return wanted
        if len(known) > 1:
            raise self._sensor.fault(
                f"has frames of the channels {shown}; the option channel chooses one"
            )
        return known[0]

    def items(self) -> Iterator[Item]:
        """Yield batches of frames; SourceError at damage, after the frames before it."""
        batch: list[Frame] = []
        longest_ns = SHORT_BATCH_NS if self._sensor.pace == "realtime" else 1 << 62
        damaged: list[Damaged] = []
        for frame in self._frames():
            if isinstance(frame, Damaged):
                damaged.append(frame)
                continue
            if damaged:
                if batch:
                    yield from self._batch(batch)
                    batch = []
                yield self._lost(damaged, frame.t_ns)
                damaged = []
            if batch and (
                len(batch) == _BATCH or not 0 <= frame.t_ns - batch[0].t_ns <= longest_ns
            ):
                yield from self._batch(batch)
                batch = []
            batch.append(frame)
        if batch:
            yield from self._batch(batch)
            if damaged:
                yield self._lost(damaged, batch[-1].t_ns)
            yield from self._reports(batch[-1].t_ns, is_over=True)
        if self._fault is not None:
            raise self._sensor.fault(self._fault)

    def _lost(self, damaged: list[Damaged], t_ns: int) -> Lost:
        detail = {"reason": damaged[0].reason}
        count = sum(each.lost for each in damaged)
        return Lost(self._sensor.name, t_ns, "corrupt", count, detail=detail)

    def _frames(self) -> Iterator[Frame | Damaged]:
        while True:
            try:
                logged = self._first.popleft() if self._first else next(self._log, None)
            except FormatError as error:
                self._fault = error
                return
            except OSError as error:
                raise self._sensor.fault(error) from None
            if logged is None:
                return
            if isinstance(logged, Damaged):
                yield logged
            elif isinstance(logged, OtherEvent):
                self._other_events[logged.kind] += 1
            elif logged.channel != self._channel:
                self._others += 1
            elif logged.frame.flags & FD and self._width == CLASSIC_BYTES:
                self._fault = FormatError(
                    "has a frame of CAN FD after classic ones only; set fd: true"
                )
                return
            else:
                yield logged.frame

    def _batch(self, batch: list[Frame]) -> Iterator[Item]:
        frames = collect_frames(batch, self._width)
        yield frame_sample(self._sensor.name, frames)
        for k in np.flatnonzero(frames.id & ERROR).tolist():
            yield from error_items(self._errors, self._sensor.name, batch[k])
        yield from self._decoding.samples(frames)
        t_ns = batch[-1].t_ns
        if self._told_ns is None:
            self._told_ns = t_ns
        elif t_ns - self._told_ns > _TELL_NS:
            self._told_ns = t_ns
            yield from self._reports(t_ns)

    def _reports(self, t_ns: int, *, is_over: bool = False) -> Iterator[Item]:
        counts: dict[str, Any] = self._errors.report() or {}
        if self._others:
            counts["frames_of_other_channels"], self._others = self._others, 0
        if len(self._other_events) > self._told_kinds or (is_over and self._other_events):
            self._told_kinds = len(self._other_events)
            counts["other_events"] = dict(self._other_events)
        if counts:
            yield State(self._sensor.name, t_ns, counts)
        if (short := self._decoding.report(t_ns)) is not None:
            yield short

    def close(self) -> None:
        self._log.close()
