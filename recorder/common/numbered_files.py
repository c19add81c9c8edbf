"""Files of a folder with numbers in their names: ``img_%04d.jpg``."""

from __future__ import annotations

import re
from pathlib import Path


def find_numbered_files(pattern: Path) -> list[tuple[int, Path]]:
    """Return the files that match a pattern, by ascending number.

    Args:
        pattern: its name has one ``%d`` or ``%0Nd``, as printf has them, and ``%%`` for a ``%``.

    Returns:
        number and path of each file; empty if the name is not a pattern, or no file matches.
    """
    parts = re.split(r"(%%|%(?:0\d{1,2})?d)", pattern.name)
    numbers = [part for part in parts[1::2] if part != "%%"]
    if len(numbers) != 1 or any("%" in part for part in parts[::2]):
        return []
    width = int(numbers[0][1:-1] or 1)
    at = parts.index(numbers[0])
    before, behind = ("".join(some).replace("%%", "%") for some in (parts[:at], parts[at + 1 :]))
    named = re.compile(rf"{re.escape(before)}(0*[0-9]{{{width},18}}){re.escape(behind)}")
    files = []
    try:
        for path in pattern.parent.iterdir():
            match = named.fullmatch(path.name)
            if match is not None and f"{int(match[1]):0{width}d}" == match[1]:
                files.append((int(match[1]), path))
    except OSError:
        return []
    return sorted(files)
