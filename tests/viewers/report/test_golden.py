"""Reports are element by element what was looked at and written down."""

from __future__ import annotations

from difflib import unified_diff
from itertools import islice
from pathlib import Path

import pytest

from recorder.viewers.report import write_report
from tests.viewers.report.golden import FOLDER, SESSIONS, outline


@pytest.mark.parametrize("name", SESSIONS)
def test_a_report_is_as_it_was_looked_at(name: str, tmp_path: Path) -> None:
    made = outline(write_report(SESSIONS[name](tmp_path / "rig"))).splitlines()
    known = (FOLDER / f"{name}.html").read_text().splitlines()
    changes = list(islice(unified_diff(known, made, "golden", "made", lineterm="", n=0), 40))
    assert not changes, "\n".join(line[:300] for line in changes)
