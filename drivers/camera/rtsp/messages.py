"""Messages of RTSP 1.0 (RFC 2326) as a client receives and sends them, and SDP (RFC 8866).

Everything that a camera sends has a limit: `MAX_HEAD_BYTES`, `MAX_BODY_BYTES`, and 64 KiB for an
interleaved packet (its length has 16 bits).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from drivers.camera.http.multipart import parse_headers
from drivers.camera.http.response import Head, authorization, parse_head
from recorder.common.errors import ProtocolError

MAX_HEAD_BYTES = 16 << 10
MAX_BODY_BYTES = 64 << 10
START_CODE = b"\0\0\0\1"

_INTERLEAVED = 0x24  # "$", section 10.12
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_BEGIN = re.compile(rb"RTSP/1\.\d |[A-Z_]{1,20} ")
_BEGIN_BYTES = 22
_CODECS = {"H264": "h264", "H265": "h265", "JPEG": "jpeg"}
_STATIC_TYPES = {26: "jpeg"}  # RFC 3551, table 5
_SETS = ("sprop-parameter-sets", "sprop-vps", "sprop-sps", "sprop-pps")
_MAX_FPS = 1000.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A camera's answer; `cseq` is None if the answer does not name its request."""

    head: Head
    body: bytes
    cseq: int | None


@dataclass(frozen=True, slots=True)
class Request:
    """A camera's own request; `cseq` as text, to be repeated in the answer."""

    method: str
    cseq: str


@dataclass(slots=True)
class Interleaved:
    """A packet of RTP or RTCP on the connection (section 10.12)."""

    channel: int
    data: bytes


Message = Reply | Request | Interleaved


class MessageParser:
    """Parser of the bytes of a connection, in chunks of any size.

    >>> parser = MessageParser()
    >>> list(parser.feed(b"$\\x00\\x00\\x02hi"))
    [Interleaved(channel=0, data=b'hi')]
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that the next bytes complete.

        Raises:
            ProtocolError: the bytes are not RTSP, or a message exceeds a limit; after the
                messages before it.
        """
        at = 0
        try:  # packets that came whole, as nearly all do, are copied once
            while not self._buffer and len(data) >= at + 4 and data[at] == _INTERLEAVED:
                stop = at + 4 + int.from_bytes(data[at + 2 : at + 4], "big")
                if stop > len(data):
                    break
                packet, at = Interleaved(data[at + 1], data[at + 4 : stop]), stop
                yield packet
        finally:
            self._buffer += data[at:] if at else data
        at = 0
        try:
            while (end := self._end(at)) is not None:
                message = self._message(at, end)
                at = end
                yield message
        finally:
            del self._buffer[:at]

    def _end(self, at: int) -> int | None:
        """Return the end of the message that begins at `at`; None if it is incomplete."""
        buffer = self._buffer
        while at < len(buffer) and buffer[at] in b"\r\n":  # between messages
            del buffer[at]
        have = len(buffer) - at
        if have and buffer[at] == _INTERLEAVED:
            need = 4 + int.from_bytes(buffer[at + 2 : at + 4], "big")
            return at + need if have >= max(need, 4) else None
        end = _HEAD_END.search(buffer, at, at + MAX_HEAD_BYTES)
        begin = buffer[at : at + _BEGIN_BYTES]
        certain = end is not None or have >= _BEGIN_BYTES
        if not begin[:1] <= b"Z" or (certain and not _BEGIN.match(begin)):
            raise ProtocolError(f"no RTSP message: {bytes(begin[:20])!r}")
        if end is None:
            if have >= MAX_HEAD_BYTES:
                raise ProtocolError(f"an RTSP message whose head exceeds {MAX_HEAD_BYTES} bytes")
            return None
        lines = bytes(buffer[at : end.start()]).partition(b"\n")[2]
        text = parse_headers(lines).get("content-length", "0")
        if not re.fullmatch(r"\d{1,9}", text) or int(text) > MAX_BODY_BYTES:
            raise ProtocolError(f"an RTSP message with a body of {text[:20]!r} bytes")
        stop = end.end() + int(text)
        return stop if stop <= len(buffer) else None

    def _message(self, at: int, end: int) -> Message:
        data = bytes(self._buffer[at:end])
        if data[0] == _INTERLEAVED:
            return Interleaved(data[1], data[4:])
        match = _HEAD_END.search(data)
        assert match is not None
        block = data[: match.start()]
        if data.startswith(b"RTSP/"):
            head = parse_head(block)
            number = head.headers.get("cseq", "")
            cseq = int(number) if re.fullmatch(r"\d{1,9}", number) else None
            return Reply(head, data[match.end() :], cseq)
        line, _, rest = block.partition(b"\n")
        cseq_text = parse_headers(rest).get("cseq", "0")
        return Request(line.split(b" ")[0].decode("latin-1"), cseq_text)


