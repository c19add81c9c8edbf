"""Client that controls a daemon.

The socket is that of ``recorder serve``::

    with Client() as recorder:
        reply = recorder.start("drive", {"driver": "ada"})
        recorder.mark("pothole")
        print(reply.session, recorder.status().state)
        recorder.stop()

A method returns when the request has been carried out, and raises `DaemonError` if it was not; both
carry the daemon's state after the request.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from recorder.bus.control.addresses import choose_client_socket
from recorder.bus.control.requests import Keep, Mark, Request, Start, Status, Stop
from recorder.common.errors import DeviceError, RecorderError
from recorder.common.files import Closeable

TIMEOUT_S = 120.0
"""Timeout for a reply, in s: closing a session may take a while."""
_CONNECT_S = 5.0
_AGAIN_S = 0.02
_MOST_REPLY = 16 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of a daemon.

    Attributes:
        ok: whether the request has been carried out.
        state: the daemon's state after the request: idle, starting, recording, stopping or fault.
        values: the whole reply (docs/daemon.md).
    """

    ok: bool
    state: str | None
    values: Mapping[str, Any]

    @property
    def status(self) -> Mapping[str, Any]:
        """Status of the daemon, in every reply but refusals of malformed requests."""
        status: Mapping[str, Any] = self.values.get("status") or {}
        return status

    @property
    def session(self) -> str | None:
        """Folder of the session that the request was about."""
        value: str | None = self.values.get("session")
        return value


class DaemonError(RecorderError):
    """Error of a request that the daemon refused; `reply` is None if no daemon can be reached."""

    def __init__(self, message: str, reply: Reply | None = None) -> None:
        super().__init__(message)
        self.reply = reply
        if reply is not None:
            self.exit_code = int(reply.values.get("exit_code") or 1)


class Wire(Protocol):
    """Connection that carries one request and its reply at a time."""

    def exchange(self, line: bytes) -> bytes:
        """Send a request's line and return the reply's; raise DeviceError if none comes."""

    def close(self) -> None:
        """Close the connection."""


class Client(Closeable):
    """Connection to a daemon; see the module's example.

    Args:
        path: the control socket; default: the daemon's usual place.
        timeout_s: longest wait for a reply.
        wire: another connection to the daemon, such as `recorder.bus.control.keys.CurveClient`.

    Raises:
        DaemonError: no daemon can be reached.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        wire: Wire | None = None,
    ) -> None:
        given = None if path is None else Path(path)
        self._wire = wire if wire is not None else _UnixWire(choose_client_socket(given), timeout_s)

    def start(self, name: str | None = None, meta: Mapping[str, str] | None = None) -> Reply:
        """Begin to record; return when the session is open."""
        return self.send(Start(name, dict(meta) if meta else None))

    def stop(self) -> Reply:
        """End the recording; return when the session is closed."""
        return self.send(Stop())

    def status(self) -> Reply:
        """Return the daemon's status."""
        return self.send(Status())

    def mark(self, text: str, *, keep: tuple[float, float] | None = None) -> Reply:
        """Put a mark into the session that is being recorded.

        Args:
            text: text of the mark.
            keep: seconds before and after now that are kept as an event; the reply has ``event``.
        """
        return self.send(Mark(text, keep=keep))

    def keep(self, session: str | None = None, *, release: bool = False) -> Reply:
        """Protect a session from deletion, or release it; default: the session being recorded."""
        return self.send(Keep(session, release or None))

    def send(self, request: Request) -> Reply:
        """Send a request; the daemon checks it.

        Raises:
            DaemonError: as for `request`.
        """
        return self.request(request.op, **request.values)

    def request(self, op: str, **values: Any) -> Reply:
        """Send any request by its op and arguments.

        Raises:
            DaemonError: the request was refused, or no reply came.
        """
        line = json.dumps({"op": op, **values}, separators=(",", ":")).encode() + b"\n"
        try:
            answer = json.loads(self._wire.exchange(line))
        except DeviceError as error:
            raise DaemonError(str(error)) from None
        except ValueError:
            raise DaemonError("the daemon's reply is not JSON") from None
        if not isinstance(answer, dict):
            raise DaemonError("the daemon's reply is not an object")
        reply = Reply(bool(answer.get("ok")), answer.get("state"), answer)
        if not reply.ok:
            raise DaemonError(str(answer.get("error") or "refused without a reason"), reply)
        return reply

    def close(self) -> None:
        self._wire.close()


def _explain(error: OSError) -> str:
    """Explain why no daemon can be reached at a socket, and what to do."""
    if isinstance(error, PermissionError):
        return (
            "this user may not control the daemon: only root and the group of the socket may. "
            "Join the group with `sudo usermod -aG recorder $USER`, then log in again"
        )
    if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
        return (
            "no daemon runs here. Start one with `recorder serve CONFIG`, or the service with "
            "`systemctl start recorder`; name another socket with --socket"
        )
    return f"no daemon can be reached there: {error.strerror or error}"


class _UnixWire:
    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_CONNECT_S)
        try:
            self._connect()
        except OSError as error:
            self._socket.close()
            raise DaemonError(f"{path}: {_explain(error)}") from None
        self._socket.settimeout(timeout_s)
        self._file = self._socket.makefile("rb")

    def _connect(self) -> None:
        until_s = time.monotonic() + _CONNECT_S
        while True:
            try:
                self._socket.connect(str(self._path))
                return
            except BlockingIOError:  # many clients at once: the daemon has not come to them yet
                if time.monotonic() > until_s:
                    raise
                time.sleep(_AGAIN_S)

    def exchange(self, line: bytes) -> bytes:
        try:
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # the daemon may have sent the reason before it closed
                self._socket.sendall(line)
            reply = self._file.readline(_MOST_REPLY)
        except TimeoutError:
            raise DaemonError(f"{self._path}: the daemon does not answer") from None
        except OSError as error:
            raise DaemonError(f"{self._path}: {error.strerror or error}") from None
        if not reply.endswith(b"\n"):
            raise DaemonError(f"{self._path}: the daemon closed the connection")
        return reply

    def close(self) -> None:
        self._file.close()
        self._socket.close()
