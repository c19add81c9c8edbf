"""Who gets in: hosts, tokens, cookies and origins; what answers hold."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from recorder.common.errors import UsageError
from recorder.viewers.live.access import HEADERS, Access, is_loopback, strip_paths
from tests.examples import examples
from tests.viewers.live.staging import staged

TOKEN = "correct-horse-battery"


def scope(
    kind: str = "http", method: str = "GET", query: str = "", **headers: str
) -> dict[str, object]:
    pairs = {"host": "127.0.0.1:8377", **headers}
    return {
        "type": kind,
        "method": method,
        "path": "/",
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode("latin-1")) for name, text in pairs.items()],
    }


def status(access: Access, **request: str) -> int:
    refusal = access.find_refusal(scope(**request))
    return 200 if refusal is None else refusal[0]


def test_another_address_than_loopback_needs_a_token() -> None:
    with pytest.raises(UsageError, match=r"live\.token"):
        Access("0.0.0.0", None)
    with pytest.raises(UsageError, match=r"live\.token"):
        Access("192.168.1.5", "")
    Access("::1", None)
    Access("0.0.0.0", TOKEN)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8377", 200),
        ("127.0.0.1", 200),
        ("127.1.2.3:1", 200),
        ("localhost:8377", 200),
        ("LOCALHOST", 200),
        ("[::1]:8377", 200),
        ("lichtblick.example", 200),
        ("evil.example", 421),
        ("evil.example:8377", 421),
        ("127.0.0.1.evil.example", 421),
        ("127.0.0.1@evil.example", 421),
        ("127.0.0.1/x", 421),
        ("127.0.0.1:port", 421),
        ("192.168.1.5:8377", 421),
        ("", 421),
    ],
)
def test_on_loopback_only_names_of_loopback_and_of_origins_are_served(
    host: str, expected: int
) -> None:
    access = Access("127.0.0.1", None, ["https://lichtblick.example"])
    assert status(access, host=host) == expected
    assert status(access, kind="websocket", host=host) == expected
    if expected == 421:
        assert status(Access("127.0.0.1", TOKEN), host=host, query=f"token={TOKEN}") == 421


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:8377", 200),
        ("https://127.0.0.1:8377", 200),
        ("https://app.example", 200),
        ("HTTPS://APP.example", 200),
        ("file://", 200),
        ("http://127.0.0.1:9999", 403),
        ("https://evil.example", 403),
        ("https://app.example.evil", 403),
        ("http://127.0.0.1:8377.evil.example", 403),
        ("ws://127.0.0.1:8377", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_websockets_and_posts_need_an_origin_that_is_permitted(origin: str, expected: int) -> None:
    access = Access("127.0.0.1", None, ["https://app.example/", "file://"])
    assert status(access, kind="websocket", origin=origin) == expected
    assert status(access, method="POST", origin=origin) == expected
    assert status(access, origin=origin) == 200  # reading is what browsers guard themselves


def test_clients_that_are_no_browsers_name_no_origin() -> None:
    assert status(Access("127.0.0.1", None), kind="websocket") == 200


def test_a_token_is_taken_from_the_query_the_header_or_the_cookie() -> None:
    access = Access("0.0.0.0", TOKEN, port=8377)
    cookie = access.cookie().partition(";")[0]
    assert status(access) == 401
    assert status(access, query=f"token={TOKEN}") == 200
    assert status(access, kind="websocket", query=f"a=b&token={TOKEN}") == 200
    assert status(access, authorization=f"Bearer {TOKEN}") == 200
    assert status(access, authorization=f"bearer {TOKEN}") == 200
    assert status(access, cookie=f"other=1; {cookie}") == 200
    for wrong in (TOKEN[:-1], TOKEN + "x", "", "%00", "\u00e9"):
        assert status(access, query=f"token={wrong}") == 401
        assert status(access, authorization=f"Bearer {wrong}") == 401
        assert status(access, cookie=f"recorder_8377={wrong}") == 401
    assert status(access, authorization=f"Basic {TOKEN}") == 401
    assert status(access, cookie=f"recorder_8377={TOKEN}") == 401  # the token is no cookie
    assert status(access, cookie=cookie.replace("8377", "8378")) == 401
    assert status(Access("0.0.0.0", "another-long-token", port=8377), cookie=cookie) == 401


def test_the_cookie_is_for_this_site_and_no_script_and_does_not_hold_the_token() -> None:
    plain, secure = (Access("0.0.0.0", TOKEN, secure=secure).cookie() for secure in (False, True))
    assert TOKEN not in plain
    assert "; HttpOnly" in plain and "; SameSite=Strict" in plain and "; Path=/" in plain
    assert "Secure" not in plain and secure.endswith("; Secure")


@examples(2)
@given(
    st.dictionaries(
        st.sampled_from(("host", "origin", "cookie", "authorization")),
        st.text(st.characters(max_codepoint=255), max_size=60),
    ),
    st.text(st.characters(max_codepoint=255), max_size=60),
    st.sampled_from(("http", "websocket")),
)
def test_no_headers_pass_by_accident_or_raise(
    headers: dict[str, str], query: str, kind: str
) -> None:
    request = scope(kind)
    request["headers"] = [(k.encode(), v.encode("latin-1")) for k, v in headers.items()]
    request["query_string"] = query.encode("latin-1")
    refusal = Access("0.0.0.0", TOKEN).find_refusal(request)
    assert refusal is not None and refusal[0] in (401, 403)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data/sessions/a: is full", "a: is full"),
        ("cannot open '/run/recorder/control.sock'", "cannot open 'control.sock'"),
        ("rtsp://10.0.0.1/stream/1", "rtsp://10.0.0.1/stream/1"),
        ("ipc:///tmp/recorder-abc/tap-camera", "ipc://tap-camera"),
        ("../x/y.yaml:12: sensors", "y.yaml:12: sensors"),
        ("~/rig.yaml", "rig.yaml"),
        ("3 m/s and 2/3", "3 m/s and 2/3"),
        ("and/or", "and/or"),
        ("/", ""),
        ("pcap:/data/x.pcap: no such file", "pcap:x.pcap: no such file"),
        ("session:../a/b#imu", "session:b#imu"),
        ("/data//a/", ""),
        ("file:///data/a", "file://a"),
    ],
)
def test_answers_hold_no_paths(text: str, expected: str) -> None:
    assert strip_paths(text) == expected
    assert strip_paths({"a": [text, 1, None]}) == {"a": [expected, 1, None]}


@examples(2)
@given(st.lists(st.text("abcdefgh", min_size=3, max_size=6), min_size=2, max_size=5))
def test_no_folder_of_an_absolute_path_is_left(parts: list[str]) -> None:
    path = "/" + "/".join(f"{part}{i}" for i, part in enumerate(parts))
    left = strip_paths(f"no such file: {path}: gone")
    assert "/" not in left and parts[0] + "0" not in re.split(r"\W", left)


def test_loopback_is_told_from_other_addresses() -> None:
    here = ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")
    assert all(map(is_loopback, here))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com", "")))


async def test_every_answer_has_the_headers_of_security() -> None:
    async with staged() as stage:
        for request in ("GET / HTTP/1.1", "GET /nothing HTTP/1.1", "POST / HTTP/1.1"):
            answer = await stage.request(request)
            assert HEADERS.items() <= answer.headers.items(), request
        refused = await stage.request("GET / HTTP/1.1\nHost: evil.example")
        assert refused.status == 421
        assert HEADERS.items() <= refused.headers.items()
        assert "server" not in refused.headers


async def test_a_browser_enters_with_the_token_once_and_then_by_its_cookie() -> None:
    async with staged(bind="0.0.0.0", token=TOKEN) as stage:
        refused = await stage.request("GET / HTTP/1.1")
        assert refused.status == 401 and b'name="token"' in refused.body
        assert (await stage.request("GET / HTTP/1.1\nAccept: */*")).status == 401
        wrong = await stage.request("GET /?token=wrong HTTP/1.1")
        assert wrong.status == 401 and "set-cookie" not in wrong.headers
        entered = await stage.request(f"GET /?token={TOKEN} HTTP/1.1")
        assert entered.status == 200 and TOKEN.encode() not in entered.body
        assert entered.headers["cache-control"] == "no-store"
        cookie = entered.headers["set-cookie"].partition(";")[0]
        page = await stage.request(f"GET /static/none.js HTTP/1.1\nCookie: {cookie}")
        assert page.status == 404
        for query, headers in ((f"?token={TOKEN}", {}), ("", {"Cookie": cookie})):
            async with stage.viewer(query=query, additional_headers=headers) as viewer:
                await viewer.note("hello")
        with pytest.raises(InvalidStatus) as closed:
            async with stage.viewer():
                pass
        assert closed.value.response.status_code == 401


async def test_a_websocket_of_another_origin_is_refused() -> None:
    async with staged() as stage:
        here = f"http://127.0.0.1:{stage.port}"
        async with stage.viewer(origin=here) as viewer:
            await viewer.note("hello")
        for options in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with stage.viewer(**options):
                    pass
            assert refused.value.response.status_code == 403
        assert stage.backend.viewers == [1, 0]  # the refused ones were never counted
