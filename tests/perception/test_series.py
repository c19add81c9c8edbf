"""The numbers that are plotted, and their names."""

from __future__ import annotations

import pytest

from recorder.codecs.streams import ChannelSpec
from recorder.perception.stream_contents import value_names


@pytest.mark.parametrize(
    ("shape", "description", "names"),
    [
        ((), "temperature", ["value"]),
        ((1,), "of one: only", ["value"]),
        ((2,), "angles: roll, pitch; to the ground", ["roll", "pitch"]),
        ((2,), "angles", ["0", "1"]),
        ((3,), "rate of turn", ["x", "y", "z"]),
        ((3,), "position: north, east, down", ["north", "east", "down"]),
        ((3,), "position: north, east", ["x", "y", "z"]),
        ((4,), "orientation", ["0", "1", "2", "3"]),
    ],
)
def test_values_have_the_names_that_are_listed(
    shape: tuple[int, ...], description: str, names: list[str]
) -> None:
    assert value_names(ChannelSpec("value", "raw", "f4", shape, description)) == names
