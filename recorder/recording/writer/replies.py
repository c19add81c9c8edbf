"""Messages from the writer to a driver about the open sessions."""

from __future__ import annotations

from msgspec import UNSET

from recorder.bus.messages import Ack, AnnouncedSession, Hello
from recorder.recording.writer.active_session import ActiveSession
from recorder.recording.writer.flow_control import Peer
from recorder.recording.writer.sequencing import Position


def hello(
    peer: Peer, current: ActiveSession | None, following: ActiveSession | None, left: str | None
) -> Hello:
    """Return the greeting of a driver: its session, each stream's next message, its credit.

    Args:
        peer: the driver.
        current: the session of the driver; None if no session is open.
        following: the session that the driver must cross to; None if it has crossed, or need not.
        left: key of a session that another one continues and that is not yet closed; the driver may
            still hold samples for it.
    """
    positions = {}
    for name in peer.specs:
        if current is None:
            break
        position = current.positions.get(name, Position())
        epoch, appended = current.writer.appended.get(name, (0, 0))
        received = appended if epoch == position.epoch else 0
        positions[name] = (position.epoch, position.number, received)
    return Hello(
        session=None if current is None else announcement(peer, current),
        next=None if following is None else announcement(peer, following),
        crossing=left,
        positions=positions,
        buffer_bytes=peer.buffer_bytes,
        window_bytes=peer.window_bytes,
    )


def announcement(peer: Peer, opened: ActiveSession) -> AnnouncedSession:
    """Return the announcement of an open session to a driver."""
    last = [opened.last_ns[s] for s in peer.specs if s in opened.last_ns]
    writer = opened.writer
    return AnnouncedSession(
        key=writer.key,
        start_ns=writer.play_start_mono_ns,
        until_ns=writer.until_ns,
        last_ns=max(last) if last else None,
        seam_ns=writer.start_mono_ns if writer.previous is not None else None,
        source_start_ns=UNSET if writer.source_start_ns is None else writer.source_start_ns,
    )


def acknowledgement(peer: Peer, current: ActiveSession) -> Ack:
    """Return the durable and the appended position of each stream of a driver."""
    positions = {}
    for name in peer.specs:
        epoch, appended = current.writer.appended.get(name, (0, 0))
        of_epoch, durable = current.writer.durable.get(name, (0, 0))
        positions[name] = (epoch, durable if of_epoch == epoch else 0, appended)
    return Ack(positions)
