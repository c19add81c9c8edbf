"""What a fixed session is packed, exported and answered as has not changed.

The digests were made with certain versions of libraries on a certain processor, which decide the
bytes of JPEGs and of computed values; where these are others, ``python -m tests.baseline --compare
REV`` tells what differs.  A change that is meant: ``python -m tests.baseline --renew``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.cli import main
from tests.baseline.__main__ import EXPECTED, PROJECT, compare
from tests.baseline.outputs import GOLDEN, PARTS, digests, made_with
from tests.baseline.recordings import Run


class QuickRun(Run):
    """Runs the verbs in this process."""

    capsys: pytest.CaptureFixture[str]

    def recorder(self, *argv: str, codes: tuple[int, ...] = (0,)) -> str:
        assert main(list(argv)) in codes
        return self.capsys.readouterr().out


@pytest.mark.campaign(weight=10)
def test_no_output_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected: dict[str, Any] = json.loads(EXPECTED.read_text())
    if expected["made_with"] != made_with():
        pytest.skip("the digests are those of other versions of libraries, or of another processor")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    run = QuickRun(PROJECT, tmp_path)
    run.capsys = capsys
    for part in GOLDEN:
        PARTS[part](run)
    found = digests(tmp_path / "kept")
    changed = [
        i for i in sorted(expected["digests"] | found) if expected["digests"].get(i) != found.get(i)
    ]
    assert changed == [], "look at them by `python -m tests.baseline --compare REV`"


def test_a_difference_is_shown_at_its_place(tmp_path: Path) -> None:
    for name, lines, data in (
        ("before", "a\nb\n", b"\xff12345"),
        ("after", "a\nc\n", b"\xff12x45"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(lines)
        (tmp_path / name / "data").write_bytes(data)
        (tmp_path / name / name).touch()
    assert list(compare(tmp_path / "before", tmp_path / "after")) == [
        "after: new",
        "before: missing now",
        "data: differs\n  byte 3 of 6, 6\n  - b'\\xff12345'\n  + b'\\xff12x45'",
        "text: differs\n  line 2\n  - b\n  + c",
    ]
