"""What the two threads of an open session do: append, and make durable.

The appending one hands bytes to the kernel, the other syncs them every sync interval.
"""

from __future__ import annotations

from collections.abc import Callable

from recorder.contract.clock import Clock
from recorder.contract.errors import RecorderError
from recorder.formats.disk import Disk
from recorder.writer.disk_policy import Floor
from recorder.writer.opened import Opened

_COMMITS_PER_BUFFER = 4
"""Much that waits in the drivers' rings is committed before its interval is over."""

Fail = Callable[[Opened, Exception], None]


def append_all(
    current: Opened, buffer_bytes: int, appended: Callable[[bytes, int], None], fail: Fail
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
            current.writer.append(message)
        except (OSError, RecorderError) as error:
            fail(current, error)
            return
        current.uncommitted += message.nbytes
        if current.uncommitted * _COMMITS_PER_BUFFER >= buffer_bytes:
            current.commit_due.set()
        appended(peer, message.nbytes)


def sync_all(
    current: Opened, disk: Disk, clock: Clock, committed: Callable[[], None], fail: Fail
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
