"""Resolve what users install to wheels, for each machine and each Python: ``make resolve``.

uv resolves for a platform that is not this one; nothing is downloaded but metadata.  Every package
must be pinned in constraints.txt, and its pin must have a wheel.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PINS: Final = ROOT / "requirements/constraints.txt"
OVERRIDES: Final = ROOT / "requirements/overrides.txt"
MACHINES: Final = ("x86_64", "aarch64")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
FOR_DEVELOPERS: Final = frozenset({"conformance", "browser", "docs"})
"""Extras that nobody needs who runs the recorder; `make demo` installs ``dev``."""
WITHOUT_WHEELS: Final = {"3.14": frozenset({"odometry"})}
"""Extras of which a pin has no wheel for a Python."""
FROM_SOURCE: Final = ("empy",)
"""Packages without any wheel; they are plain Python, and ROS 2 needs them."""


def extras(python: str) -> list[str]:
    """The extras that must resolve for a Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    without = FOR_DEVELOPERS | WITHOUT_WHEELS.get(python, frozenset())
    return [name for name in project["optional-dependencies"] if name not in without]


def resolve(machine: str, python: str) -> list[str]:
    """The packages with versions that are installed on a machine; CalledProcessError without."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("uv"),
        *("pip", "compile", ROOT / "pyproject.toml", "--quiet"),
        *("--python", sys.executable, "--python-version", python),
        *("--python-platform", f"{machine}-manylinux_2_28", "--only-binary", ":all:"),
        *(word for name in FROM_SOURCE for word in ("--no-binary", name)),
        *("--constraint", PINS, "--no-header", "--no-annotate"),
    ]
    if machine == "aarch64":
        command += ["--override", OVERRIDES]
    for extra in extras(python):
        command += ["--extra", extra]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [line.replace(" ", "") for line in run.stdout.splitlines()]


def pins(path: Path) -> set[str]:
    """Pins as NAME==VERSION, names as uv writes them."""
    lines = [line.partition(";")[0] for line in path.read_text().splitlines()]
    return {line.strip().lower().replace("_", "-").replace(".", "-") for line in lines if line}


def main() -> int:
    """Print a line for each machine and Python; 1 where a package has no pin or no wheel."""
    pinned = pins(PINS)
    code = 0
    for machine in MACHINES:
        for python in PYTHONS:
            without = sorted(WITHOUT_WHEELS.get(python, ()))
            told = f"{machine}, Python {python}" + "".join(f", without {name}" for name in without)
            try:
                found = resolve(machine, python)
            except subprocess.CalledProcessError as error:
                print(f"{told}: uv ended with {error.returncode}", file=sys.stderr)
                code = 1
                continue
            loose = [line for line in found if line.replace(".", "-") not in pinned]
            print(f"{told}: {len(found)} packages, all with wheels")
            if loose:
                print(f"{told}: without a pin: {', '.join(loose)}", file=sys.stderr)
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
