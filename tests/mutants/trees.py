"""Copies of a tree in which its tests run: never the tree itself.

A copy has a virtual environment of its own, whose interpreter finds the copy's packages wherever
a test starts a process, whatever its working directory, environment and flags; and whose other
packages are those of the environment that runs the campaign.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_IGNORED = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", ".mutants", ".hypothesis", "build", "*.egg-info",
    "/sessions", "/demo",
)  # fmt: skip
_HITS = "mutant_hits"  # the module that counts, in an instrumented copy
_COUNTER = """
import os
_folder, _open, _close, _seen = {folder!r}, os.open, os.close, set()
def mutant_hit(number):
    if number not in _seen:
        try:
            _close(_open(f"{{_folder}}/{{number}}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
            _seen.add(number)
        except OSError:
            pass
"""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_NO_TESTS = 5  # pytest's exit code
_SEVERAL = 3  # runs of tests that fail now and then


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of tests ended."""

    verdict: str
    """passed, failed, timeout, or empty where there was no test to run"""
    seconds: float
    failed: str = ""
    """The first test that failed."""


class Tree:
    """One copy of a tree, with an interpreter.

    with Tree(root, folder) as tree:
        tree.write("drivers/x.py", mutant)
        outcome = tree.run_tests(["tests/test_x.py"], timeout_s=60)
        tree.restore("drivers/x.py")
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self.path = folder / "tree"
        self._hits = folder / "hits"
        self._written = int(time.time())
        self._ended = False

    def __enter__(self) -> Tree:
        self._hits.mkdir(parents=True)
        self._hits.chmod(0o777)
        shutil.copytree(self._root, self.path, symlinks=True, ignore=_IGNORED)
        shared = self._root.resolve().parent / "shared"
        if shared.is_dir():
            (self._folder / "shared").symlink_to(shared)
        self._make_environment()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def write(self, file: str, content: bytes) -> None:
        """Put another content into a file of the copy; no compiled module of before is used."""
        path = self.path / file
        path.write_bytes(content)
        # A compiled module is told by its source's seconds and size.
        self._written += 2
        os.utime(path, (self._written, self._written))

    def restore(self, file: str) -> None:
        """Put the file back as it is in the tree."""
        self.write(file, (self._root / file).read_bytes())

    def count_hits(self) -> None:
        """Have instrumented files (``mutant_hit(number)``) counted from now on."""
        (self.path / f"{_HITS}.py").write_text(_COUNTER.format(folder=str(self._hits)))

    def take_hits(self) -> set[int]:
        """What was counted since the last time."""
        found = set()
        for path in self._hits.iterdir():
            found.add(int(path.name))
            path.unlink()
        return found

    def run_tests(self, files: Sequence[str], timeout_s: float) -> Outcome:
        """Run test files until a test fails, twice in a row: one that fails once says nothing."""
        begin = time.monotonic()

        def end(verdict: str, failed: str = "") -> Outcome:
            return Outcome(verdict, time.monotonic() - begin, failed)

        note = ""
        for _ in range(_SEVERAL):
            code, output = self._pytest(files, timeout_s)
            if code is None:
                return end("timeout")
            if code == _NO_TESTS:
                return end("empty")
            if code == 0:
                break
            found = _FAILED.search(output)
            failed = found.group(1) if found else "".join(output.strip().splitlines()[-1:])
            if code != 1:
                return end("failed", failed)
            code, _ = self._pytest(["--last-failed", "--last-failed-no-failures=none"], timeout_s)
            if code not in (0, _NO_TESTS):
                return end("failed", failed)
            note = f"{failed} failed once, and passed when it was tried again"
        return end("passed", note)

    def _pytest(self, words: Iterable[str], timeout_s: float) -> tuple[int | None, str]:
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        command = [str(self.path / ".venv/bin/python"), "-m", "pytest", "-q", "-x", "--tb=no"]
        command += ["-rfE", "-o", f"cache_dir={self._folder / 'cache'}", *words]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
        environment |= {"PYTEST_DEBUG_TEMPROOT": str(temporary), "COLUMNS": "500"}
        environment |= {"VIRTUAL_ENV": str(self.path / ".venv"), "TMPDIR": str(temporary)}
        environment.pop("PYTHONPATH", None)
        log = self._folder / "output"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=self.path, env=environment, process_group=0,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
            code: int | None
            try:
                if self._ended:  # `end` came too early to see this process
                    self.stop()
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self.stop()
                process.wait()
        shutil.rmtree(temporary, ignore_errors=True)
        return code, log.read_text(errors="replace")

    def end(self) -> None:
        """Kill the tests that run now, and any that another thread is about to start."""
        self._ended = True
        self.stop()

    def stop(self) -> None:
        """Kill the tests and what they started and left: all of the copy's interpreter."""
        mine = str(self.path / ".venv")
        for process in psutil.process_iter(["cmdline", "environ"]):
            words, around = process.info["cmdline"] or (), process.info["environ"] or {}
            if any(w.startswith(mine) for w in words) or around.get("VIRTUAL_ENV") == mine:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.Error:
                    continue

    def _make_environment(self) -> None:
        where = self.path / ".venv"
        venv.EnvBuilder(with_pip=False, symlinks=True).create(where)
        variables = {"base": str(where), "platbase": str(where)}
        packages = Path(sysconfig.get_path("purelib", "venv", variables))
        places = [str(self.path), *site.getsitepackages()]
        (packages / "tree.pth").write_text("\n".join(places) + "\n")
        scripts, ours = where / "bin", str(where / "bin" / "python")
        for script in Path(sys.prefix, "bin").iterdir():
            if script.is_dir():
                continue
            with script.open("rb") as file:
                first = file.readline()
            if (
                first.startswith(b"#!")
                and b"python" in first
                and not (scripts / script.name).exists()
            ):
                text = script.read_bytes().removeprefix(first)
                (scripts / script.name).write_bytes(f"#!{ours}\n".encode() + text)
                (scripts / script.name).chmod(0o755)


def instrumented(source: bytes, insertions: Iterable[tuple[int, int, int, str]]) -> bytes:
    """A module with texts inserted, which may call ``mutant_hit``; no line is added.

    Where a module begins with a compound statement there is one line more.
    """
    body = ast.parse(source).body
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    head = None
    for node in body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            break
        head = node
    imported = f"from {_HITS} import mutant_hit"
    if head is None or head.end_lineno is None or head.end_col_offset is None:
        first = (0, -1, 0, f"{imported}\n")
    else:
        end = starts[head.end_lineno - 1] + head.end_col_offset
        first = (end, -1, 0, f"; {imported}")
    result, at = bytearray(), 0
    for offset, _, _, text in sorted([*insertions, first]):
        result += source[at:offset] + text.encode()
        at = offset
    return bytes(result + source[at:])
