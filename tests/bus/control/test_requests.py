"""What a request to the daemon may be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis.strategies import dictionaries, text

from recorder.bus.control.requests import MOST_BYTES, Start, Stop, parse_request
from recorder.common.errors import UsageError


def test_requests_that_can_be_carried_out() -> None:
    assert parse_request(b'{"op": "stop"}') == Stop()
    line = b'{"op": "start", "name": "a", "meta": {"k": "v: \\u00e9"}}'
    assert parse_request(line) == Start("a", {"k": "v: é"})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\xff", "not a JSON object"),
        (b"[" * 60_000, "not a JSON object"),
        (b'{"op": NaN}', "not a JSON object"),
        (b'{"op":"start","meta":{"a":"1","a":"2"}}', "not a JSON object"),
        (b'{"op":"status","x":' + b"9" * 5000 + b"}", "."),
        (b'{"op":["start"]}', 'with an "op"'),
        (b'{"op": "start", "name": ".hidden"}', "starts with '.'"),
        (b'{"op":"start","name":"\\u0000"}', "holds"),
        ('{"op":"start","name":"\uff44rive"}'.encode(), "holds"),
        (b'{"op": "start", "meta": {"a": "\\ud800"}}', "holds"),
        (b'{"op": "start", "meta": {"a": "x\\ny"}}', "holds"),
        ('{"op":"mark","text":"a\x9bb"}'.encode(), "holds"),
        ('{"op":"mark","text":"a\u2028b"}'.encode(), "holds"),
        (b'{"op": "keep", "session": "a/../../b"}', "is a path"),
        (b'{"op":"mark","text":"' + b"x" * MOST_BYTES + b'"}', "longer than"),
    ],
)
def test_requests_that_cannot(line: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_request(line)


def test_the_longest_request() -> None:
    line = b'{"op":"status"}'.ljust(MOST_BYTES)
    assert parse_request(line).op == "status"
    with pytest.raises(UsageError, match=f"longer than {MOST_BYTES} bytes"):
        parse_request(line + b" ")


@given(dictionaries(text(max_size=5), text(max_size=20), max_size=4))
def test_metadata_that_is_taken_can_be_written_anywhere(meta: dict[str, str]) -> None:
    try:
        request = parse_request(json.dumps({"op": "start", "meta": meta}).encode())
    except UsageError:
        return
    for key, value in request.values["meta"].items():
        (key + value).encode("utf-8")
        assert f"{key}{value}".splitlines() in ([], [key + value])
