"""A camera's connection that answers from a script, on a made-up clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drivers.camera.http.camera import HttpCamera, Url
from drivers.camera.pictures import Note, Shot
from tests.drivers.camera.rig import jpeg
from tests.support.devices import opened

OK = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n"
JPEGS = [jpeg(k, (64, 48)) for k in range(8)]


def part(data: bytes, *headers: str, length: bool = True) -> bytes:
    lines = ["--b", *headers, *([f"Content-Length: {len(data)}"] if length else [])]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data + b"\r\n"


def numbered(k: int, data: bytes | None = None) -> bytes:
    return part(JPEGS[k % 8] if data is None else data, f"X-Frame-Number: {k}")


class Script:
    """A server that sends these pieces, each so many ms after the one before; then it is silent.

    An exception in the place of a piece is raised.
    """

    def __init__(self, *answers: Sequence[bytes | Exception], every_ms: float = 10.0) -> None:
        self.now_ns = 5_000_000_000
        self.answers = [list(answer) for answer in answers]
        self.requests: list[bytes] = []
        self.open = 0
        self._step_ns = round(every_ms * 1e6)
        self._pieces: list[bytes | Exception] = []
        self._timeout_ns = 0

    def camera(self, address: str = "//cam/stream", **more: Any) -> HttpCamera:
        return HttpCamera(
            "front", "http", address, connecting=self.connect, clock=lambda: self.now_ns, **more
        )

    def connect(self, url: Url) -> Script:
        self._pieces = self.answers.pop(0)
        self.open += 1
        return self

    def settimeout(self, value: float) -> None:
        self._timeout_ns = round(value * 1e9)

    def sendall(self, data: bytes) -> None:
        self.requests.append(data)

    def recv(self, size: int) -> bytes:
        if not self._pieces:
            self.now_ns += self._timeout_ns
            raise TimeoutError
        self.now_ns += self._step_ns
        piece = self._pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        assert len(piece) <= size
        return piece

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 80

    def close(self) -> None:
        self.open -= 1


def watch(script: Script, **more: Any) -> list[Shot | Note]:
    """All that comes before the silence."""
    events: list[Shot | Note] = []
    with opened(script.camera(**more)) as camera:
        while came := camera.read(0.2):
            events += came
    assert script.open == 0
    return events


def stream(*parts: bytes | Exception, head: bytes = OK) -> list[bytes | Exception]:
    return [head + b"\r\n", *parts]
