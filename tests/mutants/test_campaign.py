from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import EQUIVALENT, ROOT, main
from tests.mutants.campaign import Campaign
from tests.mutants.findings import Findings, Request, load_equivalents
from tests.mutants.trees import Outcome, Tree

MODULE = """\
def clip(value, most):
    if value > most:
        return most
    return value


def never():
    return 1 + 1
"""
IN_A_PROCESS = """
import subprocess, sys
import drivers.clip  # which makes it a mirror
def test_clip(tmp_path):
    code = "from drivers.clip import clip; sys = __import__('sys'); sys.exit(clip(3, 2) - 2)"
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, env={}, check=True)
"""
HEAD = "from drivers.clip import clip\n\n"
WEAK = f"{HEAD}def test_clip():\n    assert clip(1, 2) == 1\n"
STRONG = f"{WEAK}    assert clip(3, 2) == 2\n"
COMPARISON = "drivers/clip.py:2"
COUNT = """\
import time
def count(n):
    while n:
        time.sleep(0.001)
        n -= 1
"""
COUNTS = "from drivers.clip import count\n\ndef test_count():\n    count(3)\n"
# What takes a second to load at each start of pytest.
INI = "[pytest]\naddopts = -p no:asyncio -p no:hypothesispytest -p no:jaxtyping -p no:xdist\n"


several = pytest.mark.campaign(weight=5)
"""Tests of several campaigns, or of defects that are tried more than once."""


def plant(folder: Path, test: str, module: str = MODULE) -> Path:
    """A tree of one module and its test."""
    for name, text in {"drivers/clip.py": module, "tests/test_clip.py": test}.items():
        path = folder / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)
    (folder / "tree/pytest.ini").write_text(INI)
    return folder / "tree"


def attempt(request: Request, *, retry: bool = False) -> tuple[dict[str, str], Findings]:
    """How each defect ended, by the line that it made."""
    campaign = Campaign(request, lambda line: None)
    findings = campaign.run(request.root.parent / "findings", retry=retry)
    ended = {}
    for defect in campaign.defects(list(findings.outcomes)):
        line = defect.lines(campaign.source(defect.path))[1]
        ended[line] = findings.outcomes[defect.key].verdict
    return ended, findings


def test_a_weak_suite_shows_a_survivor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = plant(tmp_path, WEAK)
    assert main(["--root", str(root), "--seed", "3", "--jobs", "1", "--only", COMPARISON]) == 1
    out = capsys.readouterr().out
    assert (
        "survivor drivers/clip.py:2 (comparison)\n-   if value > most:\n+   if value >= most:"
        in out
    )
    assert "executed by tests/test_clip.py" in out
    assert "seed 3: 2 of 2 tried: 1 killed, 0 timed out, 1 survived: 50.0% noticed" in out


@several
def test_a_strong_suite_shows_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = MODULE.replace("value > most", "value is most")  # both of whose defects show
    root = plant(tmp_path, f"{HEAD}def test_clip():\n    assert clip(3, 2) == 3\n", module)
    assert main(["--root", str(root), "--seed", "3", "--jobs", "1", "--only", COMPARISON]) == 0
    assert "2 killed, 0 timed out, 0 survived: 100.0%" in capsys.readouterr().out
    assert (root / "drivers/clip.py").read_text() == module


@several
def test_what_a_process_of_the_test_executes_is_counted_and_broken(tmp_path: Path) -> None:
    root = plant(tmp_path, IN_A_PROCESS)
    ended, findings = attempt(Request(root, only=("drivers/clip.py:2", "drivers/clip.py:4")))
    assert ended == {"if value >= most:": "passed", "if not (value > most):": "failed"}
    assert len(findings.unexecuted) == 1  # the last line


