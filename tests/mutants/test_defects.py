from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.defects import changes_program, find_defects, probes
from tests.mutants.suites import BESIDE, LEFT_OUT, Suites
from tests.mutants.trees import instrumented

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(p for name in ("recorder", "drivers") for p in (ROOT / name).rglob("*.py"))


@pytest.fixture(scope="module")
def suites() -> Suites:
    return Suites(ROOT)


def planted(line: str) -> set[str]:
    """The line with each defect that fits, in a function; as ``kind: line``."""
    source = f"def f(a, b, log):\n    v = 0\n    while a:\n        {line}\n".encode()
    found = [d for d in find_defects("x.py", source) if d.line == 4]
    return {f"{d.kind}: {d.lines(source)[1]}" for d in found if changes_program(d, source)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("v = a < b", {"comparison: v = a <= b", "dropped: pass"}),
        ("v = (a) not in (b)", {"comparison: v = (a) in (b)", "dropped: pass"}),
        ("v = a is not b", {"comparison: v = a is b", "dropped: pass"}),
        ("v = a + b", {"arithmetic: v = a - b", "dropped: pass"}),
        ("v -= b", {"arithmetic: v += b", "dropped: pass"}),
        ("v = -b", {"sign: v = b", "dropped: pass"}),
        ("v = b[-1]", {"sign: v = b[1]", "constant: v = b[-2]", "dropped: pass"}),
        ("v = not b", {"not: v = b", "dropped: pass"}),
        ("v = a and b", {"boolean: v = a or b", "dropped: pass"}),
        ("v = 1000", {"constant: v = 2000", "dropped: pass"}),
        ("v = 0.5", {"constant: v = 1.0", "dropped: pass"}),
        ("v = True", {"constant: v = False", "dropped: pass"}),
        ("a.sync()", {"dropped: pass"}),
        ("v = b.T", {"transpose: v = b", "dropped: pass"}),
        ("v = min(b)", {"twin: v = max(b)", "dropped: pass"}),
        ("v = min(a, b)", {"twin: v = max(a, b)", "dropped: pass"}),  # in either order the same
        ("v = abs(b)", {"unwrapped: v = (b)", "dropped: pass"}),
        ("v = f(a, b)", {"arguments: v = f(b, a)", "dropped: pass"}),
        ("v = f(a, k=b)", {"keyword: v = f(a)", "dropped: pass"}),
        ("f(a, timeout=9)", {"keyword: f(a)", "dropped: pass"}),  # not another number of seconds
        ("f(a, timeout=0)", {"keyword: f(a)", "constant: f(a, timeout=1)", "dropped: pass"}),
        ("v = re.compile(r'[?&;]')", {"pattern: v = re.compile(r'[?&]')", "dropped: pass"}),
        ("return b", {"return: return None"}),
        ("if b: continue", {"condition: if not (b): continue", "dropped: if b: pass"}),
        ("raise b", {"dropped: pass"}),
        ("with a.lock: f", {'lock: with __import__("contextlib").nullcontext(): f'}),
        ("v = b if a else v", {"condition: v = b if not (a) else v", "dropped: pass"}),
    ],
)
def test_the_defects_of_a_line(line: str, expected: set[str]) -> None:
    assert planted(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "'a text, 1 + 1'",
        "w = f'{a + 1:.3f}'",
        "w: Literal[3] = b",
        "assert a < 3",
        "log.info(a + 1)",
        "f(help='one' + a)",
    ],
)
def test_what_only_a_reader_sees_is_left_alone(line: str) -> None:
    assert planted(line) <= {"dropped: pass"}


def test_messages_types_and_tuning_are_left_alone() -> None:
    source = b'''"""1 + 1"""
from __future__ import annotations
if TYPE_CHECKING:
    from x import y
_WAIT_S = 3.0
class A(Struct, frozen=True):
    def __repr__(self):
        return str(1 + 1)
    def f(self, a: dict[int, Literal[1]]) -> X[1]:
        """2 < 3"""
        raise ValueError(f(1, 2))
'''
    assert [(d.line, d.text) for d in find_defects("x.py", source)] == [(11, "pass")]


@pytest.mark.parametrize("path", MODULES[::9], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_probes_change_no_line(path: Path) -> None:
    source = path.read_bytes()
    defects = find_defects(path.name, source)
    result = instrumented(source, probes(enumerate(defects)))
    compile(result, path.name, "exec")
    assert len(result.splitlines()) == len(source.splitlines())


def test_probes_count_what_is_evaluated() -> None:
    source = b'"""A module."""\ndef f(a):\n    if a > 1 and a < 9:\n        a += 1\n    return -a\n'
    defects = find_defects("x.py", source)
    hits: set[int] = set()
    text = instrumented(source, probes(enumerate(defects))).decode()
    scope: dict[str, object] = {"mutant_hit": hits.add}
    exec(text.replace("; from mutant_hits import mutant_hit", ""), scope)  # noqa: S102
    f = scope["f"]
    assert callable(f)
    assert f(0) == 0
    seen = {(d.line, d.text) for n, d in enumerate(defects) if n in hits}
    assert (3, ">=") in seen
    assert (3, "<=") not in seen
    assert (4, "pass") not in seen
    assert (5, "") in seen


def test_every_module_has_a_mirror(suites: Suites) -> None:
    alone = [m for m in (p.relative_to(ROOT).as_posix() for p in MODULES) if not suites.of(m)]
    assert alone == []


def test_the_map_names_what_is_there() -> None:
    names = [p.relative_to(ROOT).as_posix() for p in MODULES]
    assert [p for p in BESIDE if not any(n.startswith(p) for n in names)] == []
    places = {place for found in BESIDE.values() for place in found} | set(LEFT_OUT)
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("drivers/kit/runner.py", "tests/drivers/kit/test_runner.py"),  # by its folder
        ("drivers/kit/udp_socket.py", "tests/drivers/udp/test_driver.py"),  # as the map says
        ("recorder/archives/vrs/packer.py", "tests/archives/vrs/test_packer.py"),
        ("recorder/archives/vrs/packer.py", "tests/archives/vrs/test_contract.py"),
        ("recorder/perception/poses.py", "tests/archives/ncore/test_packer.py"),
        ("drivers/mmwave/fmcw.py", "tests/perception/test_radar.py"),  # since it imports it
        ("recorder/codecs/xz.py", "tests/codecs/test_xz_blocks.py"),
        ("recorder/bus/control/client.py", "tests/recording/daemon/test_control.py"),
        ("recorder/archives/export/job.py", "tests/cli/test_export.py"),
        (
            "recorder/cli/clip.py",
            "tests/recording/clip/test_clip.py",
        ),  # a verb, by the tests of its package
        ("recorder/cli/events.py", "tests/recording/triggers/test_evaluation.py"),
        ("recorder/cli/finalize_on_cluster.py", "tests/fleet/test_cluster.py"),
        ("recorder/cli/verify.py", "tests/integrity/test_verify.py"),
    ],
)
def test_a_mirror_is_found(suites: Suites, module: str, test: str) -> None:
    assert test in suites.of(module)
