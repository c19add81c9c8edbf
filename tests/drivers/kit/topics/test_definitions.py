"""Definitions of types by rosbags' store, as a second source."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from drivers.kit.topics import definitions
from drivers.kit.topics.definitions import find_definition, hash_definition
from recorder.common.errors import FormatError

PATH = "nav_msgs/msg/Path"
DASHING = get_typestore(Stores.ROS2_DASHING)


@pytest.fixture
def no_rosbags(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "rosbags.typesys", None)
    definitions._load_stores.cache_clear()
    yield
    definitions._load_stores.cache_clear()


def test_a_definition_is_found_whole() -> None:
    text = find_definition(PATH, "")
    assert text is not None and text.startswith("std_msgs/Header header\n")
    assert "MSG: geometry_msgs/Quaternion\n" in text
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(text, PATH))
    assert find_definition(PATH, store.hash_rihs01(PATH)) == text


def test_a_definition_of_an_older_distribution_is_found_by_its_hash() -> None:
    changed = [
        name
        for name in DASHING.types
        if (newest := find_definition(name, "")) is not None
        and DASHING.hash_rihs01(name) != hash_definition(name, newest)
    ]
    assert changed
    for name in changed:
        known = DASHING.hash_rihs01(name)
        text = find_definition(name, known)
        assert text is not None and hash_definition(name, text) == known


def test_what_no_distribution_has_is_not_made_up() -> None:
    assert find_definition("my_robot/msg/State", "") is None
    assert find_definition(PATH, "RIHS01_" + 64 * "0") is None


def test_a_text_that_is_no_definition_is_refused() -> None:
    with pytest.raises(FormatError, match="a/msg/B: the definition cannot be read"):
        hash_definition("a/msg/B", "uint8[ x")


def test_rosbags_is_not_needed(no_rosbags: None) -> None:
    assert find_definition(PATH, "") is None
    assert hash_definition(PATH, "uint8 x") == ""
