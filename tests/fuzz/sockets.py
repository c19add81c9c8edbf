"""The sockets that the recorder listens on, each served as it is in a recording."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zmq
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from drivers.camera.rtsp.rtp import Depacketizer, NalAssembler
from drivers.camera.rtsp.udp_ports import RtpPorts
from drivers.kit.udp_socket import UdpReceiver
from recorder.bus.control.client import Client
from recorder.bus.control.keys import CurveClient, CurveServer, make_keys
from recorder.bus.control.requests import MOST_BYTES
from recorder.bus.control.server import ControlServer
from recorder.bus.sockets import Waker, WriterSocket, writer_address
from recorder.bus.wire import encode
from recorder.common.errors import ProtocolError
from recorder.recording.daemon.metrics import MetricsServer
from recorder.viewers.live.access import Access
from recorder.viewers.live.app import ClientRegistry, make_app
from recorder.viewers.live.hub import Hub
from recorder.viewers.live.server import listen, make_server
from tests.drivers.camera.rtp_packets import encode as encode_h264
from tests.drivers.camera.rtp_packets import packets
from tests.fuzz.targets import Prepared, target
from tests.viewers.live.staging import NUMBERS, FakeBackend, picture

_SECONDS = 20.0
_ASK_EVERY = 50  # inputs: whether the server still serves who asks in order


def exchange(family: socket.AddressFamily, where: Any, data: bytes, *, ends: bool = True) -> bytes:
    """Send the bytes, say with `ends` that there are no more, and return the answer."""
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(_SECONDS)
        client.connect(where)
        answer = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            if ends:
                with contextlib.suppress(OSError):  # it is gone already
                    client.shutdown(socket.SHUT_WR)
            while more := client.recv(1 << 16):
                answer += more
        return answer


@target("control-socket", b'{"op":', b"\n", b"[" * 70_000, b"\xff", b'"' * 9)
def control_socket(folder: Path) -> Iterator[Prepared]:
    path = folder / "c.sock"
    server = ControlServer(path, lambda c: c.answer({"ok": True, "state": "idle"}), lambda: "idle")
    server.start()
    fed = 0

    def feed(data: bytes) -> None:
        nonlocal fed
        exchange(socket.AF_UNIX, str(path), data)
        fed += 1
        if fed % _ASK_EVERY == 1:
            with Client(path) as client:
                assert client.request("status").ok

    try:
        yield [b'{"op":"status"}\n{"op":"stop"}\n', b'{"op":"mark","text":"x"}\n'], feed
    finally:
        server.close()


@target("control-tcp", b"\x04\x19", b"\x04\x26\x05HELLO", b"\xff" + bytes(9), b"CURVE")
def control_tcp(folder: Path) -> Iterator[Prepared]:
    """Whoever has no key: bytes of ZMTP before and in CURVE's handshake."""
    make_keys(folder / "keys")
    waker = Waker()
    fed = 0
    with CurveServer("tcp://127.0.0.1:*", folder / "keys", waker, MOST_BYTES) as server:
        port = int(server.address.rpartition(":")[2])
        stopping = threading.Event()

        def serve() -> None:
            while not stopping.is_set():
                server.wait(1.0)
                waker.clear()
                while (request := server.receive()) is not None:
                    server.send(request[0], b"answer")

        thread = threading.Thread(target=serve)
        thread.start()

        def feed(data: bytes) -> None:
            nonlocal fed
            exchange(socket.AF_INET, ("127.0.0.1", port), data)
            fed += 1
            if fed % _ASK_EVERY == 1:
                with CurveClient(server.address, folder / "keys", _SECONDS) as client:
                    assert client.exchange(b"x") == b"answer"

        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(48)
        hello = b"\x04\xc8\x05HELLO\x01\x00" + bytes(72 + 32 + 8 + 80)
        try:
            yield [greeting, greeting + hello, b"\x01\x00", greeting + hello[:60]], feed
        finally:
            stopping.set()
            waker.wake()
            thread.join()


