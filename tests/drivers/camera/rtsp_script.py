"""An RTSP camera that answers from a script, on a made-up clock, and a decoder for it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drivers.camera.http.camera import Url
from drivers.camera.pictures import Missing, Note, Shot
from drivers.camera.rtsp.camera import RtspCamera
from drivers.camera.rtsp.messages import Media
from drivers.camera.rtsp.rtp import AccessUnit
from recorder.common.errors import RecorderError
from tests.drivers.camera.rtp_packets import rtp

SDP = (
    "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\n"
    "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n"
    "a=control:trackID=1\r\n"
)
GATE = "gate"
Piece = bytes | Exception | str
Answer = Callable[[str, str], bytes]


def reply(status: str = "200 OK", *headers: str, body: str = "", cseq: str = "{cseq}") -> str:
    lines = [f"RTSP/1.0 {status}", f"CSeq: {cseq}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines) + "\r\n\r\n" + body


def interleaved(data: bytes, channel: int = 0) -> bytes:
    return bytes((0x24, channel)) + len(data).to_bytes(2, "big") + data


def answers(sdp: str = SDP, **other: str) -> dict[str, list[str]]:
    """What a usual camera answers to each method; the last answer is repeated."""
    session = "Session: 12ab;timeout=60"
    usual = {
        "OPTIONS": reply("200 OK", "Public: OPTIONS, DESCRIBE, SETUP, PLAY, GET_PARAMETER"),
        "DESCRIBE": reply("200 OK", "Content-Base: rtsp://cam/live/", body=sdp),
        "SETUP": reply("200 OK", session, "Transport: RTP/AVP/TCP;unicast;interleaved=0-1"),
        "PLAY": reply("200 OK", session),
        "GET_PARAMETER": reply(),
        "TEARDOWN": reply(),
    }
    return {method: [text] for method, text in (usual | other).items()}


class Script:
    """A camera on made-up time: each piece after PLAY comes `every_ns` after the one before.

    At a `GATE`, nothing comes until `gate` is released; after the last piece the camera hangs up.
    """

    def __init__(
        self, *pieces: Piece, every_ns: int = 1_000_000, says: dict[str, list[str]] | None = None
    ) -> None:
        self.now_ns = 5_000_000_000
        self.requests: list[str] = []
        self.says = answers() if says is None else says
        self.gate = threading.Semaphore(0)
        self.at_gate = -1  # index of the gate at which the camera waits
        self._passed = 0
        self.open = 0
        self.sent_ns: list[int] = []  # the time of each piece
        self._pieces = list(pieces)
        self._every_ns = every_ns
        self._waiting: list[bytes] = []
        self._playing = False
        self._timeout_ns = 0

    def camera(self, address: str = "//cam/live", **more: Any) -> RtspCamera:
        return RtspCamera(
            "front", address, connecting=self.connect, clock=lambda: self.now_ns, **more
        )

    def connect(self, url: Url) -> Script:
        self.open += 1
        self._waiting, self._playing = [], False
        return self

    def settimeout(self, value: float) -> None:
        self._timeout_ns = round(value * 1e9)

    def sendall(self, data: bytes) -> None:
        request = data.decode()
        assert request.endswith("\r\n\r\n")
        self.requests.append(request)
        method = request.split(" ")[0]
        if method == "RTSP/1.0":
            return
        found = re.search(r"\r\nCSeq: (\d+)\r\n", request)
        assert found is not None
        said = self.says[method]
        text = said.pop(0) if len(said) > 1 else said[0]
        if text:
            self._waiting.append(text.replace("{cseq}", found[1]).encode("latin-1"))
        self._playing |= method == "PLAY"

    def recv(self, size: int) -> bytes:
        if self._waiting:
            return self._waiting.pop(0)
        if not self._playing:
            self.now_ns += self._timeout_ns
            raise TimeoutError
        if not self._pieces:
            return b""
        if self._pieces[0] == GATE:
            self.at_gate = self._passed
            if not self.gate.acquire(timeout=0.01):
                raise TimeoutError
            self._passed += 1
            self._pieces.pop(0)
            return self.recv(size)
        piece = self._pieces.pop(0)
        self.now_ns += self._every_ns
        self.sent_ns.append(self.now_ns)
        if isinstance(piece, Exception):
            raise piece
        assert isinstance(piece, bytes)
        return piece

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 554

    def close(self) -> None:
        self.open -= 1


def watch(camera: RtspCamera) -> tuple[list[Shot], RecorderError]:
    """All that comes of an open camera before the end, and its reason; it is closed then."""
    events: list[Shot | Note] = []
    while True:
        try:
            events += camera.read(0.2)
        except RecorderError as error:
            camera.close()
            return [event for event in events if isinstance(event, Shot)], error


def record(camera: RtspCamera) -> tuple[list[Shot], RecorderError]:
    """Open a camera and watch it."""
    camera.open()
    return watch(camera)


def pieces(datas: Sequence[bytes]) -> list[bytes]:
    return [interleaved(data) for data in datas]


class Decoder:
    """Makes a grey picture of each unit, as bright as its number; waits for `permits`."""

    fps = 12.5

    def __init__(self, permits: int = 10_000) -> None:
        self.permits = threading.Semaphore(permits)
        self.units: list[AccessUnit] = []
        self.drained: list[int] = []  # after how many units
        self.most_held = 0

    def __call__(self, media: Media) -> Decoder:
        return self

    def decode(self, unit: AccessUnit) -> list[Shot]:
        assert self.permits.acquire(timeout=60)
        self.units.append(unit)
        return [Shot(unit.t_ns, np.full((48, 64, 3), unit.data[-1], np.uint8))]

    def drain(self) -> list[Shot]:
        self.drained.append(len(self.units))
        return []


def stream(*kinds: str, first: int = 0) -> list[bytes]:
    """Pictures of one packet, "k" for a key and "p" for another one, each with its number."""
    return pieces(
        [
            rtp(
                first + k, 3600 * (first + k),
                (b"\x65\x88" if kind == "k" else b"\x41\x9a") + bytes((first + k,)), marker=True,
            )
            for k, kind in enumerate("".join(kinds))
        ]
    )  # fmt: skip


def values(shots: list[Shot]) -> list[int]:
    """Brightness of each picture; -count of the lost."""
    return [
        -s.picture.count if isinstance(s.picture, Missing) else int(np.asarray(s.picture).flat[0])
        for s in shots
    ]
