"""Server of the control socket: requests in lines of JSON, and a check of the users.

A thread of its own reads requests and writes replies.  A request goes to the daemon as a `Call`,
which sends the reply when it is done.  No client can delay the daemon or other clients: a
connection has at most one pending call, requests of limited size, and a time limit for each step::

    server = ControlServer(path, take=calls.put, state=lambda: "idle")
    server.start()
    call = calls.get()
    call.answer({"ok": True, "state": "idle"})
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recorder.bus.control.requests import MOST_BYTES, Request, parse_request
from recorder.bus.sockets import Waker
from recorder.common.errors import RecorderError, StorageError, UsageError
from recorder.common.process_setup import start_thread

GROUP = "recorder"
MODE = 0o660
MOST_CONNECTIONS = 32
REQUEST_S = 10.0
"""Time limit from a request's first byte to its last, s."""
REPLY_S = 10.0
"""Time limit for a client to receive a reply, s."""
IDLE_S = 120.0
_MOST_PATH = 100  # sun_path holds 108 bytes
_BACKLOG = 128
_CHUNK = 16 * 1024
_POLL_S = 1.0
_UCRED = struct.Struct("3i")

Take = Callable[["Call"], None]


class Call:
    """A pending request.

    Attributes:
        request: the client's request.
        answered: whether the reply was sent.
    """

    def __init__(self, request: Request, send: Callable[[dict[str, Any]], None]) -> None:
        self.request = request
        self._send = send
        self.answered = False

    def answer(self, reply: dict[str, Any]) -> None:
        """Send the reply, once; callable from any thread.  A disconnected client misses it."""
        if not self.answered:
            self.answered = True
            self._send(reply)


def refusal(error: RecorderError, state: str) -> dict[str, Any]:
    """Return the reply to a request that fails with an error."""
    return {"ok": False, "error": str(error), "exit_code": error.exit_code, "state": state}


def encode_reply(reply: Mapping[str, Any]) -> bytes:
    """Encode a reply as one line of JSON."""
    return json.dumps(reply, separators=(",", ":"), default=str).encode() + b"\n"


