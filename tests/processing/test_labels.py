"""Numbers of labels."""

from __future__ import annotations

import json

import pytest

from recorder.contract.errors import FormatError
from recorder.processing.labels import numbers


def test_numbers_are_whole_or_not() -> None:
    label = json.loads('{"at": [1, -2.5, 1e300, 0]}')
    assert numbers(label, "at", 4, "here") == (1.0, -2.5, 1e300, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "[1, 2, 3, 4]",
        "[1, 2, true]",
        "[1, 2, null]",
        '[1, 2, "3"]',
        "[1, 2, [3]]",
        "[1, 2, NaN]",
        "[1, 2, -Infinity]",
        f"[1, 2, 1{'0' * 400}]",
        '{"0": 1, "1": 2, "2": 3}',
        '"abc"',
        "null",
    ],
)
def test_what_is_no_list_of_finite_numbers_is_refused(text: str) -> None:
    label = json.loads(f'{{"at": {text}}}')
    with pytest.raises(FormatError, match=r"file:3: at: needs 3 numbers, not "):
        numbers(label, "at", 3, "file:3")


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(FormatError, match="at: needs 3 numbers, not None"):
        numbers({}, "at", 3, "file:3")
