"""The command: options, time, benchmarks that fail, hang, or cannot be run."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from benchmarks import __main__ as command
from benchmarks.figures import Figure, Result
from benchmarks.harness import ROOT, Option, Run, Unavailable
from benchmarks.targets import TARGETS, verdicts
from recorder.common.errors import ConfigError


def _module(measure: Any, **options: Option) -> ModuleType:
    module = ModuleType("benchmarks.rig", "A benchmark.\n\nIts details.")
    vars(module).update(
        OPTIONS={"rounds": Option("int", 5, "", minimum=1), **options},
        QUICK={"rounds": 2},
        measure=measure,
    )
    return module


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a function as the benchmark ``rig``, and return what its process leaves behind."""

    def run(measure: Any, *words: str, **options: Option) -> Result:
        module = _module(measure, **options)
        monkeypatch.setattr(command, "load", lambda _: module)
        file = tmp_path / "result.json"
        root = ["--root", str(tmp_path), "--result", str(file)]
        args = command.parse(["rig", *root, *words])
        command.run_here("rig", args)
        return Result.from_json(json.loads(file.read_bytes()))

    return run


def test_options_are_those_of_the_benchmark(run_here: Any) -> None:
    seen: dict[str, Any] = {}

    def measure(run: Run) -> Iterator[Figure]:
        seen.update(run.options)
        yield Figure("x", [1])

    options = {"seconds": Option("float", 20.0, ""), "deep": Option("bool", False, "")}
    run_here(measure, "--seconds", "3", "--deep", "true", **options)
    assert seen == {"rounds": 5, "seconds": 3.0, "deep": True}
    run_here(measure, "--quick", **options)
    assert seen == {"rounds": 2, "seconds": 20.0, "deep": False}
    run_here(measure, "--quick", "--rounds", "4", **options)
    assert seen["rounds"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rounds", "0"), "rounds: 0 is below the minimum of 1"),
        (("--rounds", "many"), "rounds: needs a whole number, not str ('many')"),
    ],
)
def test_a_wrong_value_is_named(words: tuple[str, ...], message: str, run_here: Any) -> None:
    with pytest.raises(ConfigError) as error:
        run_here(lambda _: iter(()), *words)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [(["rigg"], "unknown benchmark 'rigg'"), (["views", "--sleep", "3"], "--sleep")],
)
def test_a_wrong_word_is_named(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        command.parse(words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_what_was_measured_before_an_error_is_kept(run_here: Any) -> None:
    def measure(_: Run) -> Iterator[Figure]:
        yield Figure("first", [1, 2, 3])
        raise ZeroDivisionError("no peer")

    result = run_here(measure)
    assert [figure.name for figure in result.figures] == ["first"]
    assert result.error == "ZeroDivisionError: no peer"
    assert result.title == "A benchmark."


def test_what_is_not_on_this_machine_is_no_error(run_here: Any) -> None:
    def measure(_: Run) -> Iterator[Figure]:
        if not Path("/nowhere").exists():
            raise Unavailable("no browser")
        yield Figure("x", [1])

    result = run_here(measure)
    assert not result.error
    assert result.skipped == {"all": "no browser"}


def test_a_module_that_cannot_be_imported_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def load(_: str) -> Any:
        return importlib.import_module("benchmarks.of_nothing")

    monkeypatch.setattr(command, "load", load)
    args = argparse.Namespace(result=tmp_path / "result.json")
    result = command.run_here("rig", args)
    assert "benchmarks.of_nothing" in result.skipped["all"]


def test_rounds_end_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run = Run(Path(), {"rounds": 10}, deadline_s=131.0)
    seen = []
    for number in run.rounds():
        seen.append(number)
        now[0] += 10  # three rounds fit, a fourth would end too late
    assert seen == [0, 1, 2]
    assert "3 of 10 rounds" in run.notes[0]


def test_a_share_of_the_time_ends_rounds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run = Run(Path(), {"rounds": 10}, deadline_s=100.0)
    for _ in run.rounds(0.25):
        now[0] += 10
    assert now[0] == 20


def test_the_first_round_takes_place_even_late() -> None:
    run = Run(Path(), {"rounds": 3}, deadline_s=0.0)
    assert run.late
    assert list(run.rounds()) == [0]


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_process_is_ended_with_its_children(stubborn: bool) -> None:
    inner = "import signal, time; " + "signal.signal(15, signal.SIG_IGN); " * stubborn
    inner += "print(flush=True); time.sleep(600)"
    script = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {inner!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        command._end_group(process)
    # Whoever adopts it need not have waited for it yet.
    with contextlib.suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)


def test_a_process_that_hangs_is_ended() -> None:
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert command._wait(words, 0.1) == "ended after 0.1 s"


def test_a_process_that_fails_is_told() -> None:
    assert command._wait([sys.executable, "-c", "raise SystemExit(7)"], None) == "exit code 7"
    assert command._wait([sys.executable, "-c", ""], 60) == ""


def test_an_environment_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(command.BENCHMARKS, "rig", command.RunSettings(1, ".venv-of-nothing"))
    args = command.parse(["rig"])
    result = command.run_apart("rig", args, None, tmp_path)
    assert ".venv-of-nothing is not there" in result.skipped["all"]


def test_a_benchmark_is_a_module_that_measures() -> None:
    found = command.available()
    assert {"rig", "writer", "packing", "growth"} <= set(found)
    assert not {"harness", "figures", "baseline", "recording"} & set(found)
    assert found == [name for name in command.BENCHMARKS if name in found] + sorted(
        set(found) - set(command.BENCHMARKS)
    )


def test_quick_options_are_legal() -> None:
    for name in command.available():
        try:
            module = command.load(name)
        except ImportError:  # Chromium's
            continue
        args = argparse.Namespace(quick=True)
        assert set(module.QUICK) <= set(module.OPTIONS), name
        assert command.choose_options(module, args).keys() == module.OPTIONS.keys()


def test_targets_name_figures_once() -> None:
    keys = [(target.benchmark, target.figure) for target in TARGETS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("sign", "values", "word"),
    [
        ("<=", [0.9, 1.0, 5.0], "met"),
        ("<=", [0.9, 1.01, 5.0], "MISSED"),
        (">=", [0.1, 1.0, 5.0], "met"),
        (">=", [0.1, 0.99, 5.0], "MISSED"),
    ],
)
def test_the_median_is_held_against_the_target(
    monkeypatch: pytest.MonkeyPatch, sign: Any, values: list[float], word: str
) -> None:
    from benchmarks import targets

    target = targets.Target("work", "", "rig", "ratio", sign, 1.0)
    absent = targets.Target("other", "", "rig", "other ratio", sign, 1.0)
    elsewhere = targets.Target("live", "", "live", "ratio", sign, 1.0)
    monkeypatch.setattr(targets, "TARGETS", (target, absent, elsewhere))
    judged = verdicts([Result("rig", figures=[Figure("ratio", values)])])
    assert [verdict.word for verdict in judged] == [word, "not run"]


@pytest.mark.campaign(weight=6)
def test_the_whole_command(tmp_path: Path) -> None:
    options = ["--seconds", "1", "--hours", "0.01", "--rounds", "2"]
    words = [sys.executable, "-m", "benchmarks", "journal", "--quick", "--simulated", *options]
    words += ["--out", str(tmp_path / "out"), "--root", str(tmp_path), "--minutes", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    command = "python -m benchmarks journal --quick --simulated --seconds 1 --hours 0.01 --rounds 2"
    assert f"`{command}`" in done.stdout
    assert "| digest calls " in done.stdout
    written = json.loads((tmp_path / "out" / "results.json").read_bytes())
    (result,) = written["results"]
    assert result["data"]["samples"] == "random bytes in the sizes of real video and sweeps"
    assert [figure["repetitions"] for figure in result["figures"]] == [2] * 6
    assert written["machine"]["cpus"] >= 1
    text = (tmp_path / "out" / "results.md").read_text()
    assert "![journal](journal.svg)" in text
    assert (tmp_path / "out" / "journal.svg").stat().st_size > 1000
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(command.available()) - {"journal"}))
def test_every_benchmark_runs(name: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks", name, "--quick", "--simulated"]
    words += ["--out", str(tmp_path / "out"), "--root", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    (result,) = json.loads((tmp_path / "out" / "results.json").read_bytes())["results"]
    assert not result["error"], done.stderr
    assert result["figures"] or result["skipped"]
    if result["skipped"].get("all"):
        pytest.skip(f"{name}: {result['skipped']['all']}")
