"""One connection to an RTSP camera: sockets around `drivers.camera.rtsp.messages`."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping

from drivers.camera.http.camera import Connection, Url, require_access
from drivers.camera.rtsp.messages import (
    Interleaved,
    Media,
    Message,
    MessageParser,
    Reply,
    Request,
    Requests,
    parse_channels,
    parse_sdp,
    parse_session,
)
from drivers.camera.rtsp.rtp import SenderReport, parse_rtcp
from drivers.camera.rtsp.udp_ports import RtpPorts, check_transport, find_sender
from recorder.common.errors import DeviceError, ProtocolError

_CONNECT_S = 2.0
_SEND_S = 2.0
_RECEIVE_BYTES = 256 << 10
_LOOK_NS = 500_000_000
_LONGEST_ALIVE_S = 30.0  # between two keep-alive requests
_MAX_EARLY = 4096  # packets before the answer to PLAY
_MAX_EARLY_BYTES = 8 << 20


class RtspClient:
    """Client of a camera's video: RTP interleaved in the RTSP connection, or over UDP.

    >>> media = client.start(deadline_ns)
    >>> for t_ns, packet in client.receive(timeout_s=0.2):
    ...     ...                            # an RTP packet of the video, and its arrival
    >>> client.close()

    Args:
        where: the camera, for messages.
        url: its address.
        connecting: makes the connection.
        clock: CLOCK_MONOTONIC in ns.
        opening: opens ports for RTP over UDP; None: RTP comes over TCP.

    Attributes:
        report: the camera's latest sender report; None before the first.
    """

    def __init__(
        self,
        where: str,
        url: Url,
        connecting: Callable[[Url], Connection],
        clock: Callable[[], int],
        opening: Callable[[], RtpPorts] | None = None,
    ) -> None:
        host = f"[{url.host}]" if ":" in url.host else url.host
        self._where = where
        self._url = url
        self._uri = f"rtsp://{host}{'' if url.port == 554 else f':{url.port}'}{url.target}"
        self._connecting = connecting
        self._clock = clock
        self._opening = opening
        self._ports: RtpPorts | None = None
        self._said_bye = False
        self._looked_ns = 0  # for messages on the connection, while RTP comes over UDP
        self._connection: Connection | None = None
        self._parser = MessageParser()
        self._requests = Requests(url.user, url.password)
        self._messages: deque[tuple[int, Message]] = deque()
        self._fault: ProtocolError | None = None  # raised after the messages before it
        self._channels = (-1, -1)
        self.report: SenderReport | None = None
        self._alive = "OPTIONS"
        self._alive_ns = 0  # period of keep-alive requests
        self._next_alive_ns = 0
        self._logged_in_again = False

    def start(self, deadline_ns: int) -> Media:
        """Connect and play; return the description of the camera's video.

        Raises:
            DeviceError: the camera is absent, refuses, or is not done at `deadline_ns`.
            SourceError: the camera redirects to another address.
        """
        try:
            self._connection = self._connecting(self._url)
            self._connection.settimeout(_CONNECT_S)
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise self._make_loss_error(error) from None
        try:
            options = self._ask("OPTIONS", self._uri, {}, deadline_ns)
            if "GET_PARAMETER" in options.head.headers.get("public", "").upper():
                self._alive = "GET_PARAMETER"
            accept = {"Accept": "application/sdp"}
            described = self._ask("DESCRIBE", self._uri, accept, deadline_ns)
            headers = described.head.headers
            base = headers.get("content-base") or headers.get("content-location") or self._uri
            media = parse_sdp(described.body, base)
            transport = "RTP/AVP/TCP;unicast;interleaved=0-1"
            if self._opening is not None:
                self._ports = self._opening()
                transport = self._ports.transport
            wanted = {"Transport": transport}
            setup = self._ask("SETUP", media.control, wanted, deadline_ns).head.headers
            if self._ports is None:
                self._channels = parse_channels(setup.get("transport", ""))
            else:
                answer = setup.get("transport", "")
                check_transport(answer)
                self._ports.listen_to(find_sender(answer, self._connection.getpeername()[0]))
            session, timeout_s = parse_session(setup.get("session", ""))
            self._requests.session = session
            self._uri = media.session_control
            self._ask("PLAY", self._uri, {"Range": "npt=0.000-"}, deadline_ns)
        except ProtocolError as error:
            raise DeviceError(f"{self._where}: {error}") from None
        except OSError as error:
            raise self._make_loss_error(error) from None
        self._alive_ns = round(min(timeout_s / 2, _LONGEST_ALIVE_S) * 1e9)
        self._next_alive_ns = self._clock() + self._alive_ns
        return media

    def receive(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Return RTP packets with their arrival; wait for them up to `timeout_s`.

        Raises:
            DeviceError: the camera is lost, ended the stream, or sent something else than RTSP;
                after all packets before it.
        """
        packets: list[tuple[int, bytes]] = []
        try:
            if self._ports is not None:
                packets += self._receive_udp(self._ports, timeout_s)
            elif not self._messages:
                self._fill(timeout_s)
            while self._messages:
                t_ns, message = self._messages.popleft()
                if isinstance(message, Interleaved):
                    if message.channel == self._channels[0]:
                        packets.append((t_ns, message.data))
                        continue
                    if message.channel != self._channels[1]:
                        continue
                    if self._read_rtcp(message.data):
                        if packets:
                            self._messages.appendleft((t_ns, message))
                            break
                        raise ProtocolError("the camera ended the stream")
                elif isinstance(message, Reply):
                    self._keep_login(message)
            if self._clock() >= self._next_alive_ns:
                self._send(self._alive, self._uri, {})
                self._next_alive_ns = self._clock() + self._alive_ns
        except ProtocolError as error:
            raise DeviceError(f"{self._where}: {error}") from None
        return packets

    def _receive_udp(self, ports: RtpPorts, timeout_s: float) -> list[tuple[int, bytes]]:
        """Receive from the ports, and now and then from the connection.

        Raises:
            ProtocolError: the camera ended the stream, or closed the connection.
        """
        packets, reports = ports.receive(timeout_s)
        for data in reports:
            self._said_bye |= self._read_rtcp(data)
        if self._said_bye and not packets:
            raise ProtocolError("the camera ended the stream")
        if not packets or self._clock() - self._looked_ns > _LOOK_NS:
            self._looked_ns = self._clock()
            try:
                self._fill(0.0)
            except ProtocolError as error:
                if not packets:
                    raise
                self._fault = error
        return packets

    def _read_rtcp(self, data: bytes) -> bool:
        """Store the sender's latest report; return whether the packet ends the stream."""
        reports, ends = parse_rtcp(data)
        self.report = reports[-1] if reports else self.report
        return ends

    def close(self) -> None:
        """Send TEARDOWN without waiting for the answer, and disconnect."""
        connection, self._connection = self._connection, None
        ports, self._ports = self._ports, None
        if ports is not None:
            ports.close()
        if connection is None:
            return
        try:
            if self._requests.session:
                nonce = secrets.token_hex(8)
                connection.settimeout(0.1)
                connection.sendall(self._requests.build("TEARDOWN", self._uri, nonce=nonce))
        except (OSError, ProtocolError):
            pass  # the camera may be gone
        finally:
            connection.close()

    # Requests and answers

    def _ask(self, method: str, uri: str, headers: Mapping[str, str], deadline_ns: int) -> Reply:
        """Send a request, a second time with the password if the camera requires it."""
        reply = self._exchange(method, uri, headers, deadline_ns)
        head, user = reply.head, self._url.user
        if head.status == 401 and user is not None:
            self._requests.log_in(head.challenges)
            reply = self._exchange(method, uri, headers, deadline_ns)
            head = reply.head
            if head.status == 401:
                raise DeviceError(f"{self._where}: refuses this user and password")
        require_access(self._where, head, "rtsp", self._url.host)
        if head.status == 461:
            here, other = ("UDP", "tcp") if self._opening is not None else ("TCP", "udp")
            raise ProtocolError(f"offers no RTP over {here} (461); set transport: {other}")
        if head.status != 200 and not (method == "OPTIONS" and head.status in (405, 501)):
            raise ProtocolError(f"answers {head.status} {head.reason} to {method}".rstrip())
        return reply

    def _exchange(
        self, method: str, uri: str, headers: Mapping[str, str], deadline_ns: int
    ) -> Reply:
        self._send(method, uri, headers)
        early: list[tuple[int, Message]] = []  # packets may come before the answer to PLAY
        early_bytes = 0
        while True:
            while self._messages:
                t_ns, message = self._messages.popleft()
                if isinstance(message, Reply) and message.cseq in (None, self._requests.cseq):
                    self._messages.extendleft(reversed(early))
                    return message
                early.append((t_ns, message))
                early_bytes += len(message.data) if isinstance(message, Interleaved) else 0
            left_ns = deadline_ns - self._clock()
            if left_ns <= 0 or len(early) > _MAX_EARLY or early_bytes > _MAX_EARLY_BYTES:
                raise ProtocolError(f"no answer to {method} in time")
            self._fill(left_ns / 1e9)

    def _send(self, method: str, uri: str, headers: Mapping[str, str]) -> None:
        request = self._requests.build(method, uri, headers, nonce=secrets.token_hex(8))
        self._write(request)

    def _write(self, data: bytes) -> None:
        if self._connection is None:
            raise ProtocolError("read before open")
        try:
            self._connection.settimeout(_SEND_S)
            self._connection.sendall(data)
        except OSError as error:
            raise self._make_loss_error(error) from None

    def _fill(self, timeout_s: float) -> None:
        """Parse the next bytes; an error follows the messages before it."""
        if self._fault is not None:
            raise self._fault
        if self._connection is None:
            raise ProtocolError("read before open")
        self._connection.settimeout(max(timeout_s, 0.001))
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except (TimeoutError, InterruptedError):
            return
        except OSError as error:
            raise self._make_loss_error(error) from None
        t_ns = self._clock()
        if not data:
            raise ProtocolError("the camera closed the connection")
        try:
            for message in self._parser.feed(data):
                if isinstance(message, Request):
                    self._answer(message)
                else:
                    self._messages.append((t_ns, message))
        except ProtocolError as error:
            self._fault = error

    def _answer(self, request: Request) -> None:
        cseq = "".join(c for c in request.cseq[:20] if c.isdigit())
        self._write(f"RTSP/1.0 501 Not Implemented\r\nCSeq: {cseq}\r\n\r\n".encode())

    def _keep_login(self, reply: Reply) -> None:
        """Answer a refused keep-alive request: the camera's login has expired."""
        if reply.head.status == 401 and self._url.user is not None and not self._logged_in_again:
            self._logged_in_again = True
            self._requests.log_in(reply.head.challenges)
            self._send(self._alive, self._uri, {})
        elif reply.head.status == 454:
            raise ProtocolError("the camera's session is over (454)")
        else:
            self._logged_in_again = False

    def _make_loss_error(self, error: OSError | UnicodeError) -> DeviceError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return DeviceError(f"{self._where}: {reason}")
