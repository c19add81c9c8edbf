"""The HTTP server: its limits, requests of any shape, and ports."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from recorder.common.errors import UsageError
from recorder.viewers.live import server as server_module
from recorder.viewers.live.server import format_url, listen, make_server
from tests.support.waiting import turn_until
from tests.viewers.live.staging import Stage, staged


def test_a_taken_port_is_one_error_that_names_it() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"live\.port: 127\.0\.0\.1 port {port}.*in use"):
            listen("127.0.0.1", port)


def test_an_address_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"live\.port: 192\.0\.2\.1 port"):
        listen("192.0.2.1", 0)
    with pytest.raises(UsageError, match=r"live\.bind: 1\.2\.3"):
        listen("1.2.3.4.5", 0)


def test_certificates_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"live\.certificate: .*none\.pem"):
        make_server(lambda: None, tmp_path / "none.pem", tmp_path / "none.key")
    (tmp_path / "odd.pem").write_text("odd")
    with pytest.raises(UsageError, match=r"live\.certificate: .*odd\.pem"):
        make_server(lambda: None, tmp_path / "odd.pem", tmp_path / "odd.pem")


@pytest.mark.parametrize(
    ("address", "secure", "expected"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:8/"),
        ("::1", True, "https://[::1]:8/"),
        ("0.0.0.0", False, "http://127.0.0.1:8/"),
        ("::", False, "http://[::1]:8/"),
        ("rig.local", True, "https://rig.local:8/"),
    ],
)
def test_the_address_of_the_page(address: str, secure: bool, expected: str) -> None:
    assert format_url(address, 8, secure=secure) == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("GET /nothing HTTP/1.1", {404}),
        ("GET /static/../app.py HTTP/1.1", {404}),
        ("GET /static/%2e%2e/app.py HTTP/1.1", {404}),
        ("GET /static/..%2fapp.py HTTP/1.1", {404}),
        ("GET /static//etc/passwd HTTP/1.1", {404}),
        ("GET /static/\x00 HTTP/1.1", {400, 404}),
        ("GET /static/%00 HTTP/1.1", {404}),
        ("GET /live HTTP/1.1", {404}),
        ("POST / HTTP/1.1\nContent-Length: 0", {405}),
        ("DELETE /static/index.html HTTP/1.1", {405}),
        ("BREW / HTTP/1.1", {405}),
        ("GET / HTTP/1.1\nHost: evil.example", {421}),
        ("GET / HTTP/1.1\nHost: a\nHost: b", {400}),
        ("GET /" + "x" * 100_000 + " HTTP/1.1", {400, 431}),
        ("GET / HTTP/1.1\nX: " + "x" * 100_000, {400, 431}),
        ("GET / HTTP/1.1\nContent-Length: -1", {400}),
        (
            "GET /live HTTP/1.1\nUpgrade: websocket\nConnection: Upgrade\n"
            "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: odd",
            {400},
        ),
    ],
)
async def test_odd_requests_are_refused(head: str, expected: set[int]) -> None:
    async with staged() as stage:
        answer = await stage.request(head)
        assert answer.status in expected, answer.body
        assert b"/tmp" not in answer.body and b"recorder/viewers/live" not in answer.body


@pytest.mark.campaign
async def test_a_connection_that_sends_no_request_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "REQUEST_S", 0.2)

    async def trickle(stage: Stage, before: bytes) -> None:
        """A byte now and then does not keep a connection; nor does a request before."""
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        writer.write(before)
        with contextlib.suppress(ConnectionError):  # a byte that came too late resets it
            while not reader.at_eof():
                writer.write(b"x")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await reader.read(4096)
        writer.close()

    async with staged() as stage:
        for begin in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n"):
            answer = await stage.exchange(begin)
            assert answer.status == 0
        await trickle(stage, b"")
        await trickle(stage, b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\nGET /")
        async with stage.viewer() as viewer:  # a WebSocket stays
            await viewer.note("hello")
            for _ in range(2):  # longer than a connection without a request is kept
                assert (await stage.exchange(b"")).status == 0
            assert await viewer.settled() is not None


async def test_connections_are_limited_and_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 3)
    async with staged() as stage:
        open_ones = [await asyncio.open_connection("127.0.0.1", stage.port) for _ in range(3)]
        with pytest.raises(AssertionError):
            while (await stage.request("GET /nothing HTTP/1.1")).status == 404:
                pass  # the server has not seen all three yet
            raise AssertionError
        for _, writer in open_ones:
            writer.close()
        await turn_until(lambda: True)
        while (await stage.request("GET /nothing HTTP/1.1")).status != 404:
            await asyncio.sleep(0.01)


def test_a_socket_that_listens_does_not_block() -> None:
    with listen("::1" if socket.has_dualstack_ipv6() else "127.0.0.1", 0) as bound:
        assert not bound.getblocking()
