"""Words that docstrings, documents, help texts and messages must not have.

``python -m tests.wording`` prints each place; ``make lint`` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WORDS: Final = re.compile(
    r"\b(nobody('s)?|anew|so manieth|told|oddly|oddities|oddity|let go|lets go|of use|whoever"
    r"|whence|thereof|be gone on with|is of no \w+)\b",
    re.IGNORECASE,
)
"""Words of a dialect: write the field's words instead."""
_CODE: Final = ("recorder", "drivers", "benchmarks")
_DOCUMENTS: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md")


def find_words(project: Path) -> Iterator[str]:
    """Yield ``FILE:LINE: WORD`` for each forbidden word of the project."""
    for pattern in _DOCUMENTS:
        for path in sorted(project.glob(pattern)):
            for number, text in enumerate(path.read_text().splitlines(), 1):
                for found in WORDS.finditer(text):
                    yield f"{path.relative_to(project)}:{number}: {found[0]!r}"
    for folder in _CODE:
        for path in sorted((project / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for found in WORDS.finditer(node.value):
                        line = node.lineno + node.value.count("\n", 0, found.start())
                        yield f"{path.relative_to(project)}:{line}: {found[0]!r}"


if __name__ == "__main__":
    places = list(find_words(Path(__file__).parents[1]))
    print("\n".join(places) or "no forbidden word")
    sys.exit(bool(places))
