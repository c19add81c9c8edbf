"""Passwords in addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.contract.masking import mask_passwords, mask_value


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
