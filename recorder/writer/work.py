"""What the threads of an open session do: append, make durable, and, in the end, close.

The appending one hands bytes to the kernel, the second syncs them every sync interval; the third
takes as long as the disk does, while the session that continues this one is received already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recorder.contract.clock import Clock
from recorder.contract.errors import RecorderError, StorageError
from recorder.formats.disk import Disk
from recorder.session.layout import SessionPlan
from recorder.writer.active_session import ActiveSession, Peer
from recorder.writer.disk_policy import Floor, what_failed
from recorder.writer.session_writer import SessionWriter

_COMMITS_PER_BUFFER = 4
"""Much that waits in the drivers' rings is committed before its interval is over."""

Fail = Callable[[ActiveSession, Exception], None]


def append_all(
    current: ActiveSession, buffer_bytes: int, appended: Callable[[bytes, int], None], fail: Fail
) -> None:
    """Append what is received, until there is None in the inbox.

    Args:
        current: the session.
        buffer_bytes: sum of the drivers' rings.
        appended: is told the driver and the size of each message.
        fail: is told what ends the session.
    """
    while (item := current.inbox.get()) is not None:
        peer, message = item
        if current.failure is not None:
            return
        try:
            if message.stream in current.late:
                current.late.discard(message.stream)
                current.writer.lose_tail(message.stream)  # from the seam to now
            current.writer.append(message)
        except (OSError, RecorderError) as error:
            fail(current, error)
            return
        size = message.nbytes
        del item, message  # its memory is free before its driver may send the next
        current.uncommitted += size
        if current.uncommitted * _COMMITS_PER_BUFFER >= buffer_bytes:
            current.commit_due.set()
        appended(peer, size)


def sync_all(
    current: ActiveSession, disk: Disk, clock: Clock, committed: Callable[[], None], fail: Fail
) -> None:
    """Commit every sync interval, until told to stop.

    Args:
        current: the session.
        disk: where its floor is watched.
        clock: waits.
        committed: is told of each commit.
        fail: is told what ends the session.
    """
    writer = current.writer
    floor = Floor(disk, writer.path, writer.reserve_bytes, clock, writer.bytes)
    while not current.stop.is_set():
        clock.wait(current.commit_due, current.interval_s)
        if current.stop.is_set():
            break
        current.commit_due.clear()
        current.uncommitted = 0
        current.committing_since_ns = current.waiting_since_ns
        current.waiting_since_ns = None
        began_ns = clock.monotonic_ns()
        try:
            writer.commit()
            current.committed(clock.monotonic_ns() - began_ns)
            current.full = current.full or floor.reached(writer.bytes)
        except (OSError, RecorderError) as error:
            fail(current, error)
            return
        committed()


def create(
    disk: Disk,
    plan: SessionPlan,
    clock: Clock,
    peers: Iterable[Peer],
    reported: Callable[[str], None] = lambda _: None,
) -> SessionWriter:
    """Make a session that knows these drivers' streams durably before it has any of them.

    So a power cut before its first commit is a loss of those streams, and recovery says so.

    Args:
        disk, plan, clock: as for `SessionWriter.create`.
        peers: whose streams.
        reported: called with its name before it is there under that name.

    Raises:
        StorageError, UsageError: as `SessionWriter.create` does.
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
        raise StorageError(f"{writer.path}: {what_failed(error)}") from None
    return writer


def join_threads(current: ActiveSession) -> None:
    """Have everything appended that was received, and the threads come to their end."""
    current.stop.set()
    current.commit_due.set()
    current.inbox.put(None)
    for thread in current.threads:
        thread.join()


def close(current: ActiveSession, done: Callable[[], None]) -> None:
    """Close a session: `closed` is set, or `failure`, and `done` is called.

    Of a stream that has not ended the rest is an interval of loss.
    """
    join_threads(current)
    try:
        if current.failure is None:
            for name, state in current.writer.positions().items():
                if state["ended"] is None:
                    current.writer.lose_tail(name)
            current.writer.close("clean")
    except (OSError, RecorderError) as error:
        current.failure = error
    current.closed = True
    done()
