"""Cameras that send JPEGs over HTTP, one after the other (``multipart/x-mixed-replace``).

A picture's time is that at which its last byte came here: exposure, the camera's own work and the
network lie before it.  Where parts tell the camera's time (``X-Timestamp``, seconds), it is kept
beside it.  Where they are numbered (option `frame_number_header`), a gap is a counted loss; TCP
loses nothing on the way, and without numbers nobody can tell what a camera left out.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from drivers._devices.pictures import LiveCamera, Missing, Note, Shot, passable, same_size
from drivers._protocols.http_stream import Head, ResponseParser, authorization
from drivers._protocols.multipart import Damage, MultipartParser, Part, boundary_of
from recorder.contract.errors import DeviceError, ProtocolError, SourceError, StreamChangedError
from recorder.contract.redaction import mask_value

_CONNECT_S = 2.0
_OPEN_S = 4.5  # for a first picture, all in all
_RECEIVE_BYTES = 256 << 10
_SECONDS = re.compile(r"(\d{1,10})(?:\.(\d{1,9}))?")
_NUMBER = re.compile(r"\d{1,18}")
_LONGEST_GAP = 1_000_000  # pictures; beyond it a counter was set anew


class Connection(Protocol):
    """What is asked of a socket."""

    def settimeout(self, value: float) -> None: ...
    def sendall(self, data: bytes) -> None: ...
    def recv(self, size: int) -> bytes: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Url:
    """An address, taken apart.

    Attributes:
        host, port: where to connect to.
        target: path and query.
        user, password: unescaped; None where the address has none.
        secure: over TLS.
    """

    host: str
    port: int
    target: str
    user: str | None
    password: str
    secure: bool


def parse_url(where: str, scheme: str, address: str) -> Url:
    """Take an address apart; SourceError where it is none."""
    try:
        parts = urlsplit(f"{scheme}:{address}")
        port = parts.port or (443 if scheme == "https" else 80)
    except ValueError as error:
        raise SourceError(f"{where}: no address: {error}") from None
    if not parts.hostname or not address.startswith("//"):
        raise SourceError(f"{where}: needs the form {scheme}://HOST[:PORT]/PATH")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or re.search(r"[\x00-\x20\x7f]", target):
        raise SourceError(f"{where}: a path with characters that need to be escaped (%20)")
    user = None if parts.username is None else unquote(parts.username)
    password = unquote(parts.password or "")
    return Url(parts.hostname, port, target, user, password, scheme == "https")


def connect(url: Url) -> Connection:
    """A connection to an address's host; OSError where there is none in time."""
    plain = socket.create_connection((url.host, url.port), timeout=_CONNECT_S)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not url.secure:
        return plain
    import ssl  # late: few need it, and all would wait for it

    # A camera's certificate is its own; what TLS gives here is that nobody reads the password.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=url.host)


