"""Events as sentences: none has JSON, the name of a key, or a number without its meaning."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.session.events import format_event, format_event_line, make_event

S = 1_000_000_000


@pytest.mark.parametrize(
    ("kind", "cause", "more", "text"),
    [
        ("lost", "network", {"count": 3}, "lost 3 samples (network)"),
        ("lost", "", {"count": 1}, "lost 1 sample"),
        ("lost", "hung", {"count": 5, "duration_ns": S // 2}, "lost 5 samples in 500 ms (hung)"),
        ("lost", "device", {"estimate": 40}, "lost samples, about 40 (device)"),
        ("lost", "absent", {"duration_ns": 2 * S}, "lost samples in 2.0 s, not counted (absent)"),
        ("lost", "", {"text": "lost 7 samples (refused)"}, "lost 7 samples (refused)"),
        (
            *("rate", "low", {"rate_hz": 4.528, "floor_hz": 5.0, "expected_hz": 10.0}),
            "4.53 Hz is below the minimum (5 Hz)",
        ),
        (
            *("rate", "restored", {"rate_hz": 9.8, "floor_hz": 5.0, "agreed": False}),
            "9.8 Hz is again above half of what is expected (5 Hz)",
        ),
        (
            *("rate", "low", {"rate_hz": 0, "floor_hz": 95, "agreed": True}),
            "0 Hz is below min_rate (95 Hz)",
        ),
        (
            "incomplete",
            "network",
            {"count": 22, "parts": 353},
            "22 samples lack 353 parts (network)",
        ),
        ("incomplete", "", {"count": 1, "parts": 1}, "1 sample lacks 1 part"),
        ("clock", "step", {"step_ns": 3 * S}, "stepped by +3.000 s"),
        (
            *("clock", "state", {"detail": "not synchronized", "kernel": {"offset_ns": 4}}),
            "not synchronized",
        ),
        ("device", "lost", {"detail": "cam: no answer"}, "no answer"),
        ("device", "present", {"detail": ""}, "the device is present"),
        ("disk", "restored", {}, "commits again"),
        ("end", "stop", {"detail": None}, "the session ended by `recorder stop`"),
        ("end", "signal", {"detail": "SIGINT"}, "the session ended by a signal: SIGINT"),
        ("session", "began", {"text": "tour"}, "tour began"),
        ("session", "closed", {"text": "tour"}, "tour was closed"),
        ("mark", "x", {"text": "pothole"}, "pothole"),
        (
            *("recovery", "killed", {"cut_bytes": 40}),
            "repaired after the recorder was killed: cut bytes 40",
        ),
        (
            *("new", "kind", {"a_b": {"c": True, "d": [1.50, None]}, "e": None}),
            "new kind: a b c yes, a b d 1 1.5",
        ),
    ],
)
def test_an_event_is_a_sentence(kind: str, cause: str, more: dict[str, Any], text: str) -> None:
    event = make_event(kind, 0, "cam", cause, **more)
    assert format_event(event) == text
    assert format_event_line(event) == f"cam: {text}"


def test_an_event_of_no_stream_is_about_its_kind() -> None:
    assert format_event_line(make_event("disk", 0, cause="restored")) == "disk: commits again"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab "),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a_b"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["rate_hz", "step_ns", "x", "floor_hz"]), _VALUES))
def test_an_event_of_any_values_has_no_json(more: dict[str, Any]) -> None:
    for kind in ("rate", "clock", "lost", "strange"):
        text = format_event(make_event(kind, 0, "cam", "low", **more))
        assert text and not set(text) & set("{}[]\"'_")