@several
def test_a_sample_is_of_lines_that_tests_execute(tmp_path: Path) -> None:
    root = plant(tmp_path, STRONG)
    request = Request(root, seed=1, count=3, jobs=1)
    findings = attempt(request)[1]
    assert sorted(int(key.split(":")[1]) for key in findings.chosen) == [2, 3, 4]
    assert [int(key.split(":")[1]) for key in findings.unexecuted] in ([], [8])
    drawn = Campaign(request, print)
    assert drawn.defects(findings.chosen) == Campaign(request, print).defects(findings.chosen)
    orders = {tuple(Campaign(replace(request, seed=s), print)._by_key) for s in range(9)}
    assert len(orders) > 1


@several
def test_a_defect_that_hangs_is_noticed(tmp_path: Path) -> None:
    root = plant(tmp_path, COUNTS, COUNT)
    request = Request(root, only=("drivers/clip.py:5",), patience_s=0.5)
    assert attempt(request)[0] == dict.fromkeys(["n += 1", "pass", "n -= 2"], "timeout")


@several
def test_a_test_that_fails_now_and_then_kills_nothing(tmp_path: Path) -> None:
    record = tmp_path / "record"
    luck = f"""
import pathlib
def test_luck():
    with pathlib.Path({str(record)!r}).open("a") as file:
        file.write("x")
    assert pathlib.Path({str(record)!r}).stat().st_size != 2  # the first run with a defect
"""
    root = plant(tmp_path, WEAK + luck)
    (tmp_path / "equivalent.yaml").write_text(
        '[{file: drivers/clip.py, line: "if value > most:", mutant: "if not (value > most):",'
        " reason: only one is tried here}]"
    )
    request = Request(root, only=(COMPARISON,), equivalent=tmp_path / "equivalent.yaml")
    ended, findings = attempt(request)
    assert ended == {"if value >= most:": "passed"}
    (outcome,) = findings.outcomes.values()
    assert outcome.failed.startswith("tests/test_clip.py::test_luck failed once")


@several
def test_a_test_that_fails_without_a_defect_kills_nothing(tmp_path: Path) -> None:
    root = plant(tmp_path, WEAK)
    (root / "tests/test_other.py").write_text(
        f"{HEAD}def test_clip():\n    assert clip(9, 9) == 0\n"
    )
    ended, findings = attempt(Request(root, only=(COMPARISON,)))
    assert list(findings.broken) == ["tests/test_other.py"]
    assert ended == {"if value >= most:": "passed", "if not (value > most):": "failed"}


def test_a_file_without_tests_executes_nothing(tmp_path: Path) -> None:
    root = plant(tmp_path, "from drivers.clip import clip\nVALUE = clip(3, 2)\n")
    findings = attempt(Request(root, only=(COMPARISON,)))[1]
    assert (findings.chosen, findings.broken) == ([], {})
    assert len(findings.unexecuted) == 2


@several
def test_a_campaign_that_was_ended_goes_on(tmp_path: Path) -> None:
    root = plant(tmp_path, WEAK)
    request = Request(root, only=(COMPARISON,), jobs=1)
    (tmp_path / "findings").mkdir()
    attempt(request)
    (file,) = (tmp_path / "findings").iterdir()
    head, first, second = file.read_text().splitlines()
    for killed in (first, second):  # after either
        changed = json.loads(killed)
        changed["outcome"]["failed"] = "as it was found"
        file.write_text(f"{head}\n{json.dumps(changed)}\n")
        findings = attempt(request)[1]
        assert len(findings.outcomes) == 2
        assert findings.outcomes[changed["key"]].failed == "as it was found"
    (root / "tests/test_clip.py").write_text(STRONG)
    assert "as it was found" not in str(attempt(request)[1].outcomes)  # other tests


