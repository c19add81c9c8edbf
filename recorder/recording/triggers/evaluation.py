"""Evaluation of triggers over a session, sample by sample, in step with its journal.

::

    evaluation = Evaluation("sessions/rig-1", config.triggers)
    for fired in evaluation.read():       # everything committed since the last call
        fired.trigger, fired.t_ns

Commits are evaluated in order; within a commit, changes are ordered by stamp, then by stream name.
So an open session and the same session after its end give the same moments.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recorder.codecs.streams import ChannelSpec, StreamSpec
from recorder.common.errors import SessionError
from recorder.config.expressions import (
    COUNTERS,
    SESSION,
    Expression,
    Reference,
    Value,
    compile_expression,
)
from recorder.config.settings import TriggerSettings
from recorder.session import layout
from recorder.session.journal.journal import JournalFollower


class Firing:
    """Firing state of one trigger.

    A trigger fires once when its condition has held for its duration.  It can fire again after its
    release: by `until`, or without `until` by the end of the condition.  Within the cooldown after
    a firing it does not fire; these suppressed firings are counted.

    Attributes:
        settings: the trigger's settings.
        suppressed: number of firings that the cooldown prevented.
    """

    def __init__(self, settings: TriggerSettings) -> None:
        self.settings = settings
        self.suppressed = 0
        self._since_ns: int | None = None
        self._released = True
        self._fired_ns: int | None = None

    def update(self, t_ns: int, holds: bool, releases: bool) -> bool:
        """Update the state at a time, and return whether the trigger fires.

        Args:
            t_ns: epoch ns; may step back by as much as the stamps of streams differ.
            holds: whether the condition is true.
            releases: whether the release condition is true.
        """
        if not self._released and releases:
            self._released, self._since_ns = True, None
        if not holds:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = t_ns
        if not self._released or t_ns - self._since_ns < self.settings.duration * 1e9:
            return False
        self._released = False
        cooling = self._fired_ns is not None and (
            t_ns - self._fired_ns < self.settings.cooldown * 1e9
        )
        if cooling:
            self.suppressed += 1
            return False
        self._fired_ns = t_ns
        return True


_SECOND_NS = 1_000_000_000
_NONE: npt.NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True)
class Fired:
    """A moment at which a trigger fired.

    Attributes:
        trigger: name of the trigger.
        t_ns: epoch ns, on the session's clock.
        before, after: window to keep around the moment [s].
        values: value of each reference in the condition, by its text; None: missing.
    """

    trigger: str
    t_ns: int
    before: float
    after: float
    values: Mapping[str, Value]


@dataclass
class _Trigger:
    settings: TriggerSettings
    when: Expression
    until: Expression | None
    firing: Firing

    @property
    def references(self) -> set[Reference]:
        return {*self.when.references, *(self.until.references if self.until else ())}


@dataclass
class _Watched:
    """A stream that triggers refer to.

    Attributes:
        slots: by channel, each element's index and its slot in the values.
        recent_ns: stamps of the last second if a trigger uses the rate, epoch ns.
    """

    slots: dict[str, list[tuple[tuple[int, ...], int]]] = field(default_factory=dict)
    triggers: list[_Trigger] = field(default_factory=list)
    samples: int = 0
    has_rate: bool = False
    recent_ns: npt.NDArray[np.int64] = field(default_factory=lambda: _NONE)


@dataclass(order=True)
class _Change:
    """New values from one sample, state or event."""

    t_ns: int
    stream: str
    order: int
    values: list[tuple[int, Value]] = field(compare=False)


class Evaluation:
    """Evaluation of triggers over one session; see the module's example.

    Attributes:
        problems: by trigger, why it cannot be evaluated; the others are evaluated.
        suppressed: by trigger, how often its cooldown prevented it from firing.

    Args:
        session: a session of the recorder, open or closed.
        triggers: the triggers to evaluate.
        earlier: the evaluation of the previous part, whose state is continued.
    """

    def __init__(
        self,
        session: Path,
        triggers: Sequence[TriggerSettings],
        earlier: Evaluation | None = None,
    ) -> None:
        self.problems: dict[str, str] = {}
        self._session = session
        self._journal = JournalFollower(layout.private(session, layout.JOURNAL))
        self._slots: dict[Reference, int] = {} if earlier is None else earlier._slots
        self._events: dict[int, int] = {} if earlier is None else earlier._events
        self._triggers: list[_Trigger] = (
            [self._compile(settings) for settings in triggers]
            if earlier is None
            else earlier._triggers
        )
        self._values: list[Value] = (
            [None] * len(self._slots) if earlier is None else earlier._values
        )
        self._is_first = earlier is None
        self._watched: dict[str, _Watched] = {}
        self._checked: set[str] = set()
        self._read_to = {layout.EVENTS: 0, layout.LOG: 0}
        for trigger in self._triggers:
            for reference in trigger.references:
                self._watch(trigger, reference)
        for name, before in ({} if earlier is None else earlier._watched).items():
            if name in self._watched:
                self._watched[name].recent_ns = before.recent_ns

    @property
    def suppressed(self) -> dict[str, int]:
        return {t.settings.name: t.firing.suppressed for t in self._triggers}

    @property
    def unknown(self) -> set[tuple[str, str]]:
        """Pairs of a trigger and a stream in it that the journal has not declared so far."""
        return {
            (trigger.settings.name, reference.stream)
            for trigger in self._triggers
            for reference in trigger.references
            if reference.stream != SESSION and reference.stream not in self._journal.state.specs
        }

    @property
    def closed(self) -> bool:
        """Whether the recording has ended and its journal was read to the end."""
        return self._journal.state.closed is not None

    @property
    def offset_ns(self) -> int:
        """Offset from CLOCK_MONOTONIC to the session's epoch time, ns."""
        return self._journal.state.start_ns - self._journal.state.start_mono_ns

    @property
    def commits(self) -> int:
        """Number of commits read so far."""
        return self._journal.state.commits

    @property
    def next(self) -> Path | None:
        """The session that continues this one."""
        return self._journal.state.find_next_session(self._session)

    def read(self) -> Iterator[Fired]:
        """Yield the triggers that fire in the data committed since the last call.

        Raises:
            SessionError: the journal or a file cannot be read.
        """
        for frame, content in self._journal.read():
            if frame.kind == "stream":
                self._check(self._journal.state.specs)
            elif frame.kind == "commit":
                yield from self._evaluate_commit(int(content["t_ns"]))

    def _compile(self, settings: TriggerSettings) -> _Trigger:
        until = None
        if settings.until is not None:
            until = compile_expression(settings.until, self._slots)
        when = compile_expression(settings.when, self._slots)
        return _Trigger(settings, when, until, Firing(settings))

    def _watch(self, trigger: _Trigger, reference: Reference) -> None:
        watched = self._watched.setdefault(reference.stream, _Watched())
        if reference.kind == "channel":
            places = watched.slots.setdefault(reference.path[0], [])
            place = (reference.index, self._slots[reference])
            if place not in places:
                places.append(place)
        watched.has_rate |= reference.kind == "rate"
        if trigger not in watched.triggers:
            watched.triggers.append(trigger)

    def _check(self, specs: Mapping[str, StreamSpec]) -> None:
        """Remove triggers whose references a declared stream cannot satisfy."""
        for name, spec in specs.items():
            if name in self._checked:
                continue
            self._checked.add(name)
            channels = {channel.name: channel for channel in spec.channels}
            for trigger in list(self._triggers):
                for reference in trigger.references:
                    if reference.stream == name and reference.kind == "channel":
                        fault = find_channel_fault(reference, channels)
                        if fault and trigger in self._triggers:
                            self.problems[trigger.settings.name] = fault
                            self._leave_out(trigger)

    def _leave_out(self, trigger: _Trigger) -> None:
        self._triggers.remove(trigger)
        used = {self._slots[r] for left in self._triggers for r in left.references}
        for watched in self._watched.values():
            watched.triggers = [left for left in watched.triggers if left is not trigger]
            for name, places in watched.slots.items():
                watched.slots[name] = [place for place in places if place[1] in used]

    def _evaluate_commit(self, t_mono_ns: int) -> Iterator[Fired]:
        state, offset_ns = self._journal.state, self.offset_ns
        changes: list[_Change] = []
        for name, watched in self._watched.items():
            position = state.positions.get(name)
            if position is None or int(position["samples"]) <= watched.samples:
                continue
            spec = state.specs.get(name)
            if spec is not None:
                stop = int(position["samples"])
                changes += self._read_samples(spec, watched, watched.samples, stop, offset_ns)
                watched.samples = stop
        changes += self._read_lines(layout.LOG, self._read_state)
        changes += self._read_lines(layout.EVENTS, self._read_event)
        changes.sort()
        for change in changes:
            for slot, value in change.values:
                self._values[slot] = value
            yield from self._evaluate(self._watched[change.stream].triggers, change.t_ns)
        yield from self._update_counters(t_mono_ns + offset_ns)

    def _read_samples(
        self, spec: StreamSpec, watched: _Watched, start: int, stop: int, offset_ns: int
    ) -> list[_Change]:
        times = self._read_raw(spec.name, "t_mono", np.dtype("<i8"), (), start, stop) + offset_ns
        if watched.has_rate:
            watched.recent_ns = np.concatenate([watched.recent_ns, times])
        if not watched.slots:
            return []
        columns: list[list[float]] = []
        slots: list[int] = []
        for channel in spec.channels:
            places = watched.slots.get(channel.name, ())
            if not places:
                continue
            values = self._read_raw(
                spec.name, channel.name, channel.np_dtype, channel.shape, start, stop
            ).reshape(stop - start, -1)
            for index, slot in places:
                at = int(np.ravel_multi_index(index, channel.shape)) if index else 0
                columns.append(values[:, at].astype(np.float64).tolist())
                slots.append(slot)
        rows = zip(times.tolist(), *columns, strict=True)
        return [
            _Change(t_ns, spec.name, k, list(zip(slots, row, strict=True)))
            for k, (t_ns, *row) in enumerate(rows)
        ]

    def _read_raw(
        self,
        stream: str,
        channel: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        start: int,
        stop: int,
    ) -> npt.NDArray[Any]:
        path = self._session / stream / channel
        size = dtype.itemsize * math.prod(shape)
        try:
            with path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), size * (stop - start), size * start)
        except OSError as error:
            raise SessionError(f"{path}: cannot be read: {error.strerror}") from None
        if len(data) < size * (stop - start):
            raise SessionError(f"{path}: ends before sample {stop}, which was committed")
        return np.frombuffer(data, dtype).reshape(stop - start, *shape)

    def _read_lines(self, name: str, change: Any) -> list[_Change]:
        """Return the changes in the newly committed lines of a log."""
        path = layout.private(self._session, name)
        start = self._read_to[name]
        stop = self._journal.state.files.get(f"{layout.PRIVATE}/{name}", 0)
        if stop <= start:
            return []
        self._read_to[name] = stop
        try:
            with path.open("rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        except OSError as error:
            raise SessionError(f"{path}: cannot be read: {error.strerror}") from None
        changes = []
        for number, line in enumerate(data.split(b"\n")):
            try:
                entry: Any = json.loads(line or b"{}")
                stream = str(entry.get("stream") or SESSION)
                if stream in self._watched and (values := change(stream, entry)):
                    changes.append(_Change(int(entry["t_ns"]), stream, number, values))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                continue  # a damaged line, which `recorder check` reports
        return changes

    def _read_state(self, stream: str, entry: Mapping[str, Any]) -> list[tuple[int, Value]]:
        values: list[tuple[int, Value]] = []
        for reference, slot in self._slots.items():
            if reference.stream == stream and reference.kind == "state":
                value: Any = entry["state"]
                for key in reference.path:
                    value = value.get(key) if isinstance(value, dict) else None
                if isinstance(value, bool | int | float):
                    values.append((slot, value if isinstance(value, bool) else float(value)))
        return values

    def _read_event(self, stream: str, entry: Mapping[str, Any]) -> list[tuple[int, Value]]:
        values: list[tuple[int, Value]] = []
        for reference, slot in self._slots.items():
            named = reference.path[:1] in ((entry.get("type"),), (entry.get("cause"),))
            if reference.stream == stream and reference.kind == "events" and named:
                self._events[slot] = self._events.get(slot, 0) + 1
                values.append((slot, float(self._events[slot])))
        return values

    def _update_counters(self, t_ns: int) -> Iterator[Fired]:
        """Update rates and losses at a commit's time, and evaluate the triggers that use them."""
        looked: list[_Trigger] = []
        for reference, slot in self._slots.items():
            if reference.kind not in COUNTERS or reference.stream not in self._watched:
                continue
            watched = self._watched[reference.stream]
            position = self._journal.state.positions.get(reference.stream)
            if position is None:
                continue
            value: Value
            if reference.kind == "rate":
                recent = watched.recent_ns
                watched.recent_ns = recent[recent > t_ns - _SECOND_NS]
                is_known = not self._is_first or t_ns - self._journal.state.start_ns >= _SECOND_NS
                value = float(len(watched.recent_ns)) if is_known else None
            elif reference.kind == "lost":
                value = float(sum(position.get("lost", {}).values()))
            else:
                value = float(position.get("unknown_losses", 0))
            self._values[slot] = value
            looked += [t for t in watched.triggers if reference in t.references and t not in looked]
        yield from self._evaluate(looked, t_ns)

    def _evaluate(self, triggers: Sequence[_Trigger], t_ns: int) -> Iterator[Fired]:
        values = self._values
        for trigger in triggers:
            holds = trigger.when.is_met(values)
            releases = not holds if trigger.until is None else trigger.until.is_met(values)
            if trigger.firing.update(t_ns, holds, releases):
                settings = trigger.settings
                known = {str(r): values[self._slots[r]] for r in trigger.when.references}
                yield Fired(settings.name, t_ns, settings.before, settings.after, known)


SMALL_BYTES: Final = 4096
"""Size limit for the sample of a channel in a condition, bytes."""


def find_trigger_faults(
    triggers: Sequence[TriggerSettings], specs: Mapping[str, StreamSpec]
) -> Iterator[tuple[str, str]]:
    """Yield the config key and a description of each reference that cannot be evaluated.

    Args:
        triggers: triggers of a config.
        specs: all streams that the config records, by name.
    """
    for trigger in triggers:
        for part in ("when", "until"):
            text = getattr(trigger, part)
            for reference in compile_expression(text).references if text is not None else ():
                fault = ""
                if (spec := specs.get(reference.stream)) is None:
                    if reference.stream != SESSION:
                        fault = (
                            f"{reference}: there are only the streams {', '.join(sorted(specs))}"
                        )
                elif reference.kind == "channel":
                    fault = find_channel_fault(reference, {c.name: c for c in spec.channels})
                if fault:
                    yield f"triggers.{trigger.name}.{part}", fault


def find_channel_fault(reference: Reference, channels: Mapping[str, ChannelSpec]) -> str:
    """Return why the channels of a stream do not satisfy a reference; empty if they do."""
    channel = channels.get(reference.path[0])
    if channel is None:
        return f"{reference}: {reference.stream} has only the channels {', '.join(channels)}"
    if channel.format != "raw" or channel.sample_bytes > SMALL_BYTES:
        return f"{reference}: is not a small channel of raw numbers"
    if len(reference.index) != len(channel.shape):
        if not channel.shape:
            return f"{reference}: is one number, without an index"
        return f"{reference}: needs an index for each axis of {list(channel.shape)}"
    for number, size in zip(reference.index, channel.shape, strict=True):
        if number >= size:
            return f"{reference}: {number} is beyond the axis of {size}"
    return ""
