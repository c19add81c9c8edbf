"""Creation of a session; that of a recording's next one runs in a separate thread.

Creating a session takes a dozen syncs one after the other, which is seconds on a busy disk.  If the
receiving thread waited for them, the drivers' rings would fill.  So a separate thread creates the
session, and recording into the open session continues.  Meanwhile:

- everything that would end the open session waits: `stop`, another `split`, its seal, the disk's
  floor;
- a driver that starts waits to join: a driver that started after the next session has no samples
  for the open one (`DriverRegistry.join`);
- the writes keep the order on which recovery from a death at any point depends: a hidden folder,
  the ``split`` record in the open session's journal, the folder's name, the streams, the first
  commit.

When the session is created, the drivers are informed, and the open session becomes the previous
one.  If it cannot be created, the open session continues, and the error is the reply to the
request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from recorder.bus.messages import SessionPlan
from recorder.bus.wire import Message
from recorder.common.clock import Clock
from recorder.common.errors import RecorderError, StorageError
from recorder.common.files import Disk
from recorder.recording.writer.active_session import ActiveSession, Peer
from recorder.recording.writer.disk_policy import describe_error
from recorder.recording.writer.session_writer import SessionWriter
from recorder.session.incidents import END


def create(
    disk: Disk,
    plan: SessionPlan,
    clock: Clock,
    peers: Iterable[Peer],
    reported: Callable[[str, bytes], None] = lambda *_: None,
) -> SessionWriter:
    """Create a session that durably declares the streams of these drivers.

    So after a power cut before the next commit, recovery reports the loss of these streams.

    Args:
        disk, plan, clock: as for `SessionWriter.create`.
        peers: the drivers.
        reported: as for `SessionWriter.create`.

    Raises:
        StorageError, UsageError: see `SessionWriter.create`.
    """
    try:
        writer = SessionWriter.create(disk, plan, clock, reported)
    except OSError as error:
        raise StorageError(f"{plan.root}: {error}") from None
    try:
        for known in peers:
            for spec in known.specs.values():
                writer.declare(spec, known.sensor)
        writer.commit()
    except OSError as error:
        writer.abandon()
        raise StorageError(f"{writer.path}: {describe_error(error)}") from None
    return writer


@dataclass(slots=True)
class PendingSplit:
    """A split whose next part is being created.

    `ActiveSession` lists the thread that writes each attribute.

    Attributes:
        current: the open session.
        peer, request: sender and number of the request.
        live: names of the sensors with live drivers.
        asked_ns: CLOCK_MONOTONIC of the request, which is not after the next session's start.
        waiting: messages to handle afterwards, in order, each with its peer.
        thread: the thread that creates the session.
        writer, error: the result; None before `done`.
        done: whether the session is created, or has failed.
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
        """Create the next session in a new thread.

        Args:
            disk, plan, clock: as for `create`.
            peers: drivers whose streams are in the session's first commit.
            notify: called when `done` is set.
        """
        before = self.current.writer
        plan.previous = before.path.name
        folder = None
        if Path(plan.root) != before.path.parent:
            plan.previous_folder, folder = str(before.path.parent), plan.root
        plan.play_start_mono_ns = before.play_start_mono_ns
        plan.offset_ns = before.start_ns - before.start_mono_ns

        def make() -> None:
            try:
                self.writer = create(disk, plan, clock, peers, partial(self._report, folder))
                self.current.writer.event(END, cause="split")
            except RecorderError as error:
                self.error = error
            self.done = True
            notify()

        self.thread = threading.Thread(target=make, args=(), name="make")
        self.thread.start()

    def _report(self, folder: str | None, name: str, first: bytes) -> None:
        try:
            self.current.writer.record_next(name, first, folder)
        except OSError as error:
            self.current.fail(error)
            raise

    def abandon(self) -> None:
        """Wait for the thread; leave the files unchanged for the next writer."""
        if self.thread is not None:
            self.thread.join()
        if self.writer is not None:
            self.writer.abandon()
