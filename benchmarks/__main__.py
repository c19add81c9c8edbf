"""Command that runs the benchmarks: ``python -m benchmarks NAME... [--quick] [--minutes M]``.

``all`` runs all benchmarks; without a NAME the names are listed.  The benchmarks run one after
another, each in its own process; a failure, a hang or a missing requirement does not affect the
others.  Results are printed as Markdown; ``--out DIR`` also writes them as JSON and plots.
The exit code is 0, or 1 if a benchmark failed, or missed a target in a run that was not quick.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import psutil

from benchmarks.figures import Result
from benchmarks.harness import (
    RECORDINGS,
    ROOT,
    Module,
    Run,
    Unavailable,
    describe_machine,
    progress,
)
from benchmarks.output import benchmark_text, missing_table, target_table, text, write_results
from benchmarks.targets import verdicts
from recorder.common.errors import RecorderError
from recorder.config.options import Option, check_options


@dataclass(frozen=True)
class RunSettings:
    """Settings of a benchmark's run.

    Attributes:
        minutes: the benchmark's share of the total time.
        environment: folder of the environment whose Python runs the benchmark; empty: this Python.
    """

    minutes: float
    environment: str = ""


BENCHMARKS: Final = {
    "rig": RunSettings(5),
    "writer": RunSettings(2),
    "durable_ingest": RunSettings(4),
    "small_samples": RunSettings(1),
    "codecs": RunSettings(1),
    "dense_lidar": RunSettings(2),
    "packing": RunSettings(8),
    "ncore_writer": RunSettings(2, ".venv-conformance"),
    "bag_import": RunSettings(3),
    "topics_live": RunSettings(3, ".venv-conformance"),
    "start": RunSettings(2),
    "growth": RunSettings(8),
    "journal": RunSettings(1),
    "session_report": RunSettings(1),
    "views": RunSettings(0.5),
    "live": RunSettings(2),
    "screen": RunSettings(0.5),
    "triggers": RunSettings(1),
    "ouster_live": RunSettings(1),
    "lidar_live": RunSettings(2),
    "radar_live": RunSettings(1),
    "compressed_camera": RunSettings(1),
    "xsens_live": RunSettings(1),
    "can_live": RunSettings(1),
    "cluster": RunSettings(3),
}
_GRACE: Final = 0.5  # of a benchmark's time, for the round that is under way when it is up
_LEAST_GRACE_S: Final = 90.0
_END_S: Final = 10.0
_MEASURES: Final = "\ndef measure(run: Run) -> Iterator[Figure]:"
_TYPES: Final = {"int": int, "float": float, "bool": bool, "str": str, "path": str, "list": str}


def available() -> list[str]:
    """Return the names of the modules with a function `measure`, in the table's order."""
    folder = ROOT / "benchmarks"
    found = [p.stem for p in sorted(folder.glob("*.py")) if _MEASURES in p.read_text()]
    return sorted(found, key=lambda name: [*BENCHMARKS, name].index(name))


def load(name: str) -> Module:
    """Import the module of a benchmark."""
    return cast(Module, importlib.import_module(f"benchmarks.{name}"))


def make_parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser of the command, with the options of the given benchmarks."""
    doc = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=doc[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmark, or `all`")
    parser.add_argument("--quick", action="store_true", help="make every run short")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="stop after M minutes: begin no round that would end later",
    )
    parser.add_argument(
        "--simulated", action="store_true", help="simulate frames even if there are real ones"
    )
    parser.add_argument("--root", type=Path, metavar="DIR", help="record below DIR")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write JSON and plots there")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options: dict[str, Option] = {}
    for name in names:
        with contextlib.suppress(ImportError):  # reported where the benchmark is run
            options |= load(name).OPTIONS
    for key, option in options.items():
        shown = option.description + (f" ({option.default})" if len(names) == 1 else "")
        parser.add_argument(f"--{key}", metavar=key.upper(), help=shown.replace("%", "%%"))
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command's words; exit with 2 if they are wrong."""
    first = make_parser(()).parse_known_args([w for w in words if w not in ("-h", "--help")])[0]
    names = available()
    known = names if "all" in first.names else [name for name in first.names if name in names]
    parser = make_parser(known)
    args = parser.parse_args(words)
    for name in args.names:
        if name not in names and name != "all":
            parser.error(f"unknown benchmark {name!r}; there are {', '.join(names)}")
    args.names = known
    return args


