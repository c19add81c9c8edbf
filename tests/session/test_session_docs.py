"""The examples of docs/reading.md work as they are printed."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.session.build import full_session

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "reading.md"


def test_examples_of_the_reading_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_session(tmp_path / "sessions" / "rig-1", 1.0)
    monkeypatch.chdir(tmp_path)
    # A fence ends an example's output, where doctest wants an empty line.
    text = GUIDE.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) > 20
    said: list[str] = []
    result = doctest.DocTestRunner().run(test, out=said.append)
    assert result.failed == 0, "".join(said)
