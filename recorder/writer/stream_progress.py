"""The progress of one stream of a session, in messages."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from recorder.contract.wire import Kind, Message
from recorder.session.absence import ABSENT
from recorder.session.events import make_event
from recorder.session.journal_state import EPOCH_DEFAULTS, JournalState
from recorder.writer.stream_store import StreamStore

_LARGE_BYTES = 8_000_000
_NOTHING: dict[str, Any] = {"epoch": 0, "number": 0, "seq": 0, **EPOCH_DEFAULTS}
_POSITION = tuple(_NOTHING)


class StreamProgress:
    """One stream's state in the session: the messages that were appended."""

    def __init__(self, store: StreamStore, sensor: str = "") -> None:
        self.store = store
        self.sensor = sensor
        self.epoch = 0
        self.number = 0
        self.seq = 0
        self.ended: str | None = None
        self.past: list[int] = []
        self.lost: dict[str, int] = {}
        self.unknown_losses = 0
        self.incomplete: dict[str, dict[str, int]] = {}  # by cause, samples and parts
        self.epochs: list[tuple[int, int]] = []
        self.ends: dict[int, tuple[int | None, str]] = {}
        self.first_seqs: dict[int, int] = {}  # of epochs that do not begin with number 0
        self.held: list[Message] = []

    def position(self) -> dict[str, Any]:
        """The stream's position for a commit record."""
        position = {key: copy.copy(getattr(self, key)) for key in _POSITION}
        return position | {"samples": self.store.samples, "last_ns": self.store.last_ns}

    def restore(self, journal: JournalState, name: str) -> None:
        """Continue from the last commit's position and epochs."""
        position = journal.positions.get(name, {})
        for key in _POSITION:
            if key in position:
                setattr(self, key, position[key])
        # Later records may be of epochs that the commit lacks; those are recorded again.
        known = {self.epoch, *self.past}
        epochs = dict(journal.epochs.get(name, ()))
        self.epochs = [(epoch, index) for epoch, index in epochs.items() if epoch in known]
        for epoch, end in journal.ends.get(name, {}).items():
            if epoch in self.past or (epoch == self.epoch and self.ended is not None):
                self.ends[epoch] = end

    def count_incomplete(self, cause: str, samples: int, parts: int) -> None:
        """Add samples that lack parts; the mapping is replaced, since other threads read it."""
        known = self.incomplete.get(cause, {"samples": 0, "parts": 0})
        counts = {"samples": known["samples"] + samples, "parts": known["parts"] + parts}
        self.incomplete = {**self.incomplete, cause: counts}

    def describe_epochs(self) -> list[dict[str, Any]]:
        """The stream's epochs for ``session.json``; sent is None without a report."""
        described = []
        for epoch, index in self.epochs:
            sent, reason = self.ends.get(epoch, (None, "gone"))
            entry = {"epoch": epoch, "first_sample": index, "sent": sent, "ended": reason}
            if first_seq := self.first_seqs.get(epoch):
                entry["first_seq"] = first_seq
            described.append(entry)
        return described


def absent_position() -> dict[str, Any]:
    """The position of a stream whose sensor gave no sample."""
    position = {key: copy.copy(value) for key, value in _NOTHING.items()}
    return position | {"samples": 0, "last_ns": -1, "ended": ABSENT, "unknown_losses": 1}


def streams_of_sensors(
    sensors: Mapping[str, Mapping[str, Any]], progress: Mapping[str, StreamProgress]
) -> dict[str, list[str]]:
    """By configured sensor, the streams that its driver has declared, also after the start.

    Args:
        sensors: by name, from ``session.json``.
        progress: of the declared streams, by name; another thread may add to it.
    """
    declared = [(t.sensor, name) for name, t in list(progress.items())]
    return {
        sensor: sorted({*header.get("streams", ()), *(n for s, n in declared if s == sensor)})
        for sensor, header in sensors.items()
    }


def cut_short(sensor: str, progress_by_stream: Iterable[StreamProgress], epoch: int) -> set[int]:
    """Earlier epochs of a sensor that have no end, since their driver died.

    Args:
        sensor: its name; without a name there are no such epochs.
        progress_by_stream: of all streams.
        epoch: epochs before this one count.
    """
    return {
        life
        for other in list(progress_by_stream)
        if sensor and other.sensor == sensor
        for life in (other.epoch, *other.past)
        if 0 < life < epoch and other.ends.get(life, (None, ""))[0] is None
    }


def uncounted_loss(
    progress: StreamProgress, t_ns: int, cause: str, gap_ns: int, given: int = 0, **where: Any
) -> dict[str, Any]:
    """Count an interval in which a stream gave only so many samples; returns its event.

    Args:
        progress: of the stream.
        t_ns: epoch ns of the event.
        cause: of the loss.
        gap_ns: length of the interval.
        given: samples in the interval.
        where: ``first_seq`` and ``epoch``; by default those of `progress`.
    """
    spec = progress.store.spec
    estimate = max(0, round(gap_ns * spec.rate_hz / 1e9) - given) if spec.rate_hz else None
    progress.unknown_losses += 1
    about = {"duration_ns": gap_ns, "first_seq": progress.seq, "epoch": progress.epoch}
    return make_event("lost", t_ns, spec.name, cause, **about | where, estimate=estimate)


def may_begin(held: list[Message]) -> bool:
    """Whether a stream's folder may be made: it has a second sample, or has ended.

    Large samples are not held: the first ones of all streams would exceed the credit.
    """
    samples = sum(m.count or 0 for m in held if m.kind is Kind.DATA)
    return samples > 1 or held[-1].kind is Kind.END or held[0].nbytes >= _LARGE_BYTES


def first_time(message: Message) -> int:
    """CLOCK_MONOTONIC of a message's first sample, or of the message itself, in ns."""
    times = message.t_mono_ns
    return times if isinstance(times, int) else int(times[0])


def last_time(message: Message) -> int:
    """CLOCK_MONOTONIC of a message's last sample, or of the message itself, in ns."""
    times = message.t_mono_ns
    return times if isinstance(times, int) else int(times[-1])
