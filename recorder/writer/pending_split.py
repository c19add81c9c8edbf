"""The session that will continue the open one, while it is made.

That takes a dozen syncs, one after the other: seconds on a busy disk, in which the rings of the
drivers would fill if the receiving thread waited for them.  So a thread of its own waits, and the
open session is recorded into as if nobody had asked for another.  Meanwhile

- what would end the open session waits: `stop`, another `split`, its seal, the disk's floor;
- a driver that starts waits to join: whoever started after the next session did has nothing for
  the one before, and that must stay so (`Drivers.join`);
- on disk all goes in the order that a death at any point relies on: a hidden folder, the ``split``
  record in the open session's journal, the folder's name, the streams, the first commit.

When it is made the drivers are told, and the open session becomes the one that is left.  Where it
cannot be made, the open session goes on; whoever asked is told why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from recorder.contract.clock import Clock
from recorder.contract.errors import RecorderError
from recorder.contract.messages import SessionPlan
from recorder.contract.wire import Message
from recorder.formats.disk import Disk
from recorder.session.incidents import END
from recorder.writer.active_session import ActiveSession
from recorder.writer.peers import Peer
from recorder.writer.session_creation import create
from recorder.writer.session_writer import SessionWriter


@dataclass(slots=True)
class PendingSplit:
    """A split whose next part is being made.

    Which thread writes which attribute stands in `ActiveSession`.

    Attributes:
        current: the open session.
        peer, request: who asked, and the question's number.
        live: names of the sensors whose drivers live.
        asked_ns: CLOCK_MONOTONIC of the asking: not after the next session's start.
        waiting: messages that are acted on when it is over, in order, each with its peer.
        thread: makes it.
        writer, error: what has come of it; None while `done` is not set.
        done: it is over.
    """

    current: ActiveSession
    peer: bytes
    request: int
    live: set[str]
    asked_ns: int
    waiting: list[tuple[bytes, Message]] = field(default_factory=list)
    thread: threading.Thread | None = None
    writer: SessionWriter | None = None
    error: RecorderError | None = None
    done: bool = False

    def start(
        self,
        disk: Disk,
        plan: SessionPlan,
        clock: Clock,
        peers: Sequence[Peer],
        notify: Callable[[], None],
    ) -> None:
        """Make it, in a thread of its own.

        Args:
            disk, plan, clock: as for `create`.
            peers: whose streams it knows from its first commit on.
            notify: called when `done` is set.
        """
        plan.previous = self.current.writer.path.name
        plan.play_start_mono_ns = self.current.writer.play_start_mono_ns

        def make() -> None:
            try:
                self.writer = create(disk, plan, clock, peers, self._report)
                self.current.writer.event(END, cause="split")
            except RecorderError as error:
                self.error = error
            self.done = True
            notify()

        self.thread = threading.Thread(target=make, args=(), name="make")
        self.thread.start()

    def _report(self, name: str) -> None:
        try:
            self.current.writer.tell_next(name)
        except OSError as error:
            self.current.fail(error)
            raise

    def abandon(self) -> None:
        """Wait for its end; what was made stays as it is, for the next writer."""
        if self.thread is not None:
            self.thread.join()
        if self.writer is not None:
            self.writer.abandon()
