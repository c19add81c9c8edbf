"""Passwords in addresses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.secret_masking import mask_passwords, mask_value
from recorder.config.yaml_lines import parse_yaml


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("rtsp://user:pw@10.0.0.5:554/s?x=1#f", "rtsp://user:***@10.0.0.5:554/s?x=1#f"),
        ("rtsp://user:p@ss@host/s", "rtsp://user:***@host/s"),
        ("rtsp://user:p/ss@host/s", "rtsp://user:***@host/s"),
        ("rtsp://user:p:w@host", "rtsp://user:***@host"),
        ("rtsp://:pw@host", "rtsp://:***@host"),
        ("rtsp:user:pw@host/s", "rtsp:user:***@host/s"),
        ('source: "http://u:pw@h/", fps: 3', 'source: "http://u:***@h/", fps: 3'),
        ("x:rtsp://u:pw@h: cannot open", "x:rtsp://u:***@h: cannot open"),
        ("a://u:one@h b://v:two@h", "a://u:***@h b://v:***@h"),
        ("http://proxy/rtsp://u:pw@h", "http://proxy/rtsp://u:***@h"),
        ("http://h/v?user=a&password=pw&c=1", "http://h/v?user=a&password=***&c=1"),
        ("http://h/v?pwd=secret", "http://h/v?pwd=***"),
    ],
)
def test_masked(text: str, masked: str) -> None:
    assert mask_passwords(text) == masked
    assert mask_passwords(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "rtsp://user@host/s",
        "rtsp://host:554/s@2x",
        "udp://192.168.0.2:7502",
        "file:/data/a@b.mp4",
        "operator: someone@example.org",
        "session:/x#lidar",
        "",
    ],
)
def test_left_alone(text: str) -> None:
    assert mask_passwords(text) == text


words = st.text("abcXYZ019!$%*()_+=~.,-", min_size=1, max_size=12)


@given(words, words, st.sampled_from(["", "/path", ":554/a?b=c"]))
def test_no_password_survives(user: str, password: str, tail: str) -> None:
    masked = mask_passwords(f"open rtsp://{user}:{password}!secret@host{tail} failed")
    assert "!secret" not in masked
    assert masked.endswith(f"@host{tail} failed")


def test_long_texts_take_no_time() -> None:
    for text in ("a" * 200_000, "a://" * 50_000, "a://b/" * 30_000, "@" * 200_000):
        assert mask_passwords(text) == text


def test_a_value_may_hold_what_ends_an_address_in_a_text() -> None:
    assert mask_value("rtsp://user:it's my@host/s") == "rtsp://user:***@host/s"
    assert mask_value("see rtsp://u:pw@h, ask 'me@x'") == "see rtsp://u:***@h, ask 'me@x'"
    assert mask_value("http://h/v?token=abc") == "http://h/v?token=***"


SECRET = "Zx9"  # stands in no address but as a secret
NAMES: tuple[str, ...] = ("pass", "passwd", "password", "passphrase", "pwd", "token", "secret")
NAMES += ("auth", "apikey", "api_key", "api-key", "access_token", "user-password", "X-Amz-Token")
CASES = (str.lower, str.upper, str.title, str.swapcase)


@pytest.mark.parametrize("name", NAMES)
def test_every_spelling_of_a_parameter(name: str) -> None:
    """Only the secret is gone: what is around it says which camera it was."""
    befores = ("?", "?a=1&", "?a=1;", "?a=1,", ";", "?a&")
    behinds = ("", "&b=2", ";b=2", ",b=2", "#b", "&b", " b", '" b', "; b=2")
    for case, before, behind in itertools.product(CASES, befores, behinds):
        text = f"open http://10.0.0.5:80/v{before}{case(name)}={SECRET}{behind}"
        assert mask_passwords(text) == text.replace(SECRET, "***")


@pytest.mark.parametrize(
    "secret", ["Z;x", "Z,x", "Z;;x", "Z=x", "Z@x/", "Z%3Bx", "Z$!*()x", "Z;x;"]
)
def test_a_secret_may_hold_what_should_have_been_escaped(secret: str) -> None:
    assert mask_passwords(f"http://h/v?token={secret}&b=2") == "http://h/v?token=***&b=2"


def test_the_second_secret_of_a_text_is_masked_as_the_first() -> None:
    text = (
        f"http://a:{SECRET}@h/?token={SECRET}&b=1;pwd={SECRET}, rtsp://c:{SECRET}@h;auth={SECRET}"
    )
    for several in (text, f"{text} {text}", f"{text}\n{text}"):
        assert SECRET not in mask_passwords(several)
        assert mask_passwords(several).count("***") == several.count(SECRET)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "header",
    [
        "Authorization: Basic Zx9=",
        "Authorization:Bearer Zx9.a-b_c",
        'Proxy-Authorization: Digest username="u", response="Zx9"',
        "Cookie: a=1; session=Zx9",
        "Set-Cookie: session=Zx9; HttpOnly",
        "X-Api-Key: Zx9",
        "X-Auth-Token:\tZx9",
        "{'Authorization': 'Basic Zx9'}",
        '{"cookie":"Zx9"}',
    ],
)
def test_a_header_that_carries_a_secret(case: Callable[[str], str], header: str) -> None:
    name, colon, value = header.partition(":")
    masked = mask_passwords(f"> GET /v\n> {case(name)}{colon}{value}\n> Host: h")
    assert "Zx9" not in masked
    assert masked.startswith(f"> GET /v\n> {case(name)}:")
    assert masked.endswith("***\n> Host: h")


@pytest.mark.parametrize(
    "text",
    ["the camera asks for authorization", "Cookie:", "bypass", "http://h/v?tokens=3&passage=2"],
)
def test_words_like_a_secrets_name_are_left_alone(text: str) -> None:
    assert mask_passwords(text) == text


@pytest.mark.parametrize("scheme", ["rtsp://", "HTTP://", "rtsps:", "custom+x://", "tcp:", "SRT:"])
def test_every_form_of_user_and_password(scheme: str) -> None:
    users = ("u", "", "a%40b", "me@site")
    passwords = ("Zx9", "Zx9@", "Zx9:a", "/Zx9", "Zx9#", "?Zx9", "%5AZx9", "a@b:c/Zx9")
    hosts = ("h", "10.0.0.5:554/s", "[fe80::1%25eth0]:80/s?x=1", "h?a@b")
    for user, password, host in itertools.product(users, passwords, hosts):
        masked = mask_passwords(f"open {scheme}{user}:{password}@{host} now")
        assert "Zx9" not in masked, (user, password, host)
        assert masked.startswith(f"open {scheme}")
        assert masked.endswith(" now" if "?a@b" in host else f"@{host} now")


def test_an_address_without_a_password_keeps_what_is_behind_its_host() -> None:
    for text in (
        "http://[fe80::1]:80/a@2x",
        "http://h:80/a@2x",
        "rtsp://u@h:554/a@2x",
        "srt:h/a@b",
    ):
        assert mask_passwords(text) == text


@pytest.mark.parametrize("secret", ["a b", "it's", 'a"b', "a<b>", "a b;c"])
def test_a_value_is_masked_to_its_end(secret: str) -> None:
    assert mask_value(f"http://h/v?token={secret}&b=2") == "http://h/v?token=***&b=2"
    assert mask_value(f"rtsp://u:{secret}@h/s") == "rtsp://u:***@h/s"


SECRETS = ["http://u:Zx9@h/v", "http://h/v;token=Zx9", "rtsp:u:Zx9@h", "http://h/v?a=1&PWD=Zx9",
           "http://h/v?a=1;pwd=Zx9", "Cookie: Zx9"]  # fmt: skip
QUOTED: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "single": lambda text: "'" + text.replace("'", "''") + "'",
    "double": json.dumps,
    "escaped": lambda text: '"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"',
    "anchor": lambda text: f"&here {json.dumps(text)}",
    "tag": lambda text: f"!!str '{text}'",
}
PLACES = {
    "block": "a: {0}\nb: [1, {{c: 2}}]\n",
    "flow": "{{a: {0},b: [1,{{c: 2}}]}}\n",
    "flow, last": "{{b: [1, {{c: 2}}], a: {0}}}\n",
    "list": "a:\n- {0}\n- {0}\nb: 1\n",
    "flow list": "a: [{0},{0}, 3]\nb: 1\n",
    "comment": "a: 1 # {0}\n# {0}\nb: {{c: 2}} # {0}\n",
    "key": "{0} : 1\nb: 2\n",
}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("quoted", QUOTED)
@pytest.mark.parametrize("place", PLACES)
def test_a_config_keeps_all_but_its_secrets(secret: str, quoted: str, place: str) -> None:
    """Its copy in a session is the same YAML with the same values, however they are written."""
    spelled = QUOTED[quoted](secret)
    text = PLACES[place].format(spelled)
    if quoted == "anchor" and text.count("&here") > 1:
        text = text.replace(spelled, "*here").replace("*here", spelled, 1)
    if quoted == "plain" and _is_no_plain_value(secret, place):
        return
    if place == "comment" and quoted == "escaped":
        return  # YAML's escapes are no writing for people
    document = parse_yaml(text, Path("rig.yaml"))
    assert "Zx9" not in document.masked_text
    again = parse_yaml(document.masked_text, Path("rig.yaml"))
    assert again.values == _masked(document.values)


def _is_no_plain_value(secret: str, place: str) -> bool:
    return place != "comment" and (": " in secret or ("?" in secret and "flow" in place))


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {_masked(key): _masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return value.replace("Zx9", "***") if isinstance(value, str) else value


@pytest.mark.parametrize("style", ["|", ">", "|-", ">+", "| # see http://u:Zx9@h"])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_a_text_of_several_lines(style: str, secret: str) -> None:
    text = f"a: {style}\n  one\n  {secret}\nb: [1]\n"
    document = parse_yaml(text, Path("rig.yaml"))
    assert "Zx9" not in document.masked_text
    again = parse_yaml(document.masked_text, Path("rig.yaml"))
    assert again.values == _masked(document.values)
