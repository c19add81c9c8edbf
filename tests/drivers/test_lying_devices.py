"""Devices that speak their protocol maliciously, at real sockets: one clear error, little memory.

What they cost the other sensors of a session is in tests/recording/daemon/test_lying_devices.py.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import pytest

from drivers.camera.http import camera as http_camera
from drivers.camera.http.camera import HttpCamera
from drivers.camera.pictures import check_jpeg
from drivers.camera.rtsp import camera as rtsp_camera
from drivers.camera.rtsp.camera import RtspCamera
from drivers.camera.rtsp.udp_ports import RtpPorts
from drivers.ouster.http_api import OusterHttp
from recorder.common.errors import DeviceError, ProtocolError, RecorderError, SourceError
from tests.drivers.camera.rtp_packets import rtp
from tests.drivers.camera.rtsp_script import SDP, answers, interleaved, reply
from tests.drivers.fuzzing import GROWTH, resident

SOME = 64 << 20  # bytes that a flood has: it ends, so that a test that fails ends too
Talk = Callable[[socket.socket], None]


class Device:
    """A server on loopback that does the same to everybody who connects."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with client, contextlib.suppress(OSError):
                self._talk(client)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(60)


@contextlib.contextmanager
def device(talk: Talk) -> Iterator[Device]:
    made = Device(talk)
    try:
        yield made
    finally:
        made.close()


def endless(head: bytes, again: bytes) -> Talk:
    """Says `head`, and then the same again and again."""
    many = again * max(1, (1 << 16) // len(again))

    def talk(client: socket.socket) -> None:
        client.recv(1 << 16)
        client.sendall(head)
        for _ in range(SOME // len(many)):
            client.sendall(many)

    return talk


def dripping(head: bytes) -> Talk:
    """Says one byte after the other, as slowly as no timeout of a single byte notices."""

    def talk(client: socket.socket) -> None:
        client.recv(1 << 16)
        client.sendall(head)
        closed = threading.Event()
        for _ in range(200):
            closed.wait(0.05)
            client.sendall(b"x")

    return talk


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "too long|no answer in"),
        (endless(OK, b"X-Lie: 1\r\n"), "headers"),
        (endless(OK + b"X: ", b"x"), "header line|too long"),
        (endless(OK + b"Content-Length: 99999999999999\r\n\r\n", b"x"), "too long"),
        (endless(OK + b"Transfer-Encoding: chunked\r\n\r\n-7\r\n", b"x"), "too long"),
        (endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"ffffffff\r\n"), "too long"),
        (dripping(b"HTTP/1.1 200"), r"no answer in 0\.5 s"),
        (dripping(OK), r"no answer in 0\.5 s"),
        (dripping(OK + b"\r\n"), r"no answer in 0\.5 s"),
    ],
    ids=["continue", "headers", "a header", "length", "a negative chunk", "chunks", "status",
         "slow headers", "slow body"],
)  # fmt: skip
def test_a_lidars_answer_has_an_end(talk: Talk, reason: str) -> None:
    with device(talk) as lidar:
        before = resident()
        with pytest.raises(DeviceError, match=f"sensor_info: .*({reason})"):
            patience_s = 0.5 if "0" in reason else 20.0
            OusterHttp(f"127.0.0.1:{lidar.port}", timeout_s=patience_s).sensor_info()
        assert resident() - before < GROWTH


def said(text: str) -> Talk:
    def talk(client: socket.socket) -> None:
        request = client.recv(1 << 16).decode()
        cseq = re.findall(r"CSeq: (\d+)", request)
        client.sendall(text.replace("{cseq}", cseq[0] if cseq else "").encode())

    return talk


def test_nobody_follows_a_device_to_another_host() -> None:
    """Redirects in HTTP and RTSP, and all that RTSP and SDP can name another host in."""
    with device(lambda _: None) as other:
        moved = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{other.port}/\r\n\r\n"
        with device(said(moved)) as lying:
            with pytest.raises(DeviceError, match="sensor_info: 302"):
                OusterHttp(f"127.0.0.1:{lying.port}").sensor_info()
            with pytest.raises(SourceError, match=f"refers to http://127.0.0.1:{other.port}"):
                HttpCamera("c", "http", f"//127.0.0.1:{lying.port}/").open()
        elsewhere = f"rtsp://127.0.0.1:{other.port}/live"
        with (
            device(said(reply("302 Moved", f"Location: {elsewhere}"))) as lying,
            pytest.raises(SourceError, match=f"refers to {elsewhere}"),
        ):
            RtspCamera("c", f"//127.0.0.1:{lying.port}/").open()
        asked: list[str] = []
        sdp = SDP.replace("control:trackID=1", f"control:{elsewhere}/1")
        sdp = sdp.replace("c=IN IP4 0.0.0.0", "c=IN IP4 127.0.0.9")
        transport = "Transport: RTP/AVP/TCP;unicast;destination=127.0.0.9;interleaved=0-1"
        says = answers(
            DESCRIBE=reply("200 OK", f"Content-Base: {elsewhere}/", body=sdp),
            SETUP=reply("200 OK", "Session: 1", transport),
            PLAY=reply("302 Moved", f"Location: {elsewhere}"),
        )

        def talk(client: socket.socket) -> None:
            while request := client.recv(1 << 16).decode():
                method, _, _ = request.partition(" ")
                asked.append(method)
                cseq = re.findall(r"CSeq: (\d+)", request)[0]
                client.sendall(says[method][0].replace("{cseq}", cseq).encode())

        with device(talk) as lying, pytest.raises(SourceError, match="refers to"):
            RtspCamera("c", f"//127.0.0.1:{lying.port}/").open()
        assert asked[:4] == ["OPTIONS", "DESCRIBE", "SETUP", "PLAY"]
        assert other.connections == 0


