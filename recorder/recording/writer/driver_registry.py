"""Registry of the connected drivers, and all messages from the writer to them."""

from __future__ import annotations

from msgspec import UNSET

from recorder.bus.messages import Ack, AnnouncedSession, Fault, Finish, Hello
from recorder.bus.sockets import WriterSocket
from recorder.bus.wire import Kind, Message
from recorder.common.errors import ProtocolError
from recorder.recording.writer.active_session import ActiveSession, Peer, share_out
from recorder.recording.writer.open_sessions import OpenSessions
from recorder.recording.writer.sequencing import Position

_DROPPED_PEERS = 64


class DriverRegistry:
    """Connected drivers, by the identity of their connections.

    Only the receiving thread uses this class.

    Args:
        socket: socket to the drivers.
        sessions: the open sessions.
        buffer_bytes: sum of all drivers' rings.

    Attributes:
        peers: drivers that have joined, by identity.
    """

    def __init__(self, socket: WriterSocket, sessions: OpenSessions, buffer_bytes: int) -> None:
        self.peers: dict[bytes, Peer] = {}
        self._strangers: set[bytes] = set()
        self._socket = socket
        self._sessions = sessions
        self._buffer_bytes = buffer_bytes

    def join(self, peer: bytes, known: Peer) -> None:
        """Add a driver, and send every driver its new share of buffer and window.

        A driver that has found further streams joins again, with all its streams.

        Raises:
            ProtocolError: another driver declares one of its streams, or the driver declares
                other streams than before.
        """
        for identity, other in list(self.peers.items()):
            if other.sensor == known.sensor and identity != peer:
                del self.peers[identity]  # an earlier process of the same driver
            elif other.sensor != known.sensor and (both := other.specs.keys() & known.specs.keys()):
                raise ProtocolError(f"{known.sensor} and {other.sensor} both declare {min(both)!r}")
        self._strangers.discard(peer)
        left, before = self._sessions.previous, self.peers.get(peer)
        if before is not None:
            known.behind = before.behind
        else:
            known.behind = left is not None and left.closer is None and self._owes(known, left)
        self.peers[peer] = known
        for current in self._sessions:
            if current.closer is None and (current is not left or known.behind):
                current.declare(known)
        self.share_out()
        self.hello_all()
        self.send_finish(peer)

    def _owes(self, known: Peer, left: ActiveSession) -> bool:
        """Return whether a joining driver may still have samples for the previous session."""
        active = self._sessions.active
        began = active is not None and known.since_ns > active.writer.start_mono_ns
        return not (began or left.has_ended(known))

    def share_out(self) -> None:
        """Divide buffer and window among the drivers."""
        share_out(self.peers.values(), self._buffer_bytes)

    def refuse(self, peer: bytes, error: ProtocolError) -> None:
        """Report a protocol error to a peer, and remove it; its process will be restarted."""
        known = self.peers.pop(peer, None)
        if self._sessions.active is not None and known is not None:
            self._sessions.active.writer.event(
                "fault", cause="protocol", sensor=known.sensor, detail=str(error)
            )
        self._socket.send(peer, Fault(str(error)).message())

    def ask_who(self, peer: bytes, again: bool) -> None:
        """Ask a peer to introduce itself; do so only once, unless `again`."""
        if peer in self._strangers and not again:
            return
        if len(self._strangers) >= _DROPPED_PEERS:
            self._strangers.clear()
        self._strangers.add(peer)
        self._socket.send(peer, Message(Kind.WHO))

    def hello(self, peer: bytes) -> None:
        """Send a driver its session, each stream's next expected message, and its credit."""
        known, sessions = self.peers[peer], self._sessions
        current = sessions.find(known)
        positions = {}
        for name in known.specs:
            if current is None:
                break
            position = current.positions.get(name, Position())
            epoch, appended = current.writer.appended.get(name, (0, 0))
            received = appended if epoch == position.epoch else 0
            positions[name] = (position.epoch, position.number, received)
        following = sessions.active if known.behind else None
        greeting = Hello(
            session=None if current is None else announcement(known, current),
            next=None if following is None else announcement(known, following),
            # A driver may still hold samples for a session that another one continues.
            crossing=None if sessions.previous is None else sessions.previous.writer.key,
            positions=positions,
            buffer_bytes=known.buffer_bytes,
            window_bytes=known.window_bytes,
        )
        self._socket.send(peer, greeting.message())

    def hello_all(self) -> None:
        """Send every driver its session and the next expected message."""
        for peer in self.peers:
            self.hello(peer)

    def answer_ping(self, peer: bytes) -> None:
        """Answer a driver that waits for an acknowledgement.

        If no message of the driver is pending here, its messages were lost, and it resends them.
        """
        current = self._sessions.find(self.peers[peer])
        if current is not None and current.owes_ack(self.peers[peer]):
            self.acknowledge(peer)
        else:
            self.hello(peer)

    def acknowledge(self, peer: bytes) -> None:
        """Acknowledge the durable messages of a driver."""
        known = self.peers[peer]
        for current in self._sessions:
            current.reset_credit(known)
            self._socket.send(peer, acknowledgement(known, current).message())

    def acknowledge_due(self) -> None:
        """Acknowledge all drivers after a commit, else those that used much of their window."""
        due: set[bytes] = set()
        committed = False
        for current in self._sessions:
            if current.committed.is_set():
                current.committed.clear()
                committed = True
            while current.acks_requested:
                due.add(current.acks_requested.popleft())
        for peer in self.peers if committed else due & self.peers.keys():
            self.acknowledge(peer)

    def leave(self, left: ActiveSession) -> None:
        """Mark the drivers that still have samples for a session that another one continues."""
        for known in self.peers.values():
            known.behind = not left.has_ended(known)

    def cross(self, peer: bytes, leaving: ActiveSession) -> None:
        """Move a driver to the next session once all its streams have ended in the previous one."""
        known = self.peers[peer]
        if known.behind and leaving.has_ended(known) and self._sessions.active is not None:
            known.behind = False
            self.hello(peer)
            self.send_finish(peer)

    def session_over(self) -> None:
        """Inform all drivers that a session is closed."""
        for peer, known in self.peers.items():
            known.behind = known.behind and self._sessions.previous is not None
            self.hello(peer)
            self.send_finish(peer)

    def send_finish(self, peer: bytes) -> None:
        """Inform a driver if its session is ending."""
        known = self.peers[peer]
        current = self._sessions.find(known)
        # A driver that is behind is informed after it has crossed, if it can cross.
        crosses = known.behind and self._sessions.active is not None
        if current is not None and current.finishing is not None and not crosses:
            known.finish_sent = True
            self._socket.send(peer, Finish(current.writer.key).message())


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
