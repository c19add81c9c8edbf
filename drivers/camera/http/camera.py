"""Cameras that send JPEGs over HTTP, one after the other (``multipart/x-mixed-replace``).

A picture's stamp is the arrival of its last byte on this machine, after the delays of exposure,
encoder and network.  The camera's own time (header ``X-Timestamp``, seconds) is recorded as the
device time.  If the parts are numbered (option `frame_number_header`), a gap is a counted loss.
TCP loses no data in transit; pictures that a camera omits cannot be counted without numbers.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from drivers.camera.http.multipart import Damage, MultipartParser, Part, parse_boundary
from drivers.camera.http.response import Head, ResponseParser, authorization
from drivers.camera.pictures import (
    LiveCamera,
    Missing,
    Note,
    Shot,
    check_jpeg,
    make_gap_event,
    require_same_size,
)
from recorder.common.errors import DeviceError, ProtocolError, SourceError, StreamChangedError
from recorder.common.secret_masking import mask_value

_CONNECT_S = 2.0
_OPEN_S = 4.5  # longest wait for a first picture in all
_PORTS = {"http": 80, "https": 443, "rtsp": 554}
_RECEIVE_BYTES = 256 << 10
_SECONDS = re.compile(r"(\d{1,10})(?:\.(\d{1,9}))?")
_NUMBER = re.compile(r"\d{1,18}")
_LONGEST_GAP = 1_000_000  # pictures; a larger gap is a restart of the counter


class Connection(Protocol):
    """The methods of a socket that the camera uses."""

    def settimeout(self, value: float) -> None: ...
    def sendall(self, data: bytes) -> None: ...
    def recv(self, size: int) -> bytes: ...
    def getpeername(self) -> Any: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of an address.

    Attributes:
        host, port: of the camera.
        target: path and query.
        user, password: unescaped; `user` is None if the address has none.
        secure: use TLS.
    """

    host: str
    port: int
    target: str
    user: str | None
    password: str
    secure: bool


def parse_url(where: str, scheme: str, address: str) -> Url:
    """Parse an address; SourceError if it is invalid."""
    try:
        parts = urlsplit(f"{scheme}:{address}")
        port = _PORTS[scheme] if parts.port is None else parts.port
    except ValueError as error:
        raise SourceError(f"{where}: no address: {error}") from None
    if not parts.hostname or not address.startswith("//") or not port:
        raise SourceError(f"{where}: needs the form {scheme}://HOST[:PORT]/PATH")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or re.search(r"[\x00-\x20\x7f]", target):
        raise SourceError(f"{where}: a path with characters that need to be escaped (%20)")
    user = None if parts.username is None else unquote(parts.username)
    password = unquote(parts.password or "")
    return Url(parts.hostname, port, target, user, password, scheme == "https")


def connect(url: Url) -> Connection:
    """Connect to the address's host; OSError if it does not answer in time."""
    plain = socket.create_connection((url.host, url.port), timeout=_CONNECT_S)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not url.secure:
        return plain
    import ssl  # here, because most cameras do not need it

    # A camera's certificate is self-signed; TLS only keeps the password secret here.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain, server_hostname=url.host)


def require_access(where: str, head: Head, scheme: str, host: str) -> None:
    """Check that a camera's answer neither asks for a login nor redirects.

    Raises:
        DeviceError: the camera wants a user and password.
        SourceError: the camera refers to another address.
    """
    if head.status == 401:
        form = f"{scheme}://USER:PASSWORD@{host}/..."
        raise DeviceError(f"{where}: wants a user and password ({form})")
    if 300 <= head.status < 400:
        place = mask_value(head.headers.get("location", "another address"))[:200]
        raise SourceError(f"{where}: refers to {place}: put that into the config")


