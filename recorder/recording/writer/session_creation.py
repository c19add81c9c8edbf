"""Creation of a session that declares the connected drivers' streams from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recorder.bus.messages import SessionPlan
from recorder.common.clock import Clock
from recorder.common.errors import StorageError
from recorder.common.files import Disk
from recorder.recording.writer.disk_policy import describe_error
from recorder.recording.writer.flow_control import Peer
from recorder.recording.writer.session_writer import SessionWriter


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
