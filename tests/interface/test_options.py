"""Options change on purpose only: their types, defaults, bounds and choices are listed."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.interface.options import lines

LISTED = Path(__file__).with_name("options.txt")


def test_the_options_are_those_that_are_listed() -> None:
    for package in ("mcap", "numcodecs", "pyarrow"):
        pytest.importorskip(package, reason=f"needs {package} (the extra `archives`)")
    changes = difflib.unified_diff(LISTED.read_text().splitlines(), lines(), lineterm="", n=0)
    assert not list(changes), (
        "options have changed; if that was meant, run "
        f"`python -m tests.interface.options > tests/interface/{LISTED.name}`"
    )
