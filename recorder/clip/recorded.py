"""What a clip takes of a session besides samples: epochs, losses, states, incidents, in order."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.clip.epochs import EpochCut, cut_epochs
from recorder.clip.session_copy import ClipSessionWriter
from recorder.contract.errors import SessionError
from recorder.session import layout
from recorder.session.events import INCOMPLETE
from recorder.session.incidents import END
from recorder.session.playback import Chunk
from recorder.session.session_part import SessionPart


class StreamFeed:
    """The epochs of one stream of a session, as the clip comes to them.

    Attributes:
        name: of the stream.
        stream: its samples in the clip.
        cuts: its epochs in the clip.
        shift: added to the numbers of epochs, which must rise from session to session.
        waiting: states from before the first sample.
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
        """The epoch of the clip that is open."""
        return self.cuts[max(0, self._next - 1)].epoch + self.shift if self.cuts else 0

    def begin(self, writer: ClipSessionWriter, index: int) -> None:
        """Begin the epochs up to that of a sample."""
        wanted = bisect_right(self._starts, index)
        while self._next < wanted:
            self._end_open(writer)
            cut = self.cuts[self._next]
            self._next += 1
            writer.begin_epoch(
                self.name, cut.epoch + self.shift, cut.first_seq, empty=cut.start == cut.stop
            )

    def end(self, writer: ClipSessionWriter) -> None:
        """End the open epoch, and those behind it that have no sample."""
        if self._starts:
            self.begin(writer, self._starts[-1])
        self._end_open(writer)

    def _end_open(self, writer: ClipSessionWriter) -> None:
        if self._next:
            cut: EpochCut = self.cuts[self._next - 1]
            writer.end_epoch(self.name, cut.sent, cut.ended)


@dataclass(frozen=True)
class State:
    """A state of a stream: `values`, as its driver reported them."""

    stream: str
    t_ns: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Loss:
    """A ``lost`` event of a stream."""

    t_ns: int
    stream: str
    event: dict[str, Any]


@dataclass(frozen=True)
class Incident:
    """Another event."""

    t_ns: int
    event: dict[str, Any]


def time_of(item: Any) -> int:
    """Epoch ns of an item; of samples, the last one's."""
    return int(item.t_ns[-1]) if isinstance(item, Chunk) else int(item.t_ns)


def states(source: SessionPart, streams: set[str]) -> Iterator[State]:
    """States of the interval, in order; before them the latest of each kind from before it."""
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
                continue  # the check of the session reports it
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


def incidents(source: SessionPart, streams: set[str], start_ns: int) -> Iterator[Incident]:
    """Events of the interval that the writer does not make of samples, states and losses.

    The first is the latest state of the clocks.
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
