"""Makes docs/reading.ipynb from docs/reading.md: ``make notebook``.

A block of Python becomes cells of code without prompts and outputs; the text between becomes cells
of Markdown (nbformat 4.5, "The Notebook file format").  Pictures of plots are left out: the cells
draw them.
"""

from __future__ import annotations

import doctest
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
GUIDE = FOLDER / "reading.md"
NOTEBOOK = FOLDER / "reading.ipynb"
_BLOCK = re.compile(r"^```python\n(>>>.*?)^```\n", re.DOTALL | re.MULTILINE)
_PLOT = re.compile(r"^!\[[^\]]*\]\(pictures/reading-[^)]*\)\n", re.MULTILINE)


def main() -> int:
    """Write the notebook."""
    NOTEBOOK.write_text(notebook(GUIDE.read_text()))
    return 0


def notebook(guide: str) -> str:
    """Return the notebook's JSON.

    Args:
        guide: Markdown, whose examples have the prompts of the interactive interpreter.
    """
    cells: list[dict[str, Any]] = []
    for number, text in enumerate(_BLOCK.split(_PLOT.sub("", guide))):
        if number % 2:
            for code in _parts(text):
                extra: dict[str, Any] = {"execution_count": None, "outputs": []}
                cells.append({"cell_type": "code", **extra, **_cell(len(cells), code)})
        elif text.strip():
            cells.append({"cell_type": "markdown", **_cell(len(cells), text)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    values = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _parts(text: str) -> Iterator[str]:
    """Split a block's code where a value is shown: a notebook shows the last value of a cell."""
    part = ""
    for example in doctest.DocTestParser().get_examples(text):
        part += example.source
        if example.want:
            yield part
            part = ""
    if part:
        yield part


def _cell(number: int, text: str) -> dict[str, Any]:
    lines = re.sub(r"\n{3,}", "\n\n", text.strip()).splitlines(keepends=True)
    return {"id": f"cell-{number:02d}", "metadata": {}, "source": lines}


if __name__ == "__main__":
    sys.exit(main())
