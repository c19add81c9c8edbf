"""docs/commands.md shows every verb with all its arguments."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from recorder.cli import VERBS, build_parser

COMMANDS = Path(__file__).resolve().parents[1] / "docs/commands.md"
EVERYWHERE = {"-h", "--help", "--format"}
"""The options that the page explains once for all verbs."""


def documented(verb: str) -> str:
    """The first cells of the table's rows that name a verb."""
    rows = re.findall(r"^\| (.*?) \| ", COMMANDS.read_text(), re.MULTILINE)
    return " ".join(cell for cell in rows if re.search(rf"`{verb}\b", cell))


@pytest.mark.parametrize("verb", [name for name, _, _ in VERBS])
def test_every_option_of_a_verb_is_documented(verb: str) -> None:
    parser = build_parser(verb)
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    options = {o for action in verbs.choices[verb]._actions for o in action.option_strings}
    listed = set(re.findall(r"--[a-z-]+", documented(verb)))
    assert options - EVERYWHERE <= listed, f"missing in docs/commands.md: {options - listed}"
    assert listed <= options
