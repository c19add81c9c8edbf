"""A hundred thousand damaged parts at the camera's socket; its parsers are in `tests.fuzz`.

Nothing may crash, hang, or grow; what was not touched must come through.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable

import pytest

from drivers.camera.http.camera import HttpCamera, Url
from drivers.camera.model_output import encode_part
from drivers.camera.pictures import Shot
from recorder.common.errors import DeviceError, RecorderError, StreamChangedError
from tests.drivers.camera.rig import jpeg
from tests.drivers.fuzzing import mutated

pytestmark = pytest.mark.campaign(weight=5)

JPEGS = [jpeg(k, (32, 24)) for k in range(4)]
HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=recorder-frame\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=recorder-frame\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n",
    b'HTTP/1.1 401 No\r\nWWW-Authenticate: Digest realm="a", nonce="b", qop="auth"\r\n\r\n',
]


PARTS = (b"\r\n\r\n", b"--recorder-frame", b"--", b"\xff\xd9", b"\xff\xd8", b"\n0\r\n")


def damaged(data: bytes, source: random.Random) -> bytes:
    return mutated(source, data, PARTS)


def packets(source: random.Random) -> Callable[[int], bytes]:
    def packet(k: int) -> bytes:
        data = encode_part(JPEGS[k % 4], k, k * 50_000_000)
        return data if k % 3 == 0 else damaged(data, source)

    return packet


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Peer:
    """A socket from which damaged packets come, in pieces of any size."""

    def __init__(self) -> None:
        self.source = random.Random(4)
        self.packet = packets(self.source)
        self.sent = 0
        self.open = 0
        self.now_ns = 10**12
        self._waiting = b""

    def connect(self, _: Url) -> Peer:
        self.open += 1
        head = HEADS[0] if self.source.random() < 0.8 else damaged(HEADS[0], self.source)
        self._waiting = head
        return self

    def settimeout(self, value: float) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        pass

    def recv(self, size: int) -> bytes:
        self.now_ns += 1_000_000
        while len(self._waiting) < 2000:
            self._waiting += self.packet(self.sent)
            self.sent += 1
        at = self.source.randrange(1, 6000)
        data, self._waiting = self._waiting[:at], self._waiting[at:]
        return data

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 80

    def close(self) -> None:
        self.open -= 1


def test_the_socket(mutations: int) -> None:
    peer = Peer()
    camera = HttpCamera("c", "http", "//c/", connecting=peer.connect, clock=lambda: peer.now_ns)
    shots, ends, last_ns = 0, 0, 0
    start_kb = 0
    while peer.sent < mutations:
        if not start_kb and peer.sent > mutations // 10:
            start_kb = peak_kb()
        try:
            camera.open()
            while peer.sent < mutations:
                for event in camera.read(0.2):
                    assert event.t_ns > last_ns or not isinstance(event, Shot)
                    last_ns = max(last_ns, event.t_ns)
                    shots += isinstance(event, Shot) and isinstance(event.picture, bytes)
        except RecorderError as error:
            assert isinstance(error, (DeviceError, StreamChangedError)) or "stream" in str(error)
            ends += 1
        camera.close()
        assert peer.open == 0
    assert shots > mutations / 3
    assert ends < mutations / 10
    assert peak_kb() - start_kb < 40_000
