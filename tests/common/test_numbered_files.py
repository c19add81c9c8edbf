"""Patterns of numbered files, against printf."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.common.numbered_files import find_numbered_files


@pytest.mark.parametrize("pattern", ["img_%04d.jpg", "%d", "%%d_%02d%%.png", "a.b(%03d)+.jpg"])
def test_a_pattern_stands_for_the_names_that_printf_makes(tmp_path: Path, pattern: str) -> None:
    numbers = [0, 7, 41, 999, 12345]
    for number in numbers:
        (tmp_path / (pattern % number)).touch()
    for other in ("img_7.jpg", "img_00041.jpg", "img_-001.jpg", "img_0007.jpg.part", "x7", "07"):
        (tmp_path / other).touch()
    found = find_numbered_files(tmp_path / pattern)
    assert [number for number, _ in found] == numbers
    assert [path.name for _, path in found] == [pattern % number for number in numbers]


@pytest.mark.parametrize(
    "pattern", ["img.jpg", "%d_%d.jpg", "%s_%d", "100%_%d", "%5d", "%-4d", "%%", "none_%d.jpg"]
)
def test_what_is_no_pattern_stands_for_nothing(tmp_path: Path, pattern: str) -> None:
    for name in ("img.jpg", "1_2.jpg", "a_1", "100%_1", "    1", "1", "%"):
        (tmp_path / name).touch()
    assert find_numbered_files(tmp_path / pattern) == []
    assert find_numbered_files(tmp_path / "no_folder" / "%d") == []
