"""``python -m tests.mutants.sample SESSION``: reduce a session of cosmic-ray to a random sample.

Lines are drawn at random; of each line one kind of defect, and of that kind one.  Left out is what
no test can notice: annotations, whose unions cosmic-ray takes for arithmetic, constants that are
only tuned (``_TIMEOUT_S = 5.0``), and large numbers off by one.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

_TUNED = re.compile(r"_?[A-Z0-9_]+_(S|MS|BYTES|MB|TIMEOUT|INTERVAL|SIZE)\b.* = ")


_LARGE = 64  # a number beyond it is a size or a unit, where one more makes no difference


class Mutation(Protocol):
    """One defect, as cosmic-ray describes it."""

    @property
    def module_path(self) -> Path:
        """The module, relative to the tree."""

    @property
    def operator_name(self) -> str:
        """``core/ReplaceBinaryOperator_Add_Sub``."""

    @property
    def start_pos(self) -> tuple[int, int]:
        """Line, from 1, and column."""


Drawn = TypeVar("Drawn", bound=Mutation)


def draw(
    mutations: Iterable[Drawn], read: Callable[[Path], str], count: int, seed: int
) -> list[Drawn]:
    """Draw ``count`` defects, each of another line, or all where there are fewer."""
    lines: dict[tuple[Path, int], list[Drawn]] = {}
    left_out: dict[Path, set[int | tuple[int, int]]] = {}
    for mutation in mutations:
        path, at = mutation.module_path, mutation.start_pos
        if path not in left_out:
            left_out[path] = set(_find_unnoticed(read(path)))
        large = at in left_out[path] and mutation.operator_name == "core/NumberReplacer"
        if not large and at[0] not in left_out[path]:
            lines.setdefault((path, at[0]), []).append(mutation)
    places = sorted(lines)
    chance = random.Random(seed)
    drawn = []
    for place in chance.sample(places, min(count, len(places))):
        kind = chance.choice(sorted({_find_kind(m) for m in lines[place]}))
        drawn.append(chance.choice([m for m in lines[place] if _find_kind(m) == kind]))
    return drawn


def _find_kind(mutation: Mutation) -> str:
    return mutation.operator_name.partition("_")[0]


def _find_unnoticed(source: str) -> Iterator[int | tuple[int, int]]:
    """Find the lines of annotations and tuned constants, and the places of large numbers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from range(node.lineno, node.body[0].lineno)
        elif isinstance(node, ast.AnnAssign):
            yield from range(node.lineno, (node.annotation.end_lineno or node.lineno) + 1)
        elif isinstance(node, ast.Constant) and _is_large(node.value):
            yield node.lineno, node.col_offset
    for number, line in enumerate(source.splitlines(), 1):
        if _TUNED.match(line.strip()):
            yield number


def _is_large(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) > _LARGE


def main(arguments: list[str] | None = None) -> int:
    """Keep only the sample in a session."""
    from cosmic_ray.work_db import use_db

    parser = argparse.ArgumentParser(prog="python -m tests.mutants.sample", description=__doc__)
    parser.add_argument("session")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    args = parser.parse_args(arguments)
    with use_db(args.session) as session:
        items = list(session.work_items)
        by_mutation = {id(item.mutations[0]): item for item in items}
        mutations = [item.mutations[0] for item in items]
        drawn = draw(mutations, Path.read_text, args.count, args.seed)
        session.clear()
        session.add_work_items(by_mutation[id(mutation)] for mutation in drawn)
    print(f"seed {args.seed}: {len(drawn)} of {len(items)} defects")
    return 0


if __name__ == "__main__":
    sys.exit(main())
