"""Epochs, losses, states and incidents that a clip copies from a session, in order of time."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.common.errors import SessionError
from recorder.recording.clip.epochs import EpochCut, cut_epochs
from recorder.recording.clip.session_copy import ClipSessionWriter
from recorder.session import layout
from recorder.session.events import INCOMPLETE
from recorder.session.incidents import END
from recorder.session.playback import Chunk
from recorder.session.session_part import SessionPart


class StreamFeed:
    """Writer of the epochs of one stream of a session, in step with the copied samples.

    Attributes:
        name: name of the stream.
        stream: the stream's samples in the clip.
        cuts: the stream's epochs in the clip.
        shift: number added to the epoch numbers, which must increase from session to session.
        waiting: states that precede the first sample.
    """

    def __init__(
        self,
        name: str,
        source: SessionPart,
        events: Sequence[Mapping[str, Any]],
        interval: tuple[int | None, int | None],
    ) -> None:
        self.name = name
        self.stream = source.streams[name]
        if not self.stream.has_times or "t_mono" not in self.stream.meta:
            raise SessionError(f"{self.stream.path}: has no t_mono to cut by")
        self.cuts = cut_epochs(self.stream.whole, events, *interval)
        self._starts = [cut.start for cut in self.cuts]
        self._next = 0
        self.shift = 0
        self.waiting: list[State] = []

    @property
    def is_open(self) -> bool:
        """Whether an epoch has begun."""
        return self._next > 0

    @property
    def first_epoch(self) -> int:
        return self.cuts[0].epoch if self.cuts else 0

    @property
    def epoch(self) -> int:
        """Number of the open epoch in the clip."""
        return self.cuts[max(0, self._next - 1)].epoch + self.shift if self.cuts else 0

    def begin(self, writer: ClipSessionWriter, index: int) -> None:
        """Begin all epochs up to that of the sample at `index`."""
        wanted = bisect_right(self._starts, index)
        while self._next < wanted:
            self._end_open(writer)
            cut = self.cuts[self._next]
            self._next += 1
            writer.begin_epoch(
                self.name, cut.epoch + self.shift, cut.first_seq, empty=cut.start == cut.stop
            )

    def end(self, writer: ClipSessionWriter) -> None:
        """End the open epoch and all later epochs, which have no sample."""
        if self._starts:
            self.begin(writer, self._starts[-1])
        self._end_open(writer)

    def _end_open(self, writer: ClipSessionWriter) -> None:
        if self._next:
            cut: EpochCut = self.cuts[self._next - 1]
            writer.end_epoch(self.name, cut.sent, cut.ended)


@dataclass(frozen=True)
class State:
    """A state of a stream: the `values` that its driver reported."""

    stream: str
    t_ns: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Incident:
    """An event of the session or of a stream."""

    t_ns: int
    event: dict[str, Any]


def get_time_ns(item: Any) -> int:
    """Return an item's time, epoch ns; for samples, that of the last one."""
    return int(item.t_ns[-1]) if isinstance(item, Chunk) else int(item.t_ns)


def read_states(source: SessionPart, streams: set[str]) -> Iterator[State]:
    """Yield the interval's states in order, after the latest earlier state of each kind."""
    begin_ns, end_ns = source.interval_ns
    before: dict[tuple[str, ...], State] = {}
    inside = []
    path = layout.private(source.path, layout.LOG)
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
                state = State(str(entry["stream"]), int(entry["t_ns"]), dict(entry["state"]))
            except (ValueError, LookupError, TypeError, RecursionError):
                continue  # `recorder check` reports the damaged line
            if state.stream not in streams or (end_ns is not None and state.t_ns >= end_ns):
                continue
            if begin_ns is not None and state.t_ns < begin_ns:
                if INCOMPLETE in state.values:
                    continue  # it counts samples before the clip
                before[state.stream, *sorted(state.values)] = state
            else:
                inside.append(state)
    for state in before.values():
        first = int(source.streams[state.stream].times(0, 1)[0])
        yield State(state.stream, first, state.values)
    yield from sorted(inside, key=lambda state: state.t_ns)


def read_incidents(source: SessionPart, streams: set[str], start_ns: int) -> Iterator[Incident]:
    """Yield the interval's events that the writer does not derive from samples, states and losses.

    The first event is the latest clock state from before the interval.
    """
    begin_ns, _ = source.interval_ns
    clocks = None
    if begin_ns is not None:
        for event in source.whole.events():
            if (event.get("type"), event.get("cause")) == ("clock", "state"):
                if event["t_ns"] >= begin_ns:
                    break
                clocks = event
    if clocks is not None:
        yield Incident(start_ns, {**clocks, "t_ns": start_ns, "recorded_ns": clocks["t_ns"]})
    for event in source.events():
        kind, stream = event.get("type"), event.get("stream")
        elsewhere = stream and stream not in streams and kind != "mark"
        if kind in ("lost", INCOMPLETE, END) or elsewhere:
            continue
        if begin_ns is None or event["t_ns"] >= begin_ns:
            yield Incident(event["t_ns"], event)
