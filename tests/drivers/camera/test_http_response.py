"""The head and the chunks of an endless HTTP answer; logins."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.camera.http.response import ResponseParser, authorization
from recorder.common.errors import ProtocolError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=x\r\n"


def feed(data: bytes, size: int) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    pieces = range(0, len(data), size)
    return parser, b"".join(parser.feed(data[at : at + size]) for at in pieces)


@pytest.mark.parametrize("size", [1, 3, 70, 10_000])
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_plain_body(size: int, end: bytes) -> None:
    parser, body = feed((HEAD + b"\r\n").replace(b"\r\n", end) + b"abc\r\n\r\ndef", size)
    assert body == b"abc\r\n\r\ndef"
    assert parser.head is not None
    assert (parser.head.status, parser.head.reason) == (200, "OK")
    assert parser.head.headers["content-type"].endswith("boundary=x")


@pytest.mark.parametrize(
    "line",
    [
        b"Tue, 12 Jun 2012 01:56:34 GMT",  # a GoaHead server: a date without its name
        b"X-Frame-Options : SAMEORIGIN",  # an ONVIF camera: a space before the colon
        b"no colon at all",
        b"Transfer-Encoding: identity",
        b"Content-Length: 0",  # of a stream that has no end
    ],
)
def test_header_lines_that_cameras_send_against_the_rfc(line: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nServer: a\r\n" + line + b"\r\nContent-Type:image/jpeg\r\n\r\n"
    parser, body = feed(head + b"abc", 10)
    assert body == b"abc"
    assert parser.head is not None
    assert parser.head.headers["server"] == "a"
    assert parser.head.headers["content-type"] == "image/jpeg"


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=6), st.integers(1, 80))
def test_a_chunked_body(chunks: list[bytes], size: int) -> None:
    coded = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = HEAD + b"Transfer-Encoding: Chunked\r\n\r\n"
    parser, body = feed(head + coded, size)
    assert body == b"".join(chunks)
    assert not parser.ended
    parser.feed(b"0\r\n\r\n")
    assert parser.ended


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 300,
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        feed(data, 50)


# The examples of RFC 7616, section 3.9.1, and RFC 2617, section 3.5.
REALM = 'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={}, '
NONCES = (
    'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", '
    'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
)
CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
    ],
)
def test_digest_as_in_the_rfc(algorithm: str, response: str) -> None:
    challenge = REALM.format(algorithm) + NONCES
    answer = authorization((challenge,), "Mufasa", "Circle of Life", "/dir/index.html", CNONCE)
    assert answer is not None
    assert answer.startswith("Digest ")
    for field in (
        'username="Mufasa"',
        f'response="{response}"',
        "qop=auth",
        "nc=00000001",
        f'cnonce="{CNONCE}"',
        'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"',
    ):
        assert field in answer


def test_digest_by_md5_where_openssl_has_it_for_nothing_secret_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine in FIPS mode: there MD5 is refused, unless it is not for security."""
    new = hashlib.new

    def fips(name: str, data: bytes = b"", *, usedforsecurity: bool = True) -> Any:
        if name == "md5" and usedforsecurity:
            raise ValueError("[digital envelope routines] unsupported")
        return new(name, data)

    challenge = 'Digest realm="a", nonce="n"'
    usual = authorization((challenge,), "u", "p", "/", "c")
    monkeypatch.setattr(hashlib, "new", fips)
    assert usual is not None and authorization((challenge,), "u", "p", "/", "c") == usual


def test_digest_without_qop() -> None:
    challenge = 'Digest realm="a", nonce="n"'
    answer = authorization((challenge,), "u", "p", "/", "c")
    assert answer is not None
    assert "cnonce" not in answer
    assert 'response="' in answer


def test_which_login_is_chosen() -> None:
    basic, digest = 'Basic realm="x"', 'Digest realm="x", nonce="n"'
    assert authorization((basic,), "user", "pä:ss", "/", "c") == "Basic dXNlcjpww6Q6c3M="
    chosen = authorization((basic, digest), "u", "p", "/", "c")
    assert chosen is not None
    assert chosen.startswith("Digest")
    odd = 'Digest realm="x", nonce="n", algorithm=SHA-512-256'
    assert authorization((odd, basic), "user", "pä:ss", "/", "c") == "Basic dXNlcjpww6Q6c3M="
    assert authorization(("Bearer",), "u", "p", "/", "c") is None
    assert authorization((), "u", "p", "/", "c") is None
