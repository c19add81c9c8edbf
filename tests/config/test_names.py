"""Names of sessions and the template that makes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import UsageError
from recorder.config.names import (
    MAX_RENDERED,
    check_name,
    check_template,
    render_name,
    split_part_name,
)

TIME = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "0", "x" * 100, "rig_2024_01_01", "a..b"])
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "session name '': is empty"),
        ("..", "is a path; a session is one folder right below its root"),
        (".", "is a path"),
        ("../x", "is a path"),
        ("/etc", "is a path"),
        ("a\\b", "is a path"),
        ("Fahrt-ü", "holds 'ü'; a name takes the letters A-Z and a-z, digits"),
        ("a b", "holds ' '"),
        ("a\n", r"holds '\\n'"),
        ("a\0", r"holds '\\x00'"),
        ("x" * 101, "is 101 characters long, 100 is the most"),
        ("-rf", "starts with '-', not a letter or digit"),
        (".hidden", "starts with '.'"),
        ("_recorder", "starts with '_'"),
    ],
)
def test_bad_names_are_told_apart(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_name(name)


def test_a_long_name_is_shown_short() -> None:
    with pytest.raises(UsageError) as caught:
        check_name("y" * 5000)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{hostname}_{utc:%Y_%m_%d_%H_%M_%S}", "rig-1_2024_05_06_07_08_09"),
        ("{utc}", "2024_05_06_07_08_09"),
        ("run.{metadata.vehicle}.{utc:%j}", "run.Blue-Van-.127"),
        ("fixed", "fixed"),
        ("{metadata.empty}-{hostname}", "rig-1"),
        ("{metadata.empty}", "session"),
    ],
)
def test_rendering(template: str, name: str) -> None:
    metadata = {"vehicle": "Blue Van!", "empty": ""}
    if template != "{metadata.empty}":
        check_template(template, metadata)
    assert render_name(template, "rig-1", TIME, metadata) == name


def test_another_zone_is_converted() -> None:
    local = TIME.astimezone(timezone(timedelta(hours=9)))
    assert render_name("{utc:%H}", "h", local) == "07"
    assert render_name("{utc:%H}", "h", TIME.replace(tzinfo=None)) == "07"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{host}", r"unknown placeholder \{host\}; there are \{hostname\}"),
        ("{hostname.__class__}", "unknown placeholder"),
        ("{}", r"unknown placeholder \{\}"),
        ("{hostname", "unmatched brace"),
        ("a}b", "unmatched brace"),
        ("{{hostname}}", "unmatched brace"),
        ("{metadata.car}", "names a key that session.metadata does not have"),
        ("{utc:%H:%M}", "a time format is made of strftime's directives"),
        ("{utc:}", "a time format"),
        ("{utc:%c}", "gives 'Tue Dec 31 23:59:59 2024', with ' '"),
        ("{utc:%}", "a time format"),
        ("{utc:%1000000Y}", "a time format"),
        ("a/{hostname}", "is a path"),
        ("ü{hostname}", "holds 'ü'"),
        ("", "is empty"),
        ("x" * 91, "gives names of 91 characters at least; 90 is the most"),
        ("x" * 200, "is 201 characters long|gives names of 200"),
    ],
)
def test_bad_templates(template: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_template(template, {"vehicle": ""})


@given(
    st.lists(
        st.sampled_from(["{hostname}", "{utc}", "{utc:%Y%b}", "{metadata.k}", "a", ".", "_", "{"])
        | st.text(max_size=3),
        max_size=4,
    ).map("".join),
    st.text(max_size=80),
    st.text(max_size=120),
    st.datetimes(min_value=datetime(1970, 1, 1)),
)
def test_a_checked_template_always_renders_a_name(
    template: str, hostname: str, value: str, utc: datetime
) -> None:
    try:
        check_template(template, {"k": value})
    except UsageError:
        return
    name = render_name(template, hostname, utc, {"k": value})
    assert check_name(name) == name
    assert len(name) <= MAX_RENDERED


@pytest.mark.parametrize(
    ("name", "recording", "part"),
    [
        ("drive", "drive", 0),
        ("drive_p001", "drive", 1),
        ("drive_p123456", "drive", 123456),
        ("drive_p002_p003", "drive_p002", 3),
        ("drive_p1", "drive_p1", 0),
        ("drive_p1234567", "drive_p1234567", 0),
        ("drive_p00x", "drive_p00x", 0),
        ("_p001", "_p001", 0),
        ("", "", 0),
    ],
)
def test_the_recording_that_a_part_belongs_to(name: str, recording: str, part: int) -> None:
    assert split_part_name(name) == (recording, part)
