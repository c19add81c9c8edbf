"""Cameras over HTTP: addresses, passwords, TLS."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from drivers.camera.driver import CameraDriver
from drivers.camera.http.camera import HttpCamera, Url, connect, parse_url
from recorder.common.errors import DeviceError, SourceError
from tests.drivers.camera.http_script import Script, numbered, stream
from tests.drivers.camera.rig import driver
from tests.support.devices import free_port, opened


def login(challenge: str) -> Script:
    refusal = f"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {challenge}\r\n\r\n".encode()
    return Script([refusal], stream(numbered(0)), every_ms=1)


def test_the_password_is_sent_only_when_asked_for_and_never_shown() -> None:
    script = login('Basic realm="cam"')
    with opened(script.camera("//user:s%40cret@cam:8080/video?x=1")) as camera:
        first, second = script.requests
        assert first.startswith(b"GET /video?x=1 HTTP/1.1\r\nHost: cam:8080\r\n")
        assert b"Authorization" not in first
        assert b"Authorization: Basic dXNlcjpzQGNyZXQ=\r\n" in second  # user:s@cret
        assert "cret" not in camera.where
        assert "user:***@cam:8080" in camera.where


def test_digest() -> None:
    script = login('Digest realm="cam", nonce="abc", qop="auth"')
    with opened(script.camera("//user:secret@cam/video")):
        answer = script.requests[1]
        for text in (b'Authorization: Digest username="user"', b'uri="/video"', b"qop=auth"):
            assert text in answer
        assert b"secret" not in answer


def test_a_password_that_is_refused() -> None:
    refusal = b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="x"\r\n\r\n'
    with pytest.raises(DeviceError, match="refuses this user and password") as caught:
        Script([refusal], [refusal]).camera("//user:secret@cam/").open()
    assert "secret" not in str(caught.value)
    odd = b"HTTP/1.1 401 No\r\nWWW-Authenticate: Negotiate\r\n\r\n"
    with pytest.raises(DeviceError, match="neither Basic nor Digest"):
        Script([odd]).camera("//user:secret@cam/").open()


def test_addresses() -> None:
    url = parse_url("w", "http", "//[::1]:81/a?b=c")
    assert (url.host, url.port, url.target, url.user) == ("::1", 81, "/a?b=c", None)
    assert parse_url("w", "https", "//cam").port == 443
    assert parse_url("w", "http", "//u:p@w/x@cam").host == "w"
    for bad in ("cam/x", "//", "//:80/", "//cam:99999/", "//cam/a b", "///x"):
        with pytest.raises(SourceError, match=r"^w: "):
            parse_url("w", "http", bad)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nobody_there(scheme: str) -> None:
    camera = driver(f"//u:secret@127.0.0.1:{free_port(socket.SOCK_STREAM)}/x", scheme, name="rear")
    assert camera.sensor.scheme in CameraDriver.live_schemes
    for _ in range(2):  # may be tried again
        with pytest.raises(DeviceError, match=f"rear: {scheme}://u:.* refused") as caught:
            camera.open()
        assert "secret" not in str(caught.value)
        camera.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A server's certificate with its key, made for one test."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs the program openssl")
    path = tmp_path / "camera.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-keyout", str(path), "-out", str(tmp_path / "camera.crt")]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + (tmp_path / "camera.crt").read_bytes())
    return path


def test_over_tls_a_camera_is_named_and_its_certificate_is_its_own(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda wire, name, context: names.append(name)
    request = b""

    def serve() -> None:
        nonlocal request
        with listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as wire:
            request = wire.recv(100)
            wire.sendall(b"answer")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            url = parse_url("w", "https", f"//localhost:{listener.getsockname()[1]}/x")
            connection = connect(url)
            connection.settimeout(60)
            connection.sendall(b"question")
            assert connection.recv(100) == b"answer"
            connection.close()
        finally:
            thread.join()
    assert request == b"question" and names == ["localhost"]


def test_a_name_that_is_none() -> None:
    def no_name(_: Url) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    camera = HttpCamera("front", "http", "//nowhere/", connecting=no_name)
    with pytest.raises(DeviceError, match="Name or service not known"):
        camera.open()