def group_id(name: str = GROUP) -> int | None:
    """Return the group's id; None if there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def may_control(uid: int, gid: int, group: int | None) -> bool:
    """Return whether a user may control the daemon: its own user, root, or a group member.

    Args:
        uid, gid: ids of the client's process, from the kernel.
        group: id of the permitted group; None: no group.
    """
    if uid in (0, os.geteuid()):
        return True
    if group is None:
        return False
    if gid == group:
        return True
    try:
        return group in os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except (KeyError, OSError):
        return False


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    since_s: float = 0.0  # start of the current step
    call: Call | None = None
    last: bool = False  # close the connection after the reply
    sent_all: bool = False  # the client sends no more


class ControlServer:
    """Server of the control socket; see the module's example.

    Args:
        path: path of the socket; a socket without a listener is replaced.
        take: receives each call, in this server's thread.
        state: returns the daemon's state in one word, for refusals that never reach the daemon.
        group: members of this group may control the daemon, if the group exists.
        clock_s: monotonic seconds, injectable.

    Raises:
        StorageError: the socket cannot be created.
        UsageError: another daemon listens at this path.
    """

    def __init__(
        self,
        path: Path,
        take: Take,
        state: Callable[[], str],
        *,
        group: str = GROUP,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._take = take
        self._state = state
        self._group = group_id(group)
        self._clock_s = clock_s
        self._listener = _listen(path, self._group)
        self._inode = path.stat().st_ino
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._waker.fileno(), selectors.EVENT_READ)
        self._connections: set[_Connection] = set()
        self._answers: deque[tuple[_Connection, Call, dict[str, Any]]] = deque()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Start the server's thread."""
        start_thread(self._thread)

    def close(self) -> None:
        """Send the answers that can be sent at once, and stop the server."""
        self._ending = True
        self._waker.wake()
        if self._thread.ident is not None:
            self._thread.join()
        for connection in list(self._connections):
            self._close(connection)
        self._selector.close()
        self._listener.close()
        self._waker.close()
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()

    def _run(self) -> None:
        while not self._ending:
            self.turn(_POLL_S)
        self._send_answers()

    def turn(self, seconds: float) -> None:
        """Wait up to `seconds` for events and handle them; the server's thread repeats this."""
        for key, events in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.data, _Connection):
                if events & selectors.EVENT_WRITE:
                    self._write(key.data)
                if events & selectors.EVENT_READ and key.data in self._connections:
                    self._read(key.data)
            else:
                self._waker.clear()
        self._send_answers()
        self._drop_late()

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        peer.setblocking(False)
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, gid = _UCRED.unpack(raw)
        connection = _Connection(peer, since_s=self._clock_s())
        if not may_control(uid, gid, self._group):
            with contextlib.suppress(OSError):
                who = f"user {uid} may not control this daemon"
                peer.send(encode_reply({"ok": False, "error": who, "exit_code": 1}))
            peer.close()
            return
        if len(self._connections) >= MOST_CONNECTIONS:
            self._make_room()
        self._connections.add(connection)
        self._selector.register(peer, selectors.EVENT_READ, connection)

    def _make_room(self) -> None:
        """Close the connection that has been idle longest; if all have calls, the oldest."""
        oldest = min(self._connections, key=lambda c: (c.call is not None, c.since_s))
        self._close(oldest)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)
            return
        if not data:
            connection.sent_all = True
            if connection.call is None and not connection.outbox:
                self._close(connection)
            else:
                self._watch(connection)
            return
        if not connection.inbox:
            connection.since_s = self._clock_s()
        connection.inbox += data
        self._next(connection)

    def _next(self, connection: _Connection) -> None:
        """Take the next request from the received bytes."""
        end = connection.inbox.find(b"\n")
        if end < 0 and len(connection.inbox) <= MOST_BYTES:
            self._watch(connection)
            return
        line = bytes(connection.inbox if end < 0 else connection.inbox[:end])
        del connection.inbox[: len(line) + 1]
        try:
            request = parse_request(line)
        except UsageError as error:
            # Lines after a bad line cannot be trusted: the client has to reconnect.
            connection.last = True
            self._reply(connection, refusal(error, self._state()))
            return

        def send(reply: dict[str, Any]) -> None:
            self._answers.append((connection, call, reply))
            self._waker.wake()

        call = connection.call = Call(request, send)
        self._watch(connection)
        self._take(call)

    def _send_answers(self) -> None:
        while self._answers:
            connection, call, reply = self._answers.popleft()
            if connection in self._connections and connection.call is call:
                connection.call = None
                self._reply(connection, reply)

    def _reply(self, connection: _Connection, reply: Mapping[str, Any]) -> None:
        connection.outbox += encode_reply(reply)
        connection.since_s = self._clock_s()
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            while connection.outbox:
                sent = connection.socket.send(connection.outbox)
                del connection.outbox[:sent]
        except BlockingIOError:
            self._watch(connection)
            return
        except OSError:
            self._close(connection)
            return
        if connection.last or (connection.sent_all and b"\n" not in connection.inbox):
            self._close(connection)
        else:
            connection.since_s = self._clock_s()
            self._next(connection)

    def _watch(self, connection: _Connection) -> None:
        """Register for the events that the connection's next step needs."""
        events = 0
        if connection.outbox:
            events = selectors.EVENT_WRITE
        elif connection.call is None and not connection.sent_all:
            events = selectors.EVENT_READ
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection.socket)
        if events:
            self._selector.register(connection.socket, events, connection)

    def _drop_late(self) -> None:
        now_s = self._clock_s()
        for connection in list(self._connections):
            if connection.call is not None:
                continue
            allowed_s = IDLE_S
            if connection.outbox:
                allowed_s = REPLY_S
            elif connection.inbox:
                allowed_s = REQUEST_S
            if now_s - connection.since_s > allowed_s:
                self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection.socket)
        connection.socket.close()


def _listen(path: Path, group: int | None) -> socket.socket:
    """Create a listening socket that never admits other users."""
    if len(os.fsencode(path)) > _MOST_PATH:
        raise StorageError(f"{path}: too long for a socket ({_MOST_PATH} bytes)")
    if _is_served(path):
        raise UsageError(f"{path}: another daemon listens there")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(0o750, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        mask = os.umask(0o177)  # for the whole process: no other thread creates files yet
        try:
            listener.bind(str(temporary))
        finally:
            os.umask(mask)
        if group is not None:
            with contextlib.suppress(PermissionError):
                os.chown(temporary, -1, group)
        temporary.chmod(MODE)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        temporary.replace(path)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StorageError(f"{path}: no socket can be made there: {error.strerror}") from None
    return listener


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
