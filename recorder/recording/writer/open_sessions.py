"""Open sessions of the writer: one, or two while drivers cross to a new part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from recorder.bus.messages import Ending
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError
from recorder.common.files import Disk
from recorder.recording.writer.active_session import ActiveSession, Peer, StopRequest
from recorder.recording.writer.disk_policy import (
    describe_error,
    find_next_session,
    read_ending,
    split_ending,
)
from recorder.recording.writer.session_writer import SessionWriter

_SEAM_GRACE_NS = 10_000_000_000  # for drivers, to send the rest of their samples


class OpenSessions:
    """The recorded session, and the previous session until it is closed.

    Only the receiving thread uses this class.

    Args:
        disk, clock: injectable.
        buffer_bytes: sum of all drivers' rings.
        notify: wakes the receiving thread; safe in any thread.

    Attributes:
        active: the session being recorded; None without one.
        previous: the session that `active` continues; None once it is closed.
        ended: ending of the last session; None before the first has ended.
    """

    def __init__(
        self, disk: Disk, clock: Clock, buffer_bytes: int, notify: Callable[[], None]
    ) -> None:
        self.active: ActiveSession | None = None
        self.previous: ActiveSession | None = None
        self.ended: Ending | None = None
        self._disk = disk
        self._clock = clock
        self._buffer_bytes = buffer_bytes
        self._notify = notify

    def __iter__(self) -> Iterator[ActiveSession]:
        """Iterate over the open sessions, the previous one first."""
        return iter([s for s in (self.previous, self.active) if s is not None])

    def find(self, known: Peer) -> ActiveSession | None:
        """Return the session of a driver; None without one."""
        return self.previous if known.behind and self.previous is not None else self.active

    def begin(self, writer: SessionWriter) -> ActiveSession:
        """Begin to record into a session."""
        current = self.active = ActiveSession(
            writer, self._disk, self._clock, self._buffer_bytes, self._notify
        )
        current.start()
        return current

    def leave(
        self, current: ActiveSession, peer: bytes | None, request: int, live: set[str]
    ) -> None:
        """Make a session the previous one, which accepts only the drivers' remaining samples."""
        self.previous = current
        deadline = self._clock.monotonic_ns() + _SEAM_GRACE_NS
        current.finishing = StopRequest(peer, request, live, deadline, at_seam=True)

    def remove(self, current: ActiveSession, how: Ending) -> None:
        """Remove a session that is closed or sealed; `how` is its ending."""
        if current is self.previous:
            self.previous = None
        else:
            self.active, self.ended = None, how

    def resume(self, path: Path) -> None:
        """Resume a session; if that fails, `ended` holds its ending or the error.

        If another session already continues it, that session is resumed, too.  In this case the
        given session is resumed only if it is not closed.
        """
        try:
            while (following := find_next_session(path)) is not None:
                if read_ending(path) is None:
                    left = self.begin(SessionWriter.resume(self._disk, path, self._clock))
                    self.leave(left, None, 0, set(left.writer.sensors))
                path = following
            writer = SessionWriter.resume(self._disk, path, self._clock)
        except (OSError, RecorderError) as error:
            self.previous = None  # it is still open and only needs to be closed
            why = f"{path}: a new writer cannot resume it: {describe_error(error)}"
            self.ended = read_ending(path) or Ending(str(path), sealed=why)
        else:
            current = self.begin(writer)
            if self.previous is not None:
                current.continue_from(self.previous.ends(), self.previous.last_ns)
            elif (how := read_ending(writer.previous_path)) is not None:
                current.continue_from(*split_ending(how.streams))