def choose_options(module: Module, args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of a benchmark's options.

    Raises:
        ConfigError: a value is not of its option's type, or out of bounds.
    """
    given = dict(module.QUICK) if args.quick else {}
    for key, option in module.OPTIONS.items():
        if (word := getattr(args, key, None)) is not None:
            try:
                given[key] = msgspec.convert(word, _TYPES[option.type], strict=False)
            except msgspec.ValidationError:
                given[key] = word  # `check_options` names the key and the type
    return check_options(module.OPTIONS, given, "")


def run_here(name: str, args: argparse.Namespace) -> Result:
    """Run one benchmark in this process; write the result after every figure."""
    begin_s = time.monotonic()
    result = Result(name)

    def keep() -> None:
        result.seconds = time.monotonic() - begin_s
        partial = args.result.with_suffix(".partial")
        partial.write_text(json.dumps(result.to_json()))
        partial.replace(args.result)

    try:
        module = load(name)
    except ImportError as error:
        result.skipped["all"] = f"{error}"
        keep()
        return result
    result.title = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
    deadline_s = begin_s + 60 * args.minutes if args.minutes else float("inf")
    recordings = None if args.simulated or not RECORDINGS.is_dir() else RECORDINGS
    run = Run(
        args.root, choose_options(module, args), recordings, args.quick, deadline_s,
        result.data, result.notes, result.skipped,
    )  # fmt: skip
    keep()
    try:
        for figure in module.measure(run):
            result.figures.append(figure)
            keep()
    except Unavailable as why:
        run.skip("the rest" if result.figures else "all", str(why))
    except Exception as error:  # noqa: BLE001 - the other benchmarks go on
        result.error = f"{type(error).__name__}: {error}"
        progress(f"{name} failed: {result.error}")
        sys.excepthook(*sys.exc_info())
    keep()
    return result


def run_apart(name: str, args: argparse.Namespace, minutes: float | None, root: Path) -> Result:
    """Run one benchmark in its own process, which is ended if it takes far too long."""
    row = BENCHMARKS.get(name, RunSettings(1))
    own = [word for key in _own_keys(name, args) for word in (f"--{key}", getattr(args, key))]
    flags = [f"--{flag}" for flag in ("quick", "simulated") if getattr(args, flag)]
    result = Result(name, command=shlex.join(["python", "-m", "benchmarks", name, *flags, *own]))
    python = ROOT / row.environment / "bin" / "python" if row.environment else Path(sys.executable)
    if not python.exists():
        result.skipped["all"] = f"{row.environment} is not there; see docs/benchmarks.md"
        return result
    file = root / "result.json"
    folder = root / name
    folder.mkdir()
    words = [str(python), "-m", "benchmarks", name, *flags, *own]
    words += ["--root", str(folder), "--result", str(file)]
    if minutes is not None:
        words += ["--minutes", f"{minutes:.4f}"]
    begin_s = time.monotonic()
    seconds = None
    if minutes is not None:
        seconds = 60 * minutes + max(_LEAST_GRACE_S, _GRACE * 60 * minutes)
    ended = _wait(words, seconds)
    if file.exists():
        result = Result.from_json(json.loads(file.read_bytes()) | {"command": result.command})
        file.unlink()
    if ended and not result.error:
        result.error = ended
    result.seconds = time.monotonic() - begin_s
    return result


def _wait(words: Sequence[str], seconds: float | None) -> str:
    """Wait for a process; return its error, or an empty text."""
    process = subprocess.Popen(words, cwd=ROOT, start_new_session=True)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"ended after {seconds:g} s"
    finally:
        _end_group(process)
    return f"exit code {code}" if code else ""


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _own_keys(name: str, args: argparse.Namespace) -> list[str]:
    try:
        keys = load(name).OPTIONS
    except ImportError:
        return []
    return [key for key in keys if getattr(args, key, None) is not None]


def _filesystem(folder: Path) -> str:
    mounts = [m for m in psutil.disk_partitions(all=True) if folder.is_relative_to(m.mountpoint)]
    return max(mounts, key=lambda m: len(m.mountpoint)).fstype if mounts else "unknown filesystem"


def run_all(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the named benchmarks; print and write the results, and return the exit code."""
    begin_s = time.monotonic()
    head: dict[str, Any] = {
        "command": shlex.join(["python", "-m", "benchmarks", *words]),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": args.quick,
        "machine": describe_machine(),
    }
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=args.root) as root:
        head["filesystem"] = _filesystem(Path(root).resolve())
        for number, name in enumerate(args.names):
            minutes = None
            if args.minutes:
                left = args.minutes - (time.monotonic() - begin_s) / 60
                shares = [BENCHMARKS.get(n, RunSettings(1)).minutes for n in args.names[number:]]
                minutes = max(0.0, left * shares[0] / sum(shares))
            progress(f"{name} ..." + (f" {minutes:.1f} minutes" if minutes is not None else ""))
            results.append(run_apart(name, args, minutes, Path(root)))
            if args.out is not None:
                write_results(args.out, head, results)
    if len(results) > 1:
        print(text(head, results))
    else:
        for result in results:
            for lines in (target_table(verdicts(results)), missing_table(results)):
                print("\n".join(lines), end="\n\n" if lines else "")
            print("\n".join(benchmark_text(result)))
    judged = verdicts(results)
    missed = not args.quick and any(verdict.word == "MISSED" for verdict in judged)
    return 1 if missed or any(result.error for result in results) else 0


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    args = parse(words)
    if not args.names:
        for name in available():
            source = (ROOT / "benchmarks" / f"{name}.py").read_text()
            print(f"{name:16} {source.partition(chr(34) * 3)[2].partition(chr(10))[0]}")
        return 0
    try:
        if args.result is not None:
            run_here(args.names[0], args)
            return 0
        for name in args.names:
            with contextlib.suppress(ImportError):
                choose_options(load(name), args)
        return run_all(args, words)
    except RecorderError as error:
        progress(f"python -m benchmarks: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
