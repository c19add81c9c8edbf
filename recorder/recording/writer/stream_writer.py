"""Streams of a session while it is written, updated by the drivers' messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recorder.bus.wire import Kind, Message
from recorder.recording.writer.event_writer import EventWriter
from recorder.recording.writer.stream_files import StreamFiles
from recorder.recording.writer.stream_state import (
    StreamState,
    make_absent_position,
    may_begin,
)
from recorder.session.journal.state import JournalState
from recorder.session.missing_sensors import find_absent_streams


class StreamWriters:
    """Streams of one session.

    The caller holds the session's lock, except for methods that need no lock.

    Args:
        log: log of the session.
        sensors: the planned sensors, as in ``session.json``.
        restored: journal state of a reopened session; None for a new one.

    Attributes:
        progress: by name, the progress of each stream that was declared to this writer.
    """

    def __init__(
        self, log: EventWriter, sensors: Mapping[str, Any], restored: JournalState | None = None
    ) -> None:
        self.progress: dict[str, StreamState] = {}
        self._log = log
        self._sensors = sensors
        self._restored = restored or JournalState()

    def add(self, store: StreamFiles, sensor: str = "") -> None:
        """Add a stream at its position in the journal; needs no lock."""
        name = store.spec.name
        progress = StreamState(store, self._log.start_mono_ns, sensor)
        progress.restore(self._restored, name)
        if name not in self._restored.positions and self._find_epochs(sensor):
            progress.found_later = True
            progress.since_ns = self._log.now_mono_ns()
        # A holder of the lock may wait for the disk, so readers iterate over a copy instead.
        self.progress[store.spec.name] = progress

    def append(self, message: Message) -> None:
        """Append an accepted message, or hold it back until its stream may begin."""
        progress = self.progress[message.stream]
        if progress.held:
            progress.held.append(message)
        else:
            self._append(progress, message)
        if progress.held and may_begin(progress.held):
            self.release(progress)

    def release(self, progress: StreamState) -> None:
        """Append the messages that were held back until the second sample or the end."""
        if not progress.held:
            return
        if not progress.store.exists:
            progress.store.create(lambda: self._log.declare(progress.store))
        held, progress.held = progress.held, []
        for message in held:
            self._append(progress, message)

    def release_all(self) -> None:
        """Append the held-back messages of all streams."""
        for progress in self.progress.values():
            self.release(progress)

    def lose_tail(self, stream: str, now_ns: int) -> None:
        """Log the loss of a stream's tail until `now_ns` on CLOCK_MONOTONIC."""
        if (progress := self.progress.get(stream)) is not None:
            self.release(progress)
            self._log.lose_interval(progress, now_ns)
        else:  # a stream without a sample, whose driver has not returned
            position = self._restored.positions[stream]
            self._log.event(self._log.absent_loss(stream, position, "driver"))

    def lose_absent_sensors(self, end_ns: int | None) -> None:
        """Log the loss of sensors without a stream up to `end_ns`, epoch ns; None: now."""
        known = {*self.progress, *self._restored.positions}
        missing = find_absent_streams(self.group_by_sensor(), known).values()
        for name in {name for streams in missing for name in streams} | self._named_absent():
            self._log.lose_sensor(name, end_ns)
            self._restored.positions[name] = make_absent_position()

    def _named_absent(self) -> set[str]:
        """Return the streams that drivers report as absent and did not declare; needs no lock."""
        reported = list(self._log.absent_streams.values())
        known = {*list(self.progress), *list(self._restored.positions)}
        return {name for names in reported for name in names} - known

    def group_by_sensor(self) -> dict[str, list[str]]:
        """Return the streams that each sensor's driver has declared, even after the start."""
        declared = [(t.sensor, name) for name, t in list(self.progress.items())]
        return {
            sensor: sorted({*header.get("streams", ()), *(n for s, n in declared if s == sensor)})
            for sensor, header in self._sensors.items()
        }

    def find_quiet(self, sensor: str) -> list[str]:
        """Return a sensor's sporadic streams without a sample, which are not silent."""
        return sorted(
            name
            for name, progress in list(self.progress.items())
            if progress.sensor == sensor
            and progress.store.spec.sporadic
            and not progress.store.samples
        )

    def absent(self) -> dict[str, dict[str, Any]]:
        """Return positions of streams without a sample that no driver declared to this writer."""
        known = list(self._restored.positions.items())
        known += [(name, make_absent_position()) for name in self._named_absent()]
        return {n: position for n, position in known if n not in self.progress}

    def written(self) -> list[tuple[str, StreamState]]:
        """Return the streams that have files; needs no lock."""
        return [(n, t) for n, t in list(self.progress.items()) if t.store.exists]

    def committed_positions(self) -> dict[str, dict[str, Any]]:
        """Return copies of all positions for a commit, those of undeclared streams first."""
        positions = {name: dict(p) for name, p in self._restored.positions.items()}
        return positions | {name: t.position() for name, t in list(self.progress.items())}

    def positions(self) -> dict[str, dict[str, Any]]:
        """Return the appended positions with their bytes; needs no lock."""
        positions = {n: p | {"bytes": 0, "adjusted": 0} for n, p in self.absent().items()}
        for name, progress in list(self.progress.items()):
            more = {"bytes": progress.store.bytes, "adjusted": progress.store.adjusted}
            positions[name] = progress.position() | more
        return positions

    def _append(self, progress: StreamState, message: Message) -> None:
        store = progress.store
        if message.kind is Kind.DATA and not store.exists:
            progress.held.append(message)
            return
        if message.epoch != progress.epoch:
            # The time before this stream's first sample is a loss if an earlier driver died,
            # unless only the present driver has found the stream.
            lives = self._find_unended_epochs(progress.sensor, message.epoch)
            known = progress.declared_again or not progress.found_later
            if lives and known and not progress.epoch:
                self._log.begin_epoch(progress, max(lives))
            self._log.new_epoch(progress, message)
        match message.kind:
            case Kind.DATA:
                t_mono, ts = store.append(message)
                self._log.count_samples(progress, int(t_mono[0]), int(t_mono[-1]), len(t_mono))
                if (vrs := self._log.vrs) is not None:
                    vrs.data(store.spec, message, t_mono, ts)
            case Kind.LOST:
                self._log.lose(progress, message)
            case Kind.STATE:
                self._log.state(progress, message)
            case Kind.END:
                self._log.end(progress, message)
        progress.number = message.number + 1
        progress.seq = message.next_seq if message.kind in (Kind.DATA, Kind.LOST) else message.seq

    def _find_unended_epochs(self, sensor: str, epoch: int) -> set[int]:
        """Return the epochs of a sensor before `epoch` without an end, whose driver died."""
        return {
            life
            for life, ends in self._find_epochs(sensor)
            if life < epoch and ends.get(life, (None, ""))[0] is None
        }

    def _find_epochs(self, sensor: str) -> list[tuple[int, Mapping[int, Any]]]:
        """Return the epochs of a sensor's streams, each with the ends of its stream's epochs."""
        return [
            (life, other.ends)
            for other in list(self.progress.values())
            if sensor and other.sensor == sensor
            for life in (other.epoch, *other.past)
            if life > 0
        ]
