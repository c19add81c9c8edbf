"""Option tables: defaults, types, bounds, nesting, and their way over JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.common.errors import ConfigError
from recorder.config.options import (
    TYPES,
    Option,
    OptionReader,
    check_options,
    suggest,
    table_to_wire,
)

TABLE = {
    "fps": Option("float", 30.0, "frames per second [Hz]", minimum=0.5, maximum=240),
    "width": Option("int", 1280, minimum=1),
    "quality": Option("int", 90, minimum=0, maximum=100),
    "compression": Option("str", "lzmaf", choices=("lzmaf", "raw")),
    "metadata": Option("path", None),
    "loop": Option("bool", False),
    "gains": Option("list", [], items="float"),
    "anything": Option("list", []),
    "free": Option("map", {}),
    "radar": Option(
        "map",
        keys={"frames": Option("int", required=True), "rx": Option("list", [0], items="int")},
    ),
}
RADAR = {"radar": {"frames": 1}}


def test_defaults_are_filled_in_at_all_depths() -> None:
    assert check_options(TABLE, RADAR) == {
        "fps": 30.0,
        "width": 1280,
        "quality": 90,
        "compression": "lzmaf",
        "metadata": None,
        "loop": False,
        "gains": [],
        "anything": [],
        "free": {},
        "radar": {"frames": 1, "rx": [0]},
    }


def test_an_absent_mapping_is_an_empty_one() -> None:
    table = {"fps": Option("float", 30.0), "inner": Option("map", keys={"a": Option("int", 4)})}
    assert check_options(table, None) == {"fps": 30.0, "inner": {"a": 4}}
    assert check_options(table, {"inner": None}) == {"fps": 30.0, "inner": {"a": 4}}


def test_null_is_no_value_where_the_caller_allows_it() -> None:
    assert check_options({"fps": Option("float", 30.0)}, {"fps": None}) == {"fps": None}


def test_only_a_path_that_was_written_is_looked_for() -> None:
    table = {"given": Option("path", "/a"), "more": Option("list", [], items="path")}
    reader = OptionReader(lambda key, text: ConfigError(text, key=key), find=lambda _, text: 3)
    assert reader.read(table, {}, "") == {"given": "/a", "more": []}
    assert reader.read(table, {"given": "b", "more": ["c"]}, "") == {"given": 3, "more": [3]}


def test_whole_numbers_become_floats_where_floats_are_wanted() -> None:
    checked = check_options(TABLE, RADAR | {"fps": 25, "gains": [1, 2.5]})
    assert checked["fps"] == 25.0 and type(checked["fps"]) is float
    assert checked["gains"] == [1.0, 2.5] and type(checked["gains"][0]) is float


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        ({"fpz": 1}, "s.fpz", "unknown key (did you mean 'fps'?)"),
        ({"zzzzzz": 1}, "s.zzzzzz", "unknown key"),
        ({"radar": {"frames": 1, "tx": 1}}, "s.radar.tx", "unknown key"),
        ({"radar": {}}, "s.radar.frames", "missing; this key is required"),
        ({"radar": []}, "s.radar", "needs a mapping, not a list ([])"),
        ({"radar": {"frames": None}}, "s.radar.frames", "needs a whole number, not nothing (None)"),
        ({"width": "9"}, "s.width", "needs a whole number, not str ('9')"),
        ({"width": 9.0}, "s.width", "needs a whole number, not float (9.0)"),
        ({"width": True}, "s.width", "needs a whole number, not true or false (True)"),
        ({"fps": False}, "s.fps", "needs a number, not true or false (False)"),
        ({"fps": math.nan}, "s.fps", "needs a number, not float (nan)"),
        ({"fps": math.inf}, "s.fps", "needs a number, not float (inf)"),
        ({"fps": 0.1}, "s.fps", "0.1 is below the minimum of 0.5"),
        ({"quality": -1}, "s.quality", "-1 is below the minimum of 0"),
        ({"quality": 101}, "s.quality", "101 is above the maximum of 100"),
        ({"loop": 1}, "s.loop", "needs true or false, not int (1)"),
        ({"loop": "on"}, "s.loop", "needs true or false, not str ('on')"),
        ({"metadata": 7}, "s.metadata", "needs a path, not int (7)"),
        ({"gains": 1.0}, "s.gains", "needs a list, not float (1.0)"),
        ({"gains": [1, "x"]}, "s.gains[1]", "needs a number, not str ('x')"),
        (
            {"compression": "lzmf"},
            "s.compression",
            "'lzmf' is not one of lzmaf, raw (did you mean 'lzmaf'?)",
        ),
    ],
)
def test_each_error_names_the_key_and_what_is_wrong(
    values: dict[str, Any], key: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_options(TABLE, RADAR | values, "s")
    assert caught.value.key == key
    assert str(caught.value) == f"{key}: {message}"


@pytest.mark.parametrize("values", [[], "text", 3, True])
def test_what_is_no_mapping_is_refused(values: Any) -> None:
    with pytest.raises(ConfigError, match="needs a mapping"):
        check_options(TABLE, values)


def test_the_caller_may_make_the_error() -> None:
    def fail(key: str, message: str) -> Exception:
        return ValueError(f"<{key}> {message}")

    with pytest.raises(ValueError, match="<a> unknown key"):
        check_options({}, {"a": 1}, fail=fail)


def test_suggestions_are_of_near_words_only() -> None:
    assert suggest("camrea", ["camera", "xsens"]) == " (did you mean 'camera'?)"
    assert suggest("qqq", ["camera", "xsens"]) == ""


def test_a_bound_of_zero_survives_the_wire() -> None:
    option = Option("float", None, minimum=0, maximum=0.0)
    again = msgspec.convert(json.loads(json.dumps(option.to_wire())), Option)
    assert (again.minimum, again.maximum) == (0, 0)


def test_a_table_survives_json() -> None:
    wire = json.loads(json.dumps(table_to_wire(TABLE)))
    assert msgspec.convert(wire, dict[str, Option]) == TABLE


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*TABLE, "rx", "frames", "zz"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(nested)
def test_arbitrary_values_are_checked_or_refused_with_a_place(values: Any) -> None:
    try:
        checked = check_options(TABLE, values, "top")
    except ConfigError as error:
        assert error.key.startswith("top")
    else:
        assert set(checked) == set(TABLE)
        assert isinstance(checked["radar"]["frames"], int)
        assert isinstance(checked["fps"], float | None)


@given(st.sampled_from(TYPES), nested)
def test_what_passes_once_passes_again_unchanged(kind: str, value: Any) -> None:
    table = {"x": Option(kind)}
    try:
        once = check_options(table, {"x": value})
    except ConfigError:
        return
    again = check_options(table, once)
    assert repr(again) == repr(once)


def test_words_may_stand_in_place_of_a_number() -> None:
    table = {"packing": Option("float", 0.42, minimum=0, maximum=1, words=("later", "auto"))}
    for value in ("later", "auto", 0.3, 1):
        assert check_options(table, {"packing": value}) == {"packing": value}
    for value, text in (
        ("latr", "'latr' is not a number or later or auto (did you mean 'later'?)"),
        (2, "2 is above the maximum of 1"),
        (True, "needs a number, not true or false (True)"),
    ):
        with pytest.raises(ConfigError) as caught:
            check_options(table, {"packing": value})
        assert text in str(caught.value)
    assert table_to_wire(table)["packing"]["words"] == ("later", "auto")
