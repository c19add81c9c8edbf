"""Writer of a clip: epochs, losses and ends as other sessions have them."""

from __future__ import annotations

import threading
from typing import Any

from recorder.formats.disk import AppendFile
from recorder.session import layout
from recorder.writer.session_writer import SessionWriter


class ClipClock:
    """A clock that stands at the latest recorded time.

    Args:
        mono_ns: where it begins, the recording's CLOCK_MONOTONIC.
        offset_ns: what is to be added for epoch ns.
    """

    def __init__(self, mono_ns: int, offset_ns: int) -> None:
        self._mono_ns, self._offset_ns = mono_ns, offset_ns

    def advance(self, mono_ns: int) -> None:
        """Go on to a time; never back."""
        self._mono_ns = max(self._mono_ns, mono_ns)

    def monotonic_ns(self) -> int:
        return self._mono_ns

    def realtime_ns(self) -> int:
        return self._mono_ns + self._offset_ns

    def wait(self, event: threading.Event, seconds: float) -> bool:  # noqa: ARG002
        """Nothing happens while a clip waits."""
        return event.is_set()


class ClipSessionWriter(SessionWriter):
    """Writes a session that is copied from others; no other writer resumes it.

    ::

        writer = ClipSessionWriter.create(disk, plan, clock)
        writer.begin_epoch("camera", 1, first_seq=300, empty=False)
        writer.append(message)
        writer.repeat_loss("camera", event)
        writer.end_epoch("camera", 330, "clip")
    """

    def __init__(self, *arguments: Any) -> None:
        """Use `create`."""
        super().__init__(*arguments)
        self._attached: list[AppendFile] = []

    def attach(self, name: str) -> AppendFile:
        """Create a further file in ``_recorder``; no sample is held back any more."""
        with self.lock:
            self._streams.release_all()
            file = self._disk.create(layout.private(self.path, name))
            self._attached.append(file)
            self._disk.sync_folder(layout.private(self.path))
        return file

    def begin_epoch(self, stream: str, epoch: int, first_seq: int, *, empty: bool) -> None:
        """Begin an epoch of another session, at a number; `empty`: it has no sample."""
        with self.lock:
            progress = self._streams.progress[stream]
            progress.first_seqs[epoch] = first_seq
            if empty:
                progress.past += [progress.epoch] if progress.epoch else []
                self._session_log.begin_epoch(progress, epoch)

    def repeat_loss(self, stream: str, event: dict[str, Any]) -> None:
        """Log a ``lost`` event of a stream's epoch as another session has it."""
        with self.lock:
            progress = self._streams.progress[stream]
            if isinstance(count := event["count"], int):
                progress.lost[event["cause"]] = progress.lost.get(event["cause"], 0) + count
            else:
                progress.unknown_losses += 1
            self._session_log.event(event)

    def end_epoch(self, stream: str, sent: int | None, reason: str) -> None:
        """End a stream's epoch as another session has it, without an event."""
        with self.lock:
            progress = self._streams.progress[stream]
            self._streams.release(progress)
            progress.ended = reason
            self._session_log.record_end(progress, sent, reason)

    def _files(self) -> list[AppendFile]:
        own = self._session_log.files
        return [*own, *self._attached, *super()._files()[len(own) :]]
