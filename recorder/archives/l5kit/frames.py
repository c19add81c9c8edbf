"""Stamps of a session's frames: the stamps of one sensor's samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recorder.archives.context import PackingContext
from recorder.common.errors import SessionError
from recorder.perception.frames import (
    Kind,
    has_detections,
    kind_of,
    mean_period_ns,
    stamp_span_ns,
    time_windows,
)
from recorder.perception.poses import Times
from recorder.session.stream import Stream

_WINDOW = 512
_GRID_NS = 100_000_000
_SLACK_NS = 200_000_000  # tolerated difference of the streams' starts or ends
_FRAMED: tuple[Kind, ...] = ("lidar", "camera", "radar")


class FrameTimes:
    """Stamps of the frames of a session.

    Attributes:
        name: the stream whose samples are the frames; empty for evenly spaced frames.
        stream: that stream; None for evenly spaced frames.
        first_ns, last_ns: stamps of the first and the last frame.
        period_ns: time from frame to frame.
        count: number of samples.
        left_out: samples whose stamps do not rise; complete after the last window.
        gaps: number of places where frames are missing.
        longest_gap_ns: longest time between two frames.
    """

    def __init__(self, stream: Stream | None, first_ns: int, last_ns: int) -> None:
        self.stream, self.first_ns, self.last_ns = stream, first_ns, last_ns
        self.name = "" if stream is None else stream.name
        self.left_out = self.gaps = self.longest_gap_ns = 0
        if stream is None:
            self.period_ns = _GRID_NS
            self.count = (last_ns - first_ns) // _GRID_NS + 1
        else:
            self.period_ns = mean_period_ns(stream)
            self.count = len(stream)

    @classmethod
    def from_stream(cls, stream: Stream) -> FrameTimes:
        """Return the stamps of a stream's samples."""
        return cls(stream, *stamp_span_ns(stream))

    def windows(self) -> Iterator[Times]:
        """Yield stamps, int64 [n], ns, strictly rising, window by window; no window is empty."""
        highest = -(1 << 63)
        for t_ns in self._stamps():
            before = np.maximum.accumulate(np.concatenate([[highest], t_ns]))[:-1]
            kept = t_ns[t_ns > before]
            self.left_out += len(t_ns) - len(kept)
            if not len(kept):
                continue
            steps = np.diff(kept, prepend=kept[0] if highest == -(1 << 63) else highest)
            self.gaps += int(np.count_nonzero(steps > 1.5 * self.period_ns))
            self.longest_gap_ns = max(self.longest_gap_ns, int(steps.max()))
            highest = int(kept[-1])
            yield kept

    def _stamps(self) -> Iterator[Times]:
        if self.stream is not None:
            for _, t_ns in time_windows(self.stream, _WINDOW):
                yield t_ns
            return
        for at in range(0, self.count, _WINDOW):
            places = np.arange(at, min(at + _WINDOW, self.count), dtype=np.int64)
            yield self.first_ns + places * _GRID_NS


def choose_frames(context: PackingContext) -> FrameTimes:
    """Choose the sensor whose samples are the frames.

    Raises:
        SessionError: no sample has a time, or the session lacks the requested sensor.
    """
    session, wanted = context.session, context.options["lidar"]
    if wanted:
        stream = session.stream(wanted)
        if not stream.has_times or not len(stream):
            raise SessionError(f"{stream.path}: has no sample with a time")
        return FrameTimes.from_stream(stream)
    timed = [s for s in context.streams if s.has_times and len(s)]
    for kind in _FRAMED:
        found = [s for s in timed if kind_of(s) == kind and not has_detections(s)]
        if not found:
            continue
        if kind != "lidar":
            context.notes.add(f"has no lidar: the frames are those of {found[0].name}", "session")
        elif len(found) > 1:
            names = ", ".join(s.name for s in found)
            context.notes.add(
                f"several lidars ({names}): the frames are those of {found[0].name};"
                " the option lidar names another",
                "session",
            )
        return FrameTimes.from_stream(found[0])
    if not timed:
        raise SessionError(f"{session.path}: has no sample to pack")
    context.notes.add("has no lidar, camera or radar: a frame every 0.1 s", "session")
    firsts, lasts = zip(*map(stamp_span_ns, timed), strict=True)
    return FrameTimes(None, min(firsts), max(lasts))


def note_ends(context: PackingContext, times: FrameTimes) -> None:
    """Note streams that begin before the first frame or end after the last one."""
    slack_ns = max(_SLACK_NS, 2 * times.period_ns)
    for stream in context.streams:
        if not stream.has_times or not len(stream):
            continue
        with context.locate_errors(stream.name):
            first_ns, last_ns = stamp_span_ns(stream)
        before_ns, behind_ns = times.first_ns - first_ns, last_ns - times.last_ns
        if before_ns > slack_ns:
            context.notes.add(
                f"{before_ns / 1e9:.3f} s before the first frame are left out", stream.name
            )
        if behind_ns > slack_ns:
            context.notes.add(
                f"{behind_ns / 1e9:.3f} s after the last frame are left out", stream.name
            )