UNTIL_IT_GIVES_UP = "no picture|closed|reset"
MULTIPART = OK + b"Content-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n"


@pytest.mark.parametrize(
    ("scheme", "talk", "reason"),
    [
        ("http", endless(OK, b"X-Lie: 1\r\n"), "no HTTP answer"),
        ("http", endless(b"HTTP/1.1 503 ", b"x"), "no HTTP answer"),
        ("http", said("HTTP/1.1 503 " + "x" * 60_000 + "\r\n\r\n"), "answers 503 x{200}$"),
        (
            "http",
            said(f"HTTP/1.1 302 a\r\nLocation: http://{'x' * 60_000}\r\n\r\n"),
            "refers to http://x{193}: put",
        ),
        ("http", endless(MULTIPART, b"--b\r\n" + b"X: 1\r\n" * 3000), UNTIL_IT_GIVES_UP),
        (
            "http",
            endless(MULTIPART, b"--b\r\nContent-Length: 99999999999\r\n\r\n"),
            UNTIL_IT_GIVES_UP,
        ),
        (
            "http",
            endless(MULTIPART + b"--b\r\nContent-Length: 60000000\r\n\r\n", b"x"),
            UNTIL_IT_GIVES_UP,
        ),
        ("rtsp", endless(b"RTSP/1.0 200 OK\r\n", b"X-Lie: 1\r\n"), "head exceeds"),
        ("rtsp", said("RTSP/1.0 200 OK\r\nContent-Length: 99999999\r\n\r\n"), "body of '99999999'"),
        ("rtsp", endless(b"", interleaved(bytes(65535))), "no answer to OPTIONS|closed"),
        ("rtsp", endless(b"", b"$\0\0\0"), "no answer to OPTIONS"),
        ("rtsp", endless(b"", b"ANNOUNCE x\r\n\r\n"), "."),
        (
            "rtsp",
            said("RTSP/1.0 404 " + "x" * 9000 + "\r\nCSeq: {cseq}\r\n\r\n"),
            "answers 404 x{200} to",
        ),
    ],
)  # fmt: skip
def test_a_cameras_lies_are_one_error(
    scheme: str, talk: Talk, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason in (UNTIL_IT_GIVES_UP, "."):
        for module in (http_camera, rtsp_camera):
            monkeypatch.setattr(module, "_OPEN_S", 0.5)
    with device(talk) as lying:
        before = resident()
        where = f"//127.0.0.1:{lying.port}/"
        camera = HttpCamera("c", "http", where) if scheme == "http" else RtspCamera("c", where)
        with pytest.raises(RecorderError, match=reason) as caught:
            camera.open()
        assert len(str(caught.value)) < 1000
        assert resident() - before < 4 * GROWTH


def test_only_the_camera_sends_its_pictures_and_its_goodbye() -> None:
    bye = b"\x81\xcb\x00\x01" + bytes(4)
    with (
        RtpPorts(ipv6=False) as ports,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as camera,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as liar,
    ):
        first, second = map(int, re.findall(r"client_port=(\d+)-(\d+)", ports.transport)[0])
        camera.bind(("127.0.0.1", 0))
        liar.bind(("127.0.0.2", 0))
        liar.sendto(rtp(7, 0, b"lie"), ("127.0.0.1", first))
        liar.sendto(bye, ("127.0.0.1", second))
        ports.listen_to("127.0.0.1")
        for number in (1, 2):
            camera.sendto(rtp(number, 0, b"picture"), ("127.0.0.1", first))
        packets: list[bytes] = []
        for _ in range(100):
            received, reports = ports.receive(0.2)
            packets += [data[12:] for _, data in received]
            assert reports == []
            if len(packets) == 2:
                break
        assert packets == [b"picture", b"picture"]
        camera.sendto(bye, ("127.0.0.1", second))
        camera.sendto(rtp(3, 0, b"last"), ("127.0.0.1", first))
        reports = []
        for _ in range(100):
            reports += ports.receive(0.2)[1]
            if reports:
                break
        assert reports == [bye]


def test_a_picture_of_more_pixels_than_memory_is_refused() -> None:
    """A few kilobytes may declare 4 gigapixels; whoever decodes them would need their memory."""
    data = bytearray(cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="65535 x 65535 pixels"):
        check_jpeg(bytes(data))
