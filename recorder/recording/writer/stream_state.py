"""Progress of one stream of a session, in messages."""

from __future__ import annotations

import copy
from typing import Any

from recorder.bus.wire import Kind, Message
from recorder.recording.writer.stream_files import StreamFiles
from recorder.session.events import make_event
from recorder.session.journal.state import EPOCH_DEFAULTS, JournalState
from recorder.session.missing_sensors import ABSENT

_LARGE_BYTES = 8_000_000
_NOTHING: dict[str, Any] = {"epoch": 0, "number": 0, "seq": 0, **EPOCH_DEFAULTS}
_POSITION = tuple(_NOTHING)


class StreamState:
    """State of one stream in the session, which counts the appended messages.

    Attributes:
        since_ns: CLOCK_MONOTONIC from which its samples are expected: the session's start, or the
            declaration of a stream that its driver found later.
        found_later: whether the sensor already had samples when the stream was declared.
        declared_again: whether it was declared more than once.
    """

    def __init__(self, store: StreamFiles, since_ns: int, sensor: str = "") -> None:
        self.store = store
        self.sensor = sensor
        self.since_ns = since_ns
        self.found_later = self.declared_again = False
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
        self.first_seqs: dict[int, int] = {}  # by epoch, first numbers other than 0
        self.held: list[Message] = []

    def position(self) -> dict[str, Any]:
        """Return the stream's position for a commit record."""
        position = {key: copy.copy(getattr(self, key)) for key in _POSITION}
        return position | {"samples": self.store.samples, "last_ns": self.store.last_ns}

    def restore(self, journal: JournalState, name: str) -> None:
        """Continue from the last commit's position and epochs."""
        position = journal.positions.get(name, {})
        for key in _POSITION:
            if key in position:
                setattr(self, key, position[key])
        # Later records may belong to epochs that the commit lacks; those are recorded again.
        known = {self.epoch, *self.past}
        epochs = dict(journal.epochs.get(name, ()))
        self.epochs = [(epoch, index) for epoch, index in epochs.items() if epoch in known]
        for epoch, end in journal.ends.get(name, {}).items():
            if epoch in self.past or (epoch == self.epoch and self.ended is not None):
                self.ends[epoch] = end

    def count_incomplete(self, cause: str, samples: int, parts: int) -> None:
        """Add samples that lack parts; replace the mapping, since other threads read it."""
        known = self.incomplete.get(cause, {"samples": 0, "parts": 0})
        counts = {"samples": known["samples"] + samples, "parts": known["parts"] + parts}
        self.incomplete = {**self.incomplete, cause: counts}

    def describe_epochs(self) -> list[dict[str, Any]]:
        """Return the stream's epochs for ``session.json``; sent is None without a report."""
        described = []
        for epoch, index in self.epochs:
            sent, reason = self.ends.get(epoch, (None, "gone"))
            entry = {"epoch": epoch, "first_sample": index, "sent": sent, "ended": reason}
            if first_seq := self.first_seqs.get(epoch):
                entry["first_seq"] = first_seq
            described.append(entry)
        return described


def make_absent_position() -> dict[str, Any]:
    """Return the position of a stream without a sample."""
    position = {key: copy.copy(value) for key, value in _NOTHING.items()}
    return position | {"samples": 0, "last_ns": -1, "ended": ABSENT, "unknown_losses": 1}


def uncounted_loss(
    progress: StreamState, t_ns: int, cause: str, gap_ns: int, given: int = 0, **where: Any
) -> dict[str, Any]:
    """Count an interval of loss in a stream; return its event.

    Args:
        progress: progress of the stream.
        t_ns: epoch ns of the event.
        cause: cause of the loss.
        gap_ns: length of the interval.
        given: number of samples in the interval.
        where: ``first_seq`` and ``epoch``; by default those of `progress`.
    """
    spec = progress.store.spec
    estimate = max(0, round(gap_ns * spec.rate_hz / 1e9) - given) if spec.rate_hz else None
    progress.unknown_losses += 1
    about = {"duration_ns": gap_ns, "first_seq": progress.seq, "epoch": progress.epoch}
    return make_event("lost", t_ns, spec.name, cause, **about | where, estimate=estimate)


def may_begin(held: list[Message]) -> bool:
    """Return whether to create a stream's folder: it has a second sample, or has ended.

    Large samples are not held, since the first ones of all streams would exceed the credit.
    """
    samples = sum(m.count or 0 for m in held if m.kind is Kind.DATA)
    return samples > 1 or held[-1].kind is Kind.END or held[0].nbytes >= _LARGE_BYTES


def first_time(message: Message) -> int:
    """Return CLOCK_MONOTONIC of a message's first sample or of the message itself, in ns."""
    times = message.t_mono_ns
    return times if isinstance(times, int) else int(times[0])


def last_time(message: Message) -> int:
    """Return CLOCK_MONOTONIC of a message's last sample or of the message itself, in ns."""
    times = message.t_mono_ns
    return times if isinstance(times, int) else int(times[-1])
