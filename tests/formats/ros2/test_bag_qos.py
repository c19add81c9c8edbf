"""Policies of topics in bags: those that we write, and those that rosbag2 writes."""

from __future__ import annotations

import pytest

from recorder.formats.ros2.bag import OfferedQos, parse_qos, qos

JAZZY = """\
- history: keep_last
  depth: 5
  reliability: best_effort
  durability: transient_local
  deadline: {sec: 9223372036, nsec: 854775807}
"""


@pytest.mark.parametrize("latched", [False, True])
@pytest.mark.parametrize("reliable", [False, True])
def test_policies_that_we_write_are_read(latched: bool, reliable: bool) -> None:
    text = qos(7, latched=latched, reliable=reliable)
    assert parse_qos(text) == OfferedQos(7, reliable, latched)


def test_policies_have_names_since_jazzy() -> None:
    assert parse_qos(JAZZY) == OfferedQos(5, False, True)


def test_several_publishers_offer_what_all_of_them_do() -> None:
    both = qos(3, latched=True) + qos(90, reliable=False)
    assert parse_qos(both) == OfferedQos(90, False, False)


@pytest.mark.parametrize("text", ["", "[]", "{", "7", "- 7", "a: b", "- depth: 0", "- depth: x"])
def test_a_text_without_policies_is_the_default(text: str) -> None:
    assert parse_qos(text) == OfferedQos(10, True, False)