def test_a_campaign_that_is_interrupted_leaves_nothing_and_makes_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a defect hangs: its tests are ended, which is not that they noticed it."""
    request = Request(plant(tmp_path, COUNTS, COUNT), only=("drivers/clip.py:5",), jobs=1)
    campaign = Campaign(request, lambda line: None)
    run = Tree.run_tests
    trees: list[Tree] = []

    def run_and_interrupt(tree: Tree, files: Sequence[str], limit_s: float) -> Outcome:
        trees.append(tree)
        if len(trees) > 1:  # the first is without a defect
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        return run(tree, files, 1000.0)

    monkeypatch.setattr(Tree, "run_tests", run_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        campaign.run(tmp_path / "findings")
    assert len(trees) == 2 and not trees[0].path.exists()
    (file,) = (tmp_path / "findings").iterdir()
    assert len(file.read_text().splitlines()) == 1, "no outcome"


def test_a_tree_that_is_ended_runs_no_tests(tmp_path: Path) -> None:
    """Ctrl-C may come just before a thread starts the tests."""
    root = plant(tmp_path, "def test_hang():\n    while True:\n        pass\n")
    with Tree(root, tmp_path / "copy") as tree:
        tree.end()
        outcome = tree.run_tests(["tests/test_clip.py"], 1000.0)
    assert outcome.seconds < 500


@several
def test_survivors_are_tried_again_with_other_tests(tmp_path: Path) -> None:
    root = plant(tmp_path, WEAK.replace("clip(1, 2) == 1", "callable(clip) and clip(1, 2)"))
    request = Request(root, only=(COMPARISON,), jobs=1)
    assert set(attempt(request)[0].values()) == {"passed"}
    (root / "tests/test_clip.py").write_text(STRONG)
    again, findings = attempt(request, retry=True)
    assert again == {"if value >= most:": "passed", "if not (value > most):": "failed"}
    assert len(findings.chosen) == 2


def test_no_defect_is_begun_after_the_time(tmp_path: Path) -> None:
    root = plant(tmp_path, WEAK)
    findings = attempt(Request(root, only=(COMPARISON,), seconds=0.0))[1]
    assert not findings.outcomes


def test_an_equivalent_defect_is_not_tried_until_its_line_changes(tmp_path: Path) -> None:
    listed = tmp_path / "equivalent.yaml"
    listed.write_text(
        '[{file: drivers/clip.py, line: "if value > most:", mutant: "if value >= most:",'
        " reason: clipping what is equal changes nothing}]"
    )
    root = plant(tmp_path, STRONG)
    request = Request(root, only=(COMPARISON,), equivalent=listed)
    assert list(attempt(request)[0]) == ["if not (value > most):"]
    assert Campaign(request, print).stale() == []

    (root / "drivers/clip.py").write_text(MODULE.replace("value > most", "most < value"))
    campaign = Campaign(request, print)
    assert len(campaign._drawn) == 2
    assert [entry.line for entry in campaign.stale()] == ["if value > most:"]


def test_of_the_same_line_in_two_places_one_is_equivalent(tmp_path: Path) -> None:
    module = "def f(a):\n    a = 2\n    a.x()\n    a = 3\n    a.x()\n"
    listed = tmp_path / "equivalent.yaml"
    text = "file: drivers/clip.py, line: a.x(), mutant: pass, reason: none, above: a = 3"
    listed.write_text(f"[{{{text}}}]")
    root = plant(tmp_path, STRONG, module)
    request = Request(root, only=("drivers/clip.py:3", "drivers/clip.py:5"), equivalent=listed)
    campaign = Campaign(request, print)
    assert [d.line for d in campaign._drawn] == [3]
    assert campaign.stale() == []


def test_every_entry_of_the_projects_own_list_names_a_defect() -> None:
    request = Request(ROOT, only=("recorder/__init__.py",), equivalent=EQUIVALENT)
    assert Campaign(request, print).stale() == []


def test_an_equivalent_defect_has_a_reason(tmp_path: Path) -> None:
    listed = tmp_path / "equivalent.yaml"
    listed.write_text("[{file: a.py, line: a, mutant: b, reason: ' '}]")
    with pytest.raises(ValueError, match=r"equivalent.yaml: a.py: b: no reason"):
        load_equivalents(listed)
