"""One request to a device's HTTP server, whose answer is bounded in time and length.

::

    answer = HttpRequest("GET", "/cgi/status.json").send("192.168.1.201", timeout_s=3.0)
    answer.status, answer.text, answer.local_address
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from recorder.common.errors import DeviceError, SourceError

_ANSWER_LIMIT: Final = 1 << 22  # bytes, with its head; JSON takes thirty times as much memory
_CONNECT_S: Final = 4.0
_KEEP_ALIVE: Final = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer.

    Attributes:
        status: HTTP's.
        text: of the body.
        local_address: this machine's address in the device's network, with its link if it is
            link-local.
    """

    status: int
    text: str
    local_address: str


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, on its own connection.

    The loss of a device during a request is detected after about 10 s.

    Attributes:
        method: HTTP's.
        path: with the query.
        body: None: none.
        kind: type of the body.
        name: begin of errors; "": the path.
    """

    method: str
    path: str
    body: str | None = None
    kind: str = ""
    name: str = ""

    def send(self, host: str, timeout_s: float) -> HttpAnswer:
        """Send the request and return the answer.

        Args:
            host: name or address, with ``:PORT`` where the port is not 80; an IPv6 address in
                brackets, a link-local one with its link (``[fe80::1%eth0]``).
            timeout_s: of the whole answer, however slowly it comes.

        Raises:
            DeviceError: there is no answer, or an unreadable one.
            SourceError: the host is invalid.
        """
        name, limit_s = self.name or self.path, min(_CONNECT_S, timeout_s)
        try:
            connection = http.client.HTTPConnection(host, timeout=limit_s)
        except http.client.InvalidURL as error:
            raise SourceError(f"{host!r} is not a host: {error}") from None
        try:
            connection.connect()
            local_address = own_address(connection.sock.getsockname())
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE:
                connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            limit_s = timeout_s
            connection.sock.settimeout(limit_s)
            headers = {"Content-Type": self.kind} if self.kind else {}
            until_s = time.monotonic() + limit_s
            connection.response_class = partial(_BoundedResponse, until_s)  # type: ignore[assignment]
            connection.request(self.method, self.path, self.body, headers)
            with connection.getresponse() as answer:  # holds the socket once it is to be closed
                data = _read(answer)
        except TimeoutError:
            raise DeviceError(f"{name}: no answer in {limit_s:.1f} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise DeviceError(f"{name}: {reason}") from None
        finally:
            connection.close()
        return HttpAnswer(answer.status, data.decode("utf-8", "replace"), local_address)


def own_address(name: tuple[Any, ...]) -> str:
    """Return the address in a socket's name, with the link where it is valid on one link only."""
    address, scope = str(name[0]), name[3] if len(name) == 4 else 0
    return f"{address}%{socket.if_indextoname(scope)}" if scope else address


def _read(answer: http.client.HTTPResponse) -> bytes:
    data = bytearray()
    while part := answer.read1(1 << 16):  # read() would take the memory that the sensor declares
        data += part
    return bytes(data)


class _BoundedResponse(http.client.HTTPResponse):
    """An answer with a deadline and a longest length, its head included.

    http.client has a timeout for each read alone, and skips any number of ``100 Continue``.
    """

    def __init__(self, deadline_s: float, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp = io.BufferedReader(_BoundedStream(self.fp, sock, deadline_s))


class _BoundedStream(io.RawIOBase):
    def __init__(self, stream: io.BufferedReader, sock: socket.socket, deadline_s: float) -> None:
        self._stream, self._socket, self._deadline_s = stream, sock, deadline_s
        self._left = _ANSWER_LIMIT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        count = self._stream.readinto1(buffer)
        self._left -= count
        if self._left < 0:
            raise http.client.HTTPException("the answer is too long")
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()