class HttpCamera(LiveCamera):
    """An MJPEG stream over HTTP.

    Args:
        name: the sensor's.
        scheme, address: ``http`` or ``https``, and what stands behind the colon.
        fps: nominal rate, as the user says; the stream does not tell it.
        timeout_s: without a whole picture for so long the camera is gone.
        number_header: of a part, its picture's number.
        connecting: makes the connection.
        clock: CLOCK_MONOTONIC in ns.
    """

    def __init__(
        self,
        name: str,
        scheme: str,
        address: str,
        *,
        fps: float | None = None,
        timeout_s: float = 5.0,
        number_header: str = "X-Frame-Number",
        connecting: Callable[[Url], Connection] = connect,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.where = f"{name}: {mask_value(f'{scheme}:{address}')}"
        self.fps = fps
        self.jpegs = True
        self._url = parse_url(self.where, scheme, address)
        self._timeout_s = timeout_s
        self._header = number_header.lower()
        self._connecting = connecting
        self._clock = clock
        self._connection: Connection | None = None

    def open(self) -> None:
        self._events: list[Shot | Note] = []
        self._number: int | None = None
        self._last_ns = 0
        self._damaged = self._over = False
        self._repeats = 0
        self._changed: StreamChangedError | None = None
        self.size = (0, 0)
        deadline_ns = self._clock() + round(_OPEN_S * 1e9)
        try:
            self._request(deadline_ns)
            while self.size == (0, 0):
                self._receive(deadline_ns)
        except BaseException:
            self.close()
            raise
        self._alive_ns = self._clock()

    def read(self, timeout_s: float) -> list[Shot | Note]:
        if not self._events:
            deadline_ns = self._clock() + round(timeout_s * 1e9)
            while not self._events and (left_ns := deadline_ns - self._clock()) > 0:
                self._receive_some(left_ns / 1e9)
            if not self._events and self._clock() - self._alive_ns > self._timeout_s * 1e9:
                raise DeviceError(f"{self.where}: no picture for {self._timeout_s:g} s")
        events, self._events = self._events, []
        if any(isinstance(event, Shot) for event in events):
            self._alive_ns = self._clock()
        return events

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    # The connection

    def _request(self, deadline_ns: int) -> None:
        """Ask for the stream; once more with the password where the camera wants one."""
        head = self._ask(None, deadline_ns)
        if head.status == 401 and self._url.user is not None:
            answer = authorization(
                head.challenges,
                self._url.user,
                self._url.password,
                self._url.target,
                secrets.token_hex(8),
            )
            if answer is None:
                raise DeviceError(f"{self.where}: wants a login that is neither Basic nor Digest")
            head = self._ask(answer, deadline_ns)
            if head.status == 401:
                raise DeviceError(f"{self.where}: refuses this user and password")
        if head.status == 401:
            raise DeviceError(f"{self.where}: wants a user and password ({self._with_user()})")
        if 300 <= head.status < 400:
            place = mask_value(head.headers.get("location", "another address"))
            raise SourceError(f"{self.where}: refers to {place}: put that into the config")
        if head.status != 200:
            raise DeviceError(f"{self.where}: answers {head.status} {head.reason}".rstrip())
        try:
            boundary = boundary_of(head.headers.get("content-type", ""))
        except ProtocolError as error:
            raise SourceError(f"{self.where}: no stream of JPEGs: {error}") from None
        self._parts = MultipartParser(boundary)
        self._given = 0
        self._ends: list[int] = []  # bytes of the body up to the end of each chunk that came,
        self._times: list[int] = []  # and when that came
        self._take(self._first)

    def _with_user(self) -> str:
        return f"{'https' if self._url.secure else 'http'}://USER:PASSWORD@{self._url.host}/..."

    def _ask(self, authorize: str | None, deadline_ns: int) -> Head:
        """Connect, send the request, wait for the answer's head."""
        self.close()
        url = self._url
        host = f"[{url.host}]" if ":" in url.host else url.host
        default = url.port == (443 if url.secure else 80)
        lines = [
            f"GET {url.target} HTTP/1.1",
            f"Host: {host}" + ("" if default else f":{url.port}"),
            "User-Agent: recorder",
            "Accept: multipart/x-mixed-replace",
            "Connection: close",
            *([f"Authorization: {authorize}"] if authorize else []),
        ]
        request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
        try:
            self._connection = self._connecting(url)
            self._connection.settimeout(_CONNECT_S)
            self._connection.sendall(request)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host's name that is none
            raise DeviceError(f"{self.where}: {_reason(error)}") from None
        self._response = response = ResponseParser()
        while response.head is None:
            data = self._recv(self._left_s(deadline_ns))
            self._first = self._parsed(data) if data else b""
        return response.head

    def _left_s(self, deadline_ns: int) -> float:
        left_ns = deadline_ns - self._clock()
        if left_ns <= 0:
            raise DeviceError(f"{self.where}: no picture within {_OPEN_S:g} s")
        return left_ns / 1e9

    def _receive(self, deadline_ns: int) -> None:
        self._receive_some(self._left_s(deadline_ns))

    def _receive_some(self, timeout_s: float) -> None:
        """Take what comes in time; what came before an end was given before it is raised."""
        if self._changed is not None:
            raise self._changed
        if self._over:
            raise DeviceError(f"{self.where}: the camera ended the stream")
        if data := self._recv(timeout_s):
            self._take(self._parsed(data))

    def _recv(self, timeout_s: float) -> bytes:
        """The next bytes; none where nothing came in time."""
        if self._connection is None:
            raise DeviceError(f"{self.where}: read before open")
        self._connection.settimeout(max(timeout_s, 0.001))
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except (TimeoutError, InterruptedError):
            return b""
        except OSError as error:
            raise DeviceError(f"{self.where}: {_reason(error)}") from None
        if not data:
            raise DeviceError(f"{self.where}: the camera closed the connection")
        return data

    def _parsed(self, data: bytes) -> bytes:
        try:
            return self._response.feed(data)
        except ProtocolError as error:
            raise DeviceError(f"{self.where}: {error}") from None

    # What comes

    def _take(self, body: bytes) -> None:
        if body:
            self._given += len(body)
            self._ends.append(self._given)
            self._times.append(self._clock())
            for part in self._parts.feed(body):
                if self._changed is None:
                    self._add(part)
            # Stamps are needed of what the parser may hold still: of the last chunk, of more than
            # one only where a part is yet to end.
            if len(self._ends) > 4096:
                del self._ends[:2048], self._times[:2048]
        self._over = self._parts.ended or self._response.ended

    def _came_ns(self, end: int) -> int:
        """When the body's byte before `end` came; later than the stamp before.

        By two, so that a gap between the two has a time of its own.
        """
        chunk = min(bisect_left(self._ends, end), len(self._ends) - 1)
        self._last_ns = max(self._times[chunk], self._last_ns + 2)
        return self._last_ns

    def _add(self, part: Part | Damage) -> None:
        if not part.headers.get("content-type", "image/").lower().startswith("image/"):
            return  # sound, or what else a camera mixes in
        number = _number(part.headers.get(self._header))
        if number is not None and number == self._number:
            self._repeats += 1
            if self._repeats & (self._repeats - 1) == 0:  # a server may do so all the time
                self._events.append(Note(self._came_ns(part.end), {"repeated": self._repeats}))
            return
        t_ns = self._came_ns(part.end)
        missing: Missing | None = None
        if isinstance(part, Damage):
            missing = Missing(part.reason)
        else:
            try:
                header = passable(part.body)
            except ProtocolError as error:
                missing = Missing(str(error))
        if missing is not None:
            self._add_missing(t_ns, number, missing, bool(part.headers))
            return
        assert isinstance(part, Part)
        if self.size == (0, 0):
            self.size = header.width, header.height
            self.device_clock = _seconds_ns(part.headers.get("x-timestamp")) is not None
            self.settings = {"stamps": "arrival", "numbered": number is not None}
        try:
            same_size(self.where, (header.width, header.height), self.size)
        except StreamChangedError as error:
            self._changed = error
            return
        self._count_gap(t_ns, number)
        device_ns = _seconds_ns(part.headers.get("x-timestamp")) if self.device_clock else None
        if self.device_clock and device_ns is None:
            device_ns = 0  # not told of this picture
        self._damaged = False
        self._events.append(Shot(t_ns, part.body[: header.length], device_ns))

    def _add_missing(self, t_ns: int, number: int | None, missing: Missing, headed: bool) -> None:
        if self.size == (0, 0):
            return  # not begun yet: the first picture is the first whole one
        if number is None and (self._number is not None or (self._damaged and not headed)):
            # The next number will tell, or it is the rest of what was counted already.
            return
        self._count_gap(t_ns, number)
        self._damaged = True
        self._events.append(Shot(t_ns, missing))

    def _count_gap(self, t_ns: int, number: int | None) -> None:
        """Tell what the numbers say was left out before picture `number`."""
        if number is None:
            return
        if self._number is not None:
            gap = number - self._number - 1
            if 0 < gap < _LONGEST_GAP:
                reason = f"the camera's numbers go from {self._number} to {number}"
                self._events.append(Shot(t_ns - 1, Missing(reason, gap, "device")))
            elif gap:
                values = {"numbers_restarted": {"from": self._number, "to": number}}
                self._events.append(Note(t_ns - 1, values))
        self._number = number


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _seconds_ns(text: str | None) -> int | None:
    """``SECONDS.FRACTION`` in ns."""
    match = _SECONDS.fullmatch(text) if text is not None else None
    return int(match[1]) * 1_000_000_000 + int((match[2] or "0").ljust(9, "0")) if match else None


def _reason(error: OSError | UnicodeError) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
