"""Session writer of a clip, which repeats epochs, losses and ends of other sessions."""

from __future__ import annotations

import threading
from typing import Any

from recorder.common.files import AppendFile
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session import layout


class ClipClock:
    """A manual clock that shows the latest copied time.

    Args:
        mono_ns: start time, CLOCK_MONOTONIC of the recording, ns.
        offset_ns: offset from CLOCK_MONOTONIC to epoch time, ns.
    """

    def __init__(self, mono_ns: int, offset_ns: int) -> None:
        self._mono_ns, self._offset_ns = mono_ns, offset_ns

    def advance(self, mono_ns: int) -> None:
        """Advance to a time, ns; ignore an earlier one."""
        self._mono_ns = max(self._mono_ns, mono_ns)

    def monotonic_ns(self) -> int:
        return self._mono_ns

    def realtime_ns(self) -> int:
        return self._mono_ns + self._offset_ns

    def wait(self, event: threading.Event, seconds: float) -> bool:  # noqa: ARG002
        """Return at once whether the event is set: a clip has nothing to wait for."""
        return event.is_set()


class ClipSessionWriter(SessionWriter):
    """Writer of a session that is copied from others; no other writer resumes it.

    ::

        writer = ClipSessionWriter.create(disk, plan, clock)
        writer.begin_epoch("camera", 1, first_seq=300, empty=False)
        writer.append(message)
        writer.repeat_loss("camera", event)
        writer.end_epoch("camera", 330, "clip")
    """

    def __init__(self, *arguments: Any) -> None:
        """Initialize a writer; call `create` instead."""
        super().__init__(*arguments)
        self._attached: list[AppendFile] = []

    def attach(self, name: str) -> AppendFile:
        """Release all held-back samples and create a further file in ``_recorder``."""
        with self.lock:
            self._streams.release_all()
            file = self._disk.create(layout.private(self.path, name))
            self._attached.append(file)
            self._disk.sync_folder(layout.private(self.path))
        return file

    def begin_epoch(self, stream: str, epoch: int, first_seq: int, *, empty: bool) -> None:
        """Begin an epoch of another session at `first_seq`; `empty`: the epoch has no sample."""
        with self.lock:
            progress = self._streams.progress[stream]
            progress.first_seqs[epoch] = first_seq
            if empty:
                progress.past += [progress.epoch] if progress.epoch else []
                self._session_log.begin_epoch(progress, epoch)

    def repeat_loss(self, stream: str, event: dict[str, Any]) -> None:
        """Log the unchanged ``lost`` event of a stream in another session."""
        with self.lock:
            progress = self._streams.progress[stream]
            if isinstance(count := event["count"], int):
                progress.lost[event["cause"]] = progress.lost.get(event["cause"], 0) + count
            else:
                progress.unknown_losses += 1
            self._session_log.event(event)

    def end_epoch(self, stream: str, sent: int | None, reason: str) -> None:
        """End a stream's epoch with another session's count and reason, without an event."""
        with self.lock:
            progress = self._streams.progress[stream]
            self._streams.release(progress)
            progress.ended = reason
            self._session_log.record_end(progress, sent, reason)

    def _files(self) -> list[AppendFile]:
        own = self._session_log.files
        return [*own, *self._attached, *super()._files()[len(own) :]]