@target("metrics", b"\r\n\r\n", b"Content-Length: -1\r\n", b"GET ", b"x" * 70_000)
def metrics(_: Path) -> Iterator[Prepared]:
    fed = 0
    with MetricsServer(0, lambda: "x 1\n") as server:

        def feed(data: bytes) -> None:
            nonlocal fed
            exchange(socket.AF_INET, ("127.0.0.1", server.port), data)
            fed += 1
            if fed % _ASK_EVERY == 1:
                assert b"x 1\n" in exchange(socket.AF_INET, ("127.0.0.1", server.port), right)

        right = b"GET /metrics HTTP/1.0\r\n\r\n"
        yield [right, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\n\r\nab"], feed


class Dashboard:
    """The live process's server in a thread: pages, ``/live`` and ``/foxglove``."""

    def __init__(self) -> None:
        self._listening = listen("127.0.0.1", 0)
        self.port: int = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])
        self._thread.start()

    async def _serve(self) -> None:
        hub, backend, registry = Hub(), FakeBackend(), ClientRegistry(8)
        hub.declare(NUMBERS)
        with ThreadPoolExecutor(2) as executor:
            access = Access("127.0.0.1", None, (), port=self.port)
            app = make_app(hub, backend, registry, access, executor)
            self._server = make_server(app, None, None)
            self._server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
            await self._server.serve(sockets=[self._listening])

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        """Carry out what a viewer does, in the server's own loop."""
        future = asyncio.run_coroutine_threadsafe(what, self._loop)
        return future.result(_SECONDS)

    def get(self, data: bytes, *, ends: bool = True) -> bytes:
        return exchange(socket.AF_INET, ("127.0.0.1", self.port), data, ends=ends)

    def check(self) -> None:
        host = f"Host: 127.0.0.1:{self.port}\r\nConnection: close\r\n\r\n"
        answer = self.get(f"GET / HTTP/1.1\r\n{host}".encode(), ends=False)
        assert answer.startswith(b"HTTP/1.1 200"), answer[:200]

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._loop.close()
        self._listening.close()


@contextlib.contextmanager
def dashboard() -> Iterator[Dashboard]:
    made = Dashboard()
    try:
        yield made
    finally:
        made.close()


@target("dashboard-http", b"\r\n\r\n", b"%00", b"Upgrade: websocket\r\n", b"/../", b"\nHost: x\r\n")
def dashboard_http(_: Path) -> Iterator[Prepared]:
    fed = 0
    with dashboard() as served:

        def feed(data: bytes) -> None:
            nonlocal fed
            answer = served.get(data)
            assert not re.match(rb"HTTP/1.1 5\d\d", answer), answer[:200]
            fed += 1
            if fed % _ASK_EVERY == 1:
                served.check()

        host = f"Host: 127.0.0.1:{served.port}\r\n\r\n".encode()
        key = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        yield (
            [
                b"GET / HTTP/1.1\r\n" + host,
                b"GET /static/index.html HTTP/1.1\r\n" + host,
                b"GET /live HTTP/1.1\r\n" + key + host + b"\x81\x82\0\0\0\0{}\x88\x80\0\0\0\0",
            ],
            feed,
        )


def _messages(
    path: str, subprotocols: list[Any] | None, samples: list[bytes]
) -> Iterator[Prepared]:
    """Messages of a viewer; the first byte says whether a message is text."""
    fed = 0
    with dashboard() as served:

        async def say(data: bytes) -> None:
            with contextlib.suppress(WebSocketException, OSError):
                async with connect(
                    f"ws://127.0.0.1:{served.port}{path}", subprotocols=subprotocols, proxy=None
                ) as viewer:
                    for message in data.split(b"\x1e"):
                        text = message[:1] != b"\x01"
                        await viewer.send(message.decode("utf-8", "replace") if text else message)

        def feed(data: bytes) -> None:
            nonlocal fed
            served.run(say(data))
            fed += 1
            if fed % _ASK_EVERY == 1:
                served.check()

        yield samples, feed


