"""A sample by its seed, without what no test can notice, and the tests nearest to a module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.nearest_tests import find_nearest
from tests.mutants.sample import draw

SOURCE = """
_TIMEOUT_S = 5.0
SYNC = 0x1234

def f(x: int | None,
      y: float | None = None) -> int:
    return x + 1
    return x * 1000
"""


@dataclass(frozen=True)
class Spec:
    module_path: Path
    operator_name: str
    start_pos: tuple[int, int]


def _spec(line: int, operator: str, column: int = 0) -> Spec:
    return Spec(Path("m.py"), f"core/{operator}", (line, column))


def test_what_no_test_can_notice_is_left_out() -> None:
    specs = [_spec(n, "NumberReplacer") for n in (2, 5, 6, 7)]
    specs += [_spec(8, "NumberReplacer", 15), _spec(8, "AddNot", 15)]
    drawn = draw(specs, lambda _: SOURCE, 10, 1)
    assert sorted((spec.start_pos[0], spec.operator_name) for spec in drawn) == [
        (7, "core/NumberReplacer"),
        (8, "core/AddNot"),
    ]


def test_one_defect_a_line_and_the_same_by_the_same_seed() -> None:
    operators = ["ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Add_Mul", "AddNot"]
    specs = [_spec(n, o) for n in range(1, 201) for o in operators]
    source = "x = 1\n" * 200
    drawn = draw(specs, lambda _: source, 100, 7)
    assert len({spec.start_pos for spec in drawn}) == 100
    assert drawn == draw(specs, lambda _: source, 100, 7)
    assert drawn != draw(specs, lambda _: source, 100, 8)
    # Two replacements of one operator count no more than one of a condition.
    drawn = draw(specs, lambda _: source, 200, 7)
    assert 80 < sum(spec.operator_name == "core/AddNot" for spec in drawn) < 120


def test_the_nearest_are_the_folder_of_the_name_and_who_imports_it(tmp_path: Path) -> None:
    for file, text in {
        "kit/test_ring.py": "", "kit/test_link.py": "",
        "cli/test_cli.py": "from drivers.kit import link\n", "cli/test_other.py": "import os\n",
        "soak/test_long.py": "import drivers.kit.link\n",
    }.items():  # fmt: skip
        path = tmp_path / "tests" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert find_nearest(tmp_path, "drivers/kit/link.py") == [
        "tests/kit/test_link.py", "tests/kit/test_ring.py", "tests/cli/test_cli.py",
    ]  # fmt: skip