class Requests:
    """Builder of a client's numbered requests, with its login.

    Args:
        user, password: as typed; `user` None: no login.

    Attributes:
        cseq: number of the last request.
        session: the session's identifier, once the camera has named one.
    """

    def __init__(self, user: str | None, password: str) -> None:
        self._user = user
        self._password = password
        self._challenges: tuple[str, ...] = ()
        self._logins = 0  # requests with these challenges
        self.cseq = 0
        self.session = ""

    def log_in(self, challenges: tuple[str, ...]) -> None:
        """Answer these ``WWW-Authenticate`` headers in the next requests."""
        self._challenges, self._logins = challenges, 0

    def build(
        self, method: str, uri: str, headers: Mapping[str, str] | None = None, *, nonce: str
    ) -> bytes:
        """Return the next request; `nonce` is the client's own, for Digest.

        Raises:
            ProtocolError: the camera wants a login that is neither Basic nor Digest.
        """
        self.cseq += 1
        lines = [f"{method} {uri} RTSP/1.0", f"CSeq: {self.cseq}", "User-Agent: recorder"]
        if self.session:
            lines.append(f"Session: {self.session}")
        if self._challenges and self._user is not None:
            self._logins += 1
            login = authorization(
                self._challenges, self._user, self._password, uri, nonce,
                method=method, count=self._logins,
            )  # fmt: skip
            if login is None:
                raise ProtocolError("wants a login that is neither Basic nor Digest")
            lines.append(f"Authorization: {login}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def parse_session(text: str) -> tuple[str, float]:
    """Return identifier and timeout [s] of a ``Session`` header (section 12.37)."""
    name, _, rest = text.partition(";")
    match = re.search(r"timeout\s*=\s*(\d{1,6})", rest)
    return name.strip(), float(match[1]) if match and int(match[1]) else 60.0


def parse_channels(transport: str) -> tuple[int, int]:
    """Return the channels of RTP and RTCP in a ``Transport`` header (section 12.39).

    Raises:
        ProtocolError: the camera did not accept RTP on its connection.
    """
    match = re.search(r"interleaved\s*=\s*(\d{1,3})(?:-(\d{1,3}))?", transport, re.IGNORECASE)
    if "TCP" not in transport.upper() or match is None:
        raise ProtocolError(f"offers no RTP over TCP, but {transport[:80]!r}")
    return int(match[1]), int(match[2] or int(match[1]) + 1)


@dataclass(frozen=True, slots=True)
class Media:
    """The video of a session description.

    Attributes:
        codec: ``h264``, ``h265`` or ``jpeg``.
        payload_type: RTP's number of the codec.
        clock_hz: rate of RTP's timestamps.
        control, session_control: addresses for SETUP and for PLAY.
        fps: declared pictures per second; None where undeclared.
        parameter_sets: the codec's parameter sets with start codes; may be empty.
    """

    codec: str
    payload_type: int
    clock_hz: int
    control: str
    session_control: str
    fps: float | None
    parameter_sets: bytes


def parse_sdp(text: bytes, base: str) -> Media:
    """Return the first video that can be received.

    Args:
        text: the body of the answer to DESCRIBE.
        base: its ``Content-Base``, or the requested address.

    Raises:
        ProtocolError: no such media; the error names the offered media.
    """
    sections: list[list[str]] = [[]]
    for line in text.decode("latin-1").splitlines():
        if line.startswith("m="):
            sections.append([])
        sections[-1].append(line.strip())
    session_control = _resolve(base, _attribute(sections[0], "control"))
    offered = []
    for section in sections[1:]:
        words = section[0][2:].split()
        types = [int(word) for word in words[3:] if re.fullmatch(r"\d{1,3}", word)]
        for kind in types if words and words[0] == "video" else ():
            name, clock_hz = _encoding(section, kind)
            codec = _CODECS.get(name.upper(), _STATIC_TYPES.get(kind, "") if not name else "")
            parameters = _parameters(section, kind)
            if codec == "h264" and parameters.get("packetization-mode") == "2":
                name, codec = "H264 interleaved", ""
            if codec:
                control = _resolve(base, _attribute(section, "control"))
                sets = _parameter_sets(parameters)
                return Media(codec, kind, clock_hz, control, session_control, _fps(section), sets)
            offered.append(name or str(kind))
        if words and words[0] != "video":
            offered.append(words[0])
    names = ", ".join(offered)[:200] or "nothing"
    raise ProtocolError(f"offers no video in H.264, H.265 or JPEG, but {names}")


def _attribute(section: list[str], name: str) -> str:
    return next((x[len(name) + 3 :].strip() for x in section if x.startswith(f"a={name}:")), "")


def _resolve(base: str, control: str) -> str:
    if control in ("", "*"):
        return base
    if re.match(r"(?i)rtspu?://", control):
        address = control
    else:
        address = base + ("" if base.endswith("/") or control.startswith("/") else "/") + control
    if re.search(r"[\x00-\x20\x7f]", address):
        raise ProtocolError(f"a control address with characters that are not allowed: {control!r}")
    return address


def _encoding(section: list[str], kind: int) -> tuple[str, int]:
    """Return name and clock of a payload type; an empty name where it is not declared."""
    for line in section:
        match = re.fullmatch(rf"a=rtpmap:\s*{kind}\s+([\w.+-]{{1,40}})/(\d{{1,9}})(?:/.*)?", line)
        if match:
            return match[1], int(match[2]) or 90_000
    return "", 90_000


def _fps(section: list[str]) -> float | None:
    match = re.fullmatch(r"\d{1,4}(?:\.\d{1,9})?", _attribute(section, "framerate"))
    return float(match[0]) if match and 0 < float(match[0]) <= _MAX_FPS else None


def _parameters(section: list[str], kind: int) -> dict[str, str]:
    for line in section:
        match = re.match(rf"a=fmtp:\s*{kind}\s+(.*)", line)
        if match:
            pairs = (part.strip().partition("=") for part in match[1].split(";"))
            return {name.lower(): value.strip() for name, _, value in pairs}
    return {}


def _parameter_sets(parameters: Mapping[str, str]) -> bytes:
    """Return the parameter sets; sets in damaged base64 are left out, the stream repeats them."""
    units = []
    for name in _SETS:
        for text in filter(None, parameters.get(name, "").split(",")):
            try:
                units.append(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
            except binascii.Error:
                continue
    return b"".join(START_CODE + unit for unit in units if unit)