@target("dashboard-live", b"null", b"[" * 50, b"1e999", b"\x1e", b'"', b"-1", b"\\ud800")
def dashboard_live(_: Path) -> Iterator[Prepared]:
    samples = [
        b'{"op":"watch","stream":"numbers","view":"numbers"}\x1e{"op":"greet","name":"a","id":1}',
        b'{"op":"unwatch","watch":1}\x1e{"op":"ack","watch":1}',
    ]
    yield from _messages("/live", None, samples)


@target("foxglove", b"null", b"[" * 50, b"1e999", b"\x1e", b'"', b"\x01\xff\xff\xff\xff", b"-1")
def foxglove(_: Path) -> Iterator[Prepared]:
    samples = [
        b'{"op":"subscribe","subscriptions":[{"id":1,"channelId":1}]}'
        b'\x1e{"op":"unsubscribe","subscriptionIds":[1]}',
        b'{"op":"getParameters","parameterNames":["a"],"id":"x"}',
        b'\x01\x01\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00json{"name":"a"}',
    ]
    yield from _messages("/foxglove", ["foxglove.sdk.v1"], samples)


@target("writer-socket", b"\xc1", b"\xdd\xff\xff\xff\xff", bytes(8))
def writer_socket(folder: Path) -> Iterator[Prepared]:
    """A driver's messages as frames, behind each other with their lengths."""
    os.chmod(folder, 0o700)  # noqa: PTH101
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with WriterSocket(folder, most_bytes=1 << 20) as writer, context.socket(zmq.DEALER) as driver:
        driver.connect(writer_address(folder))
        sentinel = [bytes(frame) for frame in encode(picture(1))]

        def feed(data: bytes) -> None:
            frames: list[bytes] = []
            at = 0
            while at < len(data) and len(frames) < 64:
                size = int.from_bytes(data[at : at + 2], "big")
                frames.append(data[at + 2 : at + 2 + size])
                at += 2 + size
            driver.send_multipart(frames or [b""])
            driver.send_multipart(sentinel)
            while True:
                writer.wait(_SECONDS)
                received = writer.receive()
                assert received is not None, "the right message does not arrive"
                if not isinstance(received[1], ProtocolError) and received[1].stream == "camera":
                    break

        samples = [b"".join(len(f).to_bytes(2, "big") + f for f in sentinel)]
        yield samples, feed
    context.destroy(0)


@target("sensor-udp", bytes(8))
def sensor_udp(_: Path) -> Iterator[Prepared]:
    with (
        UdpReceiver("127.0.0.1", 0, 1 << 20, 0.0, packet_bytes=2048, batch=8) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):

        def feed(data: bytes) -> None:
            sender.sendto(data[:65_000], ("127.0.0.1", receiver.port))
            batch = receiver.receive(_SECONDS)
            assert len(batch) == 1 and batch.sizes[0] == min(len(data), 2048)

        yield [bytes(100), bytes(3000)], feed


@target("sensor-rtp", b"\x7c\x85", b"\x80\x60", b"\xff\xff", bytes(4))
def sensor_rtp(_: Path) -> Iterator[Prepared]:
    with (
        RtpPorts(ipv6=False) as ports,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as camera,
    ):
        ports.listen_to("127.0.0.1")
        first = int(re.findall(r"client_port=(\d+)", ports.transport)[0])
        tested = Depacketizer(NalAssembler("h264"), 96, 90_000)

        def feed(data: bytes) -> None:
            camera.sendto(data[:2000], ("127.0.0.1", first))
            for t_ns, packet in ports.receive(0.01)[0]:
                with contextlib.suppress(ProtocolError):
                    tested.feed(packet, t_ns)

        yield packets(encode_h264("h264", 6)), feed