class HttpCamera(LiveCamera):
    """An MJPEG stream over HTTP.

    Args:
        name: the sensor's name.
        scheme, address: ``http`` or ``https``, and the text after the colon.
        fps: nominal rate from the config; the stream does not declare its rate.
        timeout_s: time without a complete picture after which the camera is lost.
        number_header: header of a part that holds the picture's number.
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
                self._receive(self._left_s(deadline_ns))
        except BaseException:
            self.close()
            raise
        self._alive_ns = self._clock()

    def read(self, timeout_s: float) -> list[Shot | Note]:
        if not self._events:
            deadline_ns = self._clock() + round(timeout_s * 1e9)
            while not self._events and (left_ns := deadline_ns - self._clock()) > 0:
                self._receive(left_ns / 1e9)
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
        """Request the stream, a second time with the password if the camera requires it."""
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
        require_access(self.where, head, "https" if self._url.secure else "http", self._url.host)
        if head.status != 200:
            raise DeviceError(f"{self.where}: answers {head.status} {head.reason}".rstrip())
        try:
            boundary = parse_boundary(head.headers.get("content-type", ""))
        except ProtocolError as error:
            raise SourceError(f"{self.where}: no stream of JPEGs: {error}") from None
        self._parts = MultipartParser(boundary)
        self._given = 0
        self._ends: list[int] = []  # bytes of the body up to the end of each chunk,
        self._times: list[int] = []  # and the chunk's arrival
        self._take(self._first)

    def _ask(self, authorize: str | None, deadline_ns: int) -> Head:
        """Connect, send the request, and return the answer's head."""
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
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
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

    def _receive(self, timeout_s: float) -> None:
        """Process the bytes that arrive in time; raise an error after the pictures before it."""
        if self._changed is not None:
            raise self._changed
        if self._over:
            raise DeviceError(f"{self.where}: the camera ended the stream")
        if data := self._recv(timeout_s):
            self._take(self._parsed(data))

    def _recv(self, timeout_s: float) -> bytes:
        """Return the next bytes; empty if none arrived in time."""
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

    # Pictures

    def _take(self, body: bytes) -> None:
        if body:
            self._given += len(body)
            self._ends.append(self._given)
            self._times.append(self._clock())
            for part in self._parts.feed(body):
                if self._changed is None:
                    self._add(part)
            # Stamps are needed for the chunks that the parser may still hold: the last one, or
            # all chunks of an incomplete part.
            if len(self._ends) > 4096:
                del self._ends[:2048], self._times[:2048]
        self._over = self._parts.ended or self._response.ended

    def _came_ns(self, end: int) -> int:
        """Return the arrival of the body's byte before `end`, at least 2 ns after the last stamp.

        The stamp in between is for the loss of pictures before this one.
        """
        chunk = min(bisect_left(self._ends, end), len(self._ends) - 1)
        self._last_ns = max(self._times[chunk], self._last_ns + 2)
        return self._last_ns

    def _add(self, part: Part | Damage) -> None:
        if not part.headers.get("content-type", "image/").lower().startswith("image/"):
            return  # sound, or other parts that a camera mixes in
        number = _number(part.headers.get(self._header))
        if number is not None and number == self._number:
            self._repeats += 1
            if self._repeats & (self._repeats - 1) == 0:  # reported after 1, 2, 4, ... repetitions
                self._events.append(Note(self._came_ns(part.end), {"repeated": self._repeats}))
            return
        t_ns = self._came_ns(part.end)
        missing: Missing | None = None
        if isinstance(part, Damage):
            missing = Missing(part.reason)
        else:
            try:
                header = check_jpeg(part.body)
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
            require_same_size(self.where, (header.width, header.height), self.size)
        except StreamChangedError as error:
            self._changed = error
            return
        self._count_gap(t_ns, number)
        device_ns = _seconds_ns(part.headers.get("x-timestamp")) if self.device_clock else None
        if self.device_clock and device_ns is None:
            device_ns = 0  # unknown for this picture
        self._damaged = False
        self._events.append(Shot(t_ns, part.body[: header.length], device_ns))

    def _add_missing(self, t_ns: int, number: int | None, missing: Missing, headed: bool) -> None:
        if self.size == (0, 0):
            return  # the stream begins with its first complete picture
        if number is None and (self._number is not None or (self._damaged and not headed)):
            # The next number counts it, or it is the rest of a part that was counted already.
            return
        self._count_gap(t_ns, number)
        self._damaged = True
        self._events.append(Shot(t_ns, missing))

    def _count_gap(self, t_ns: int, number: int | None) -> None:
        """Report the gap in the camera's numbers before picture `number`."""
        if number is None:
            return
        if self._number is not None:
            gap = number - self._number - 1
            if gap:
                lost = gap if 0 < gap < _LONGEST_GAP else None
                self._events.append(make_gap_event("camera", t_ns - 1, self._number, number, lost))
        self._number = number


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _seconds_ns(text: str | None) -> int | None:
    """Convert ``SECONDS.FRACTION`` to ns."""
    match = _SECONDS.fullmatch(text) if text is not None else None
    return int(match[1]) * 1_000_000_000 + int((match[2] or "0").ljust(9, "0")) if match else None


def _reason(error: OSError | UnicodeError) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
