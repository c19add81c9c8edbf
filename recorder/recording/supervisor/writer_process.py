"""Process of the writer, restarted when it dies, after a pause if it dies often."""

from __future__ import annotations

from collections.abc import Callable

from recorder.common.clock import Clock
from recorder.recording.supervisor.children import Child
from recorder.recording.supervisor.log_levels import ERROR, LogLine
from recorder.recording.supervisor.process_table import WRITER_RESTART


class WriterProcess:
    """Restart logic of the writer; `start` starts the first, `handle_exit` takes the exit of each.

    Args:
        clock: injectable.
        say: logs one line for users.
        spawn: starts a writer; raises OSError if that is not possible now.

    Attributes:
        child: the latest writer; None before the first.
        restarts: number of writers started after the first.
        failed: why no further writer is started; None while restarts continue.
    """

    def __init__(self, clock: Clock, say: LogLine, spawn: Callable[[], Child]) -> None:
        self.child: Child | None = None
        self.restarts = 0
        self.failed: str | None = None
        self._clock = clock
        self._say = say
        self._spawn = spawn
        self._starts = 0
        self._start_at_ns: int | None = None

    @property
    def running(self) -> Child | None:
        """The running writer; None without one."""
        return self.child if self.child is not None and self.child.alive else None

    def start(self) -> None:
        """Start a writer."""
        self._start_at_ns = None
        self._starts += 1
        try:
            self.child = self._spawn()
        except OSError as error:  # no memory, too many processes
            self.handle_exit(error.strerror)

    def start_due(self, now_ns: int) -> None:
        """Start the next writer if its pause is over."""
        if self._start_at_ns is not None and now_ns >= self._start_at_ns:
            self.start()

    def reset_starts(self) -> None:
        """Reset the count of starts, since the writer has answered."""
        self._starts = 0

    def retry(self) -> None:
        """Start a writer again after `failed`."""
        self.failed, self._starts = None, 0
        if self.running is None:
            self.start()

    def handle_exit(self, code: int | str | None) -> None:
        """Schedule another writer after the exit of one, unless too many have ended."""
        ended = f"writer ended with code {code}"
        if self._starts >= WRITER_RESTART.most:
            self.failed = f"{ended}, {WRITER_RESTART.most} times without an answer"
            self._say(self.failed, ERROR)
            return
        self._say(f"{ended}; starting another", ERROR)
        self.restarts += 1
        pause_ns = round(WRITER_RESTART.pause_s(self._starts) * 1e9)
        self._start_at_ns = self._clock.monotonic_ns() + pause_ns
