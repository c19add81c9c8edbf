"""``python -m tests.mutants.nearest_tests``: run the tests nearest to what git sees changed.

Exit code 0 where none fails, or where one fails without the change, too.
"""

from __future__ import annotations

import ast
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil

# Of a module that more test files import only the tests in the folder of its name run.
_IMPORTERS = 30
# What runs elsewhere, or for long.
_LEFT_OUT = ("conformance", "systemd", "soak", "mutants", "benchmarks", "supply")


def find_nearest(root: Path, module: str) -> list[str]:
    """List the test files in the folder named as the module or its package, and what imports it."""
    files = [p for p in (root / "tests").rglob("test_*.py") if p.parts[-2] not in _LEFT_OUT]
    twin = _find_twin(root, module)
    near = [p for p in files if p.is_relative_to(twin)]
    name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    importers = [p for p in files if name in _find_imports(p)]
    if len(importers) <= _IMPORTERS or not near:
        near += [p for p in importers if p not in near]
    # Its own name first, which most often notices.
    near.sort(key=lambda p: (Path(module).stem not in p.stem, not p.is_relative_to(twin), p))
    return [p.relative_to(root).as_posix() for p in near]


def _find_twin(root: Path, module: str) -> Path:
    parts = Path(module).with_suffix("").parts
    for depth in range(len(parts), 0, -1):
        for names in (parts[1:depth], parts[:depth]):
            place = root.joinpath("tests", *names)
            if names and place.is_dir():
                return place
    return root / "tests" / "acceptance"


def _find_imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _fails(*words: str) -> bool:
    """Run pytest with the words; pytest's exit code 5 means that there was no test."""
    # Without compiled modules every process that a test starts would compile them.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", *words]
    code = subprocess.run(command, env=environment, check=False).returncode
    # What a failed test left behind: whatever this clone's interpreter runs, but this process.
    for process in psutil.process_iter(["cmdline"]):
        program = (process.info["cmdline"] or [""])[0]
        if program.startswith(sys.prefix) and process.pid != os.getpid():
            with contextlib.suppress(psutil.Error):
                process.kill()
    return code not in (0, 5)


def main() -> int:
    """Run the tests, and the one that fails again without the change."""
    changed = subprocess.check_output(["git", "diff", "--name-only"], text=True).split()
    files = [file for module in changed for file in find_nearest(Path.cwd(), module)]
    jobs = os.environ.get("JOBS", "2")
    if not files or not _fails("--cache-clear", "-n", jobs, "--dist", "loadfile", *files):
        return 0
    subprocess.run(["git", "checkout", "--quiet", "--", *changed], check=True)
    return int(not _fails("--last-failed", "--last-failed-no-failures=none", *files))


if __name__ == "__main__":
    sys.exit(main())
